//! The store against a plain model in memory: any order of requests gives the same answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use crate::common::*;
use crate::toy::*;
use xebec_store::*;

#[derive(Clone, Debug)]
enum Request {
    Push(u8, u8),
    Mount(u8, u8, u8),
    /// Repository, number of the manifest, tag.
    Put(u8, u8, Option<u8>),
    DeleteManifest(u8, u8),
    DeleteTag(u8, u8),
    DeleteBlob(u8, u8),
    /// Takes the next blob apart, and drops its object or not.
    Dedup(bool),
    Collect,
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    use Request::*;
    let small = 0..3_u8;
    let request = prop_oneof![
        4 => (small.clone(), small.clone()).prop_map(|(repository, blob)| Push(repository, blob)),
        2 => (small.clone(), small.clone(), small.clone()).prop_map(|(to, blob, from)| Mount(to, blob, from)),
        6 => (small.clone(), 0..8_u8, prop::option::of(small.clone())).prop_map(|(r, m, t)| Put(r, m, t)),
        2 => (small.clone(), 0..8_u8).prop_map(|(repository, manifest)| DeleteManifest(repository, manifest)),
        1 => (small.clone(), small.clone()).prop_map(|(repository, tag)| DeleteTag(repository, tag)),
        1 => (small.clone(), small.clone()).prop_map(|(repository, blob)| DeleteBlob(repository, blob)),
        3 => any::<bool>().prop_map(Dedup),
        1 => Just(Collect),
    ];
    prop::collection::vec(request, 1..25)
}

fn repository(number: u8) -> RepositoryName {
    name(["a", "a/b", "c"][usize::from(number)])
}

fn blob(number: u8) -> Vec<u8> {
    of_chunks(&(0..=number).collect::<Vec<u8>>())
}

/// The blobs of a manifest are the bits of its number; the last two manifests refer to the first.
fn numbered(number: u8) -> NewManifest {
    let blobs = (0..3)
        .filter(|bit| number & 1 << bit != 0)
        .map(|bit| layer(&blob(bit)));
    let mut new = manifest(&format!("manifest {number}"), blobs.collect());
    new.subject = (number >= 6).then(|| digest(b"manifest 0"));
    new
}

#[derive(Default)]
struct Model {
    blobs: BTreeSet<(u8, u8)>,
    manifests: BTreeSet<(u8, u8)>,
    tags: BTreeMap<(u8, u8), u8>,
}

impl Model {
    fn needs(number: u8) -> impl Iterator<Item = u8> {
        (0..3).filter(move |bit| number & 1 << bit != 0)
    }

    /// Changes the model as the store changes by the same request; whether the store answers yes.
    fn apply(&mut self, request: &Request) -> bool {
        match *request {
            Request::Push(repository, blob) => {
                self.blobs.insert((repository, blob));
                true
            }
            Request::Mount(to, blob, from) => {
                let is_found = self.blobs.contains(&(to, blob)) || self.blobs.contains(&(from, blob));
                if is_found {
                    self.blobs.insert((to, blob));
                }
                is_found
            }
            Request::Put(repository, number, tag) => {
                let is_whole = Self::needs(number).all(|blob| self.blobs.contains(&(repository, blob)));
                if is_whole {
                    self.manifests.insert((repository, number));
                    tag.map(|tag| self.tags.insert((repository, tag), number));
                }
                is_whole
            }
            Request::DeleteManifest(repository, number) => {
                self.tags
                    .retain(|(of, _), named| *of != repository || *named != number);
                self.manifests.remove(&(repository, number))
            }
            Request::DeleteTag(repository, tag) => self.tags.remove(&(repository, tag)).is_some(),
            Request::DeleteBlob(repository, blob) => self.blobs.remove(&(repository, blob)),
            Request::Dedup(_) => true,
            Request::Collect => {
                let manifests = &self.manifests;
                self.blobs.retain(|(repository, blob)| {
                    let mut named = manifests.iter().filter(|(of, _)| of == repository);
                    named.any(|(_, number)| Self::needs(*number).any(|needed| needed == *blob))
                });
                true
            }
        }
    }
}

async fn apply(store: &Store, request: &Request) -> bool {
    match *request {
        Request::Push(of, number) => push(store, &repository(of), &blob(number)).await.is_ok(),
        Request::Mount(to, number, from) => {
            let mounted = store
                .mount(&repository(to), &digest(&blob(number)), Some(&repository(from)))
                .await;
            mounted.unwrap().is_some()
        }
        Request::Put(of, number, named) => {
            let tags: Vec<Tag> = named.iter().map(|number| tag(&format!("t{number}"))).collect();
            match store
                .put_manifest(&repository(of), &numbered(number), &tags)
                .await
            {
                Ok(_) => true,
                Err(StoreError::MissingReferences { .. }) => false,
                Err(error) => panic!("{error}"),
            }
        }
        Request::DeleteManifest(of, number) => store
            .delete_manifest(&repository(of), &numbered(number).digest)
            .await
            .unwrap(),
        Request::DeleteTag(of, number) => store
            .delete_tag(&repository(of), &tag(&format!("t{number}")))
            .await
            .unwrap(),
        Request::DeleteBlob(of, number) => store
            .delete_blob(&repository(of), &digest(&blob(number)))
            .await
            .unwrap(),
        Request::Dedup(drops) => !matches!(
            take_next(store, drops).await,
            Some(Recording::PacksGone | Recording::DraftsGone)
        ),
        Request::Collect => {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(2)).await;
                store.collect(&CollectOptions::default()).await.unwrap();
            }
            true
        }
    }
}

async fn compare(store: &Store, model: &Model) {
    for of in 0..3 {
        let repository = repository(of);
        for number in 0..3 {
            let found = store
                .peek_blob(&repository, &digest(&blob(number)))
                .await
                .unwrap();
            assert_eq!(found.is_some(), model.blobs.contains(&(of, number)));
            if let Some(found) = found {
                assert_eq!(contents(store, &found).await, blob(number));
            }
        }
        let wanted: BTreeSet<Digest> = model
            .manifests
            .iter()
            .filter(|(r, _)| *r == of)
            .map(|(_, m)| numbered(*m).digest)
            .collect();
        let found = store.manifests(&repository, 99, None).await.unwrap();
        assert_eq!(
            found
                .items
                .into_iter()
                .map(|item| item.digest)
                .collect::<BTreeSet<_>>(),
            wanted
        );
        let wanted: BTreeSet<Digest> = [6, 7]
            .into_iter()
            .filter(|m| model.manifests.contains(&(of, *m)))
            .map(|m| numbered(m).digest)
            .collect();
        let found = store
            .referrers(&repository, &digest(b"manifest 0"), None, 99, None)
            .await
            .unwrap();
        assert_eq!(
            found
                .items
                .into_iter()
                .map(|item| item.digest)
                .collect::<BTreeSet<_>>(),
            wanted
        );
        let tags = store.tags(&repository, 99, None).await.unwrap();
        let tags = tags.map(|page| page.items).unwrap_or_default();
        let found: BTreeMap<String, Digest> = tags
            .into_iter()
            .map(|tag| (tag.name.to_string(), tag.digest))
            .collect();
        let wanted = model.tags.iter().filter(|((r, _), _)| *r == of);
        assert_eq!(
            found,
            wanted
                .map(|((_, tag), m)| (format!("t{tag}"), numbered(*m).digest))
                .collect()
        );
    }
    let wanted: BTreeSet<u8> = model
        .blobs
        .iter()
        .chain(&model.manifests)
        .map(|(of, _)| *of)
        .collect();
    let found = store.repositories(99, None).await.unwrap().items;
    assert_eq!(found, wanted.into_iter().map(repository).collect::<Vec<_>>());
    let bytes = |blobs: BTreeSet<u8>| {
        blobs
            .into_iter()
            .map(|number| blob(number).len() as u64)
            .sum::<u64>()
    };
    let manifests: BTreeSet<u8> = model.manifests.iter().map(|(_, number)| *number).collect();
    let wanted = bytes(model.blobs.iter().map(|(_, number)| *number).collect())
        + manifests
            .iter()
            .map(|number| numbered(*number).content.len() as u64)
            .sum::<u64>();
    assert_eq!(store.usage("").await.unwrap().bytes, wanted);
}

#[test]
fn the_store_answers_as_its_model() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(requests in requests())| {
        runtime.block_on(async {
            for test in engines(no_grace).await {
                with_toy(&test.store);
                let mut model = Model::default();
                for request in &requests {
                    let answer = apply(&test.store, request).await;
                    assert_eq!(answer, model.apply(request), "{request:?} over {}", test.engine);
                    compare(&test.store, &model).await;
                }
                assert_nothing_forgotten(test.directory.path());
            }
        });
    });
}
