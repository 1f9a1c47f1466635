//! Blobs with copies anywhere, in any form, in any order of pushes, placings, deletions and losses: their bytes are always right, and nothing stays of those
//! that go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use xebec_placement::{Kept, PlaceName, Placement, Wanted};

use crate::common::*;
use crate::replicas::*;
use crate::toy::*;
use xebec_store::*;

const WISHES: [&[&str]; 6] = [
    &["main"],
    &["one"],
    &["main", "one"],
    &["one", "two"],
    &["two,three,four(2+1)"],
    &["main", "one,two,three(1+2)"],
];
/// More rounds of placers than any change needs.
const MOST_ROUNDS: usize = 8;

#[derive(Clone, Debug)]
enum Request {
    Push(u8),
    Delete(u8),
    /// Other copies are wanted of a blob.
    Wish(u8, usize),
    Dedup(bool),
    MakeIntact(u8),
    DropRecipe(u8),
    /// Placers look at everything.
    Place,
    Collect,
    /// A place loses all that it has, or has wrong bytes, if nothing is lost for ever by that; a scrub follows.
    Fault(usize, bool),
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    use Request::*;
    let request = prop_oneof![
        4 => (0..3_u8).prop_map(Push),
        1 => (0..3_u8).prop_map(Delete),
        5 => (0..3_u8, 0..WISHES.len()).prop_map(|(blob, wish)| Wish(blob, wish)),
        2 => any::<bool>().prop_map(Dedup),
        1 => (0..3_u8).prop_map(MakeIntact),
        1 => (0..3_u8).prop_map(DropRecipe),
        3 => Just(Place),
        1 => Just(Collect),
        4 => (0..5_usize, any::<bool>()).prop_map(|(place, is_gone)| Fault(place, is_gone)),
    ];
    prop::collection::vec(request, 1..20)
}

fn blob(number: u8) -> Vec<u8> {
    of_chunks(&(0..=number).collect::<Vec<u8>>())
}

struct World<'a> {
    store: &'a Store,
    root: &'a Path,
    top: &'a Path,
    /// The blobs that are here, and what is wanted of each.
    blobs: BTreeMap<u8, usize>,
}

impl World<'_> {
    async fn apply(&mut self, request: &Request) {
        match *request {
            Request::Push(number) => {
                push_kept(self.store, &blob(number)).await;
                self.blobs.entry(number).or_insert(0);
            }
            Request::Delete(number) => {
                if self.blobs.remove(&number).is_some() {
                    self.delete(number).await;
                }
            }
            Request::Wish(number, wish) => {
                if let Some(wanted) = self.blobs.get_mut(&number) {
                    *wanted = wish;
                    self.store.place_anew().await.unwrap();
                }
            }
            Request::Dedup(drops) => {
                let recording = take_next(self.store, drops).await;
                assert!(matches!(
                    recording,
                    None | Some(Recording::Recorded(_) | Recording::BlobGone)
                ));
            }
            Request::MakeIntact(number) => {
                let found = self.store.any_blob(&digest(&blob(number))).await.unwrap();
                if let Some(found) = found.filter(|_| self.blobs.contains_key(&number)) {
                    let is_made = self.store.make_intact(&found).await.unwrap();
                    assert_eq!(is_made, found.object.is_none());
                }
            }
            Request::DropRecipe(number) => {
                self.store
                    .drop_recipe(&digest(&blob(number)), None)
                    .await
                    .unwrap();
            }
            Request::Place => self.place().await,
            Request::Collect => {
                tokio::time::sleep(Duration::from_millis(2)).await;
                collect(self.store).await;
            }
            Request::Fault(place, is_gone) => {
                self.fail(["main", "one", "two", "three", "four"][place], is_gone)
                    .await
            }
        }
        self.compare().await;
    }

    async fn delete(&self, number: u8) {
        let digest_of = digest(&blob(number));
        let named = digest(format!("of {digest_of}").as_bytes());
        assert!(self.store.delete_manifest(&name("app"), &named).await.unwrap());
        assert!(self.store.delete_blob(&name("app"), &digest_of).await.unwrap());
    }

    async fn compare(&self) {
        for number in self.blobs.keys() {
            assert_eq!(
                read(self.store, &digest(&blob(*number))).await.unwrap(),
                blob(*number)
            );
        }
        assert_nothing_forgotten(self.root);
    }

    /// Placers look at everything, until nothing is to be looked at.
    async fn place(&self) {
        for _ in 0..MOST_ROUNDS {
            let mut is_done = true;
            for digest in self.store.take_unplaced(99, Duration::ZERO).await.unwrap() {
                if let Some(standing) = self.store.standing(&digest).await.unwrap() {
                    self.place_blob(&standing).await;
                    is_done = false;
                }
            }
            for key in self.store.take_unplaced_packs(99, Duration::ZERO).await.unwrap() {
                if let Some(standing) = self.store.pack_standing(key).await.unwrap() {
                    let held = Held::of_pack(&standing.pack);
                    self.store.place(&held, standing.wanted.apart()).await.unwrap();
                    self.store.pack_placed(key, standing.seen).await.unwrap();
                    is_done = false;
                }
            }
            if is_done {
                return;
            }
        }
        panic!("placers come to no end");
    }

    async fn place_blob(&self, standing: &Standing) {
        let found = self
            .blobs
            .iter()
            .find(|(number, _)| digest(&blob(**number)) == standing.blob.digest);
        let wish = WISHES[found.map_or(0, |(_, wish)| *wish)];
        let kept: Vec<Kept> = wish
            .iter()
            .map(|place| format!("chunks@{place}").parse().unwrap())
            .collect();
        let of_blob = &standing.blob.digest;
        self.store
            .want(of_blob, &Wanted::of(&kept).unwrap())
            .await
            .unwrap();
        let recipe = standing
            .recipe
            .as_ref()
            .map(|(recipe, _)| Held::of_recipe(recipe));
        for held in Held::of_blob(&standing.blob).into_iter().chain(recipe) {
            self.store.place(&held, &wanted(wish)).await.unwrap();
        }
        self.store.placed(of_blob, standing.seen).await.unwrap();
    }

    /// All objects of blobs that are here.
    async fn held(&self) -> Vec<Held> {
        let mut all = Vec::new();
        for number in self.blobs.keys() {
            let found = self
                .store
                .any_blob(&digest(&blob(*number)))
                .await
                .unwrap()
                .unwrap();
            all.extend(Held::of_blob(&found));
            if let Some(recipe) = self.store.recipe(&found.digest).await.unwrap() {
                all.push(Held::of_recipe(&recipe));
                all.extend(recipe.packs.iter().map(Held::of_pack));
            }
        }
        // Blobs may have packs in common.
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all.dedup();
        all
    }

    async fn fail(&self, place: &str, is_gone: bool) {
        let held = self.held().await;
        for one in &held {
            let placements = self
                .store
                .placements(one, &std::collections::BTreeSet::new())
                .await
                .unwrap();
            if !survives(&placements, &place.parse().unwrap()) {
                return;
            }
        }
        let files = match place {
            "main" => held
                .iter()
                .filter(|held| !held.name.starts_with("away:"))
                .map(|held| object(self.root, &held.name))
                .collect(),
            _ => replica_files(self.top, place),
        };
        for file in files {
            match is_gone {
                true => std::fs::remove_file(&file).unwrap(),
                false => {
                    let mut bytes = std::fs::read(&file).unwrap();
                    bytes[0] ^= 1;
                    std::fs::write(&file, bytes).unwrap();
                }
            }
        }
        if is_gone {
            self.compare().await;
        }
        let scrubbed = self.scrub().await;
        assert_eq!(
            (
                scrubbed.damaged_pieces,
                &scrubbed.damaged[..],
                &scrubbed.missing[..]
            ),
            (0, &[][..], &[][..])
        );
        self.place().await;
        let scrubbed = self.scrub().await;
        assert_eq!((scrubbed.mended, scrubbed.damaged_replicas), (0, 0));
    }

    async fn scrub(&self) -> Scrubbed {
        self.store.scrub(&ScrubOptions::default(), |_| {}).await.unwrap()
    }

    /// All is deleted, and nothing stays.
    async fn end(&mut self) {
        self.place().await;
        for number in std::mem::take(&mut self.blobs).into_keys() {
            self.delete(number).await;
        }
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(2)).await;
            collect(self.store).await;
        }
        for place in PLACES {
            assert_eq!(replica_files(self.top, place).len(), 0, "{place}");
        }
    }
}

/// Whether an object is still there without this place.
fn survives(placements: &BTreeSet<Placement>, lost: &PlaceName) -> bool {
    placements.iter().any(|placement| match placement {
        Placement::At(place) => place != lost,
        Placement::Spread { code, places, .. } => {
            places.iter().filter(|place| *place == lost).count() <= usize::from(code.parity())
        }
    })
}

#[test]
fn bytes_are_right_wherever_copies_are() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(requests in requests())| {
        runtime.block_on(async {
            for (test, elsewhere) in stores().await {
                let mut world = World {
                    store: with_toy(&test.store),
                    root: test.directory.path(),
                    top: elsewhere.path(),
                    blobs: BTreeMap::new(),
                };
                for request in &requests {
                    world.apply(request).await;
                }
                world.end().await;
                assert_eq!(files(&test), 0);
            }
        });
    });
}
