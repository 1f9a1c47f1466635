//! Records and objects that disagree at random, as after faults of a disk, or after one was restored without the other. A collection
//! takes nothing that an image has, a scrub names exactly the damaged blobs, and a push of everything mends them.

use std::collections::BTreeSet;
use std::fs;

use crate::common::*;
use xebec_store::*;

const IMAGES: u64 = 12;

fn bytes(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let length = random.usize(10..3000);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

/// The blobs of an image; images share some.
fn blobs(image: u64) -> [Vec<u8>; 2] {
    [bytes(1000 + image), bytes(image % 4)]
}

async fn push_all(test: &TestStore, repository: &RepositoryName) {
    for image in 0..IMAGES {
        for blob in blobs(image) {
            push(&test.store, repository, &blob).await.unwrap();
        }
        let layers = blobs(image).iter().map(|blob| layer(blob)).collect();
        let manifest = manifest(&format!("image {image}"), layers);
        let tag = tag(&format!("t{image}"));
        test.store
            .put_manifest(repository, &manifest, &[tag])
            .await
            .unwrap();
    }
}

/// The state in which an object was left.
#[derive(PartialEq)]
enum Fate {
    Sound,
    Damaged,
    Missing,
}

/// Damages an object, or not.
fn damage(path: &std::path::Path, random: &mut fastrand::Rng) -> Fate {
    let mut content = fs::read(path).unwrap();
    match random.u8(..6) {
        0 => {
            fs::remove_file(path).unwrap();
            return Fate::Missing;
        }
        1 => fs::write(path, &content[..content.len() / 2]).unwrap(),
        2 => {
            let at = random.usize(..content.len());
            content[at] ^= 1 << random.u8(..8);
            fs::write(path, content).unwrap();
        }
        _ => return Fate::Sound,
    }
    Fate::Damaged
}

async fn collect_thrice(test: &TestStore) {
    for _ in 0..3 {
        test.store.collect(&CollectOptions::default()).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_in_use_stays_though_records_and_objects_disagree() {
    for seed in 0..4 {
        for test in engines(no_grace).await {
            let (store, a) = (&test.store, name("a"));
            let mut random = fastrand::Rng::with_seed(seed);
            push_all(&test, &a).await;
            let (mut damaged, mut missing) = (BTreeSet::new(), BTreeSet::new());
            let all: BTreeSet<Vec<u8>> = (0..IMAGES).flat_map(blobs).collect();
            files_become(&test, all.len()).await;
            for blob in &all {
                let found = store.peek_blob(&a, &digest(blob)).await.unwrap().unwrap();
                match damage(&object(test.directory.path(), key(&found)), &mut random) {
                    Fate::Sound => continue,
                    Fate::Damaged => damaged.insert(found.digest),
                    Fate::Missing => missing.insert(found.digest),
                };
            }
            // An object that no record names.
            let stray = object(test.directory.path(), &format!("00/{}", "0".repeat(32)));
            fs::create_dir_all(stray.parent().unwrap()).unwrap();
            fs::write(&stray, b"stray").unwrap();
            let before = files(&test);
            collect_thrice(&test).await;
            assert_eq!(files(&test), before, "{seed}: something in use went");
            let scrubbed = store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
            let named = |digests: &[Digest]| digests.iter().cloned().collect::<BTreeSet<_>>();
            assert_eq!(named(&scrubbed.damaged), damaged, "{seed}, {}", test.engine);
            assert_eq!(named(&scrubbed.missing), missing, "{seed}, {}", test.engine);
            assert_eq!(
                (scrubbed.unreadable, scrubbed.damaged_manifests),
                (vec![], vec![])
            );
            for blob in &all {
                let is_wrong = damaged.contains(&digest(blob)) || missing.contains(&digest(blob));
                let found = store.peek_blob(&a, &digest(blob)).await.unwrap();
                assert_eq!(found.is_none(), is_wrong, "{seed}: what is wrong is absent");
            }
            // Nor does anything go that is known to be damaged: what is left of it may be all that there is.
            collect_thrice(&test).await;
            assert_eq!(files(&test), before, "{seed}: something damaged went");
            let again = store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
            assert_eq!(named(&again.damaged), damaged, "{seed}, {}", test.engine);
            assert_eq!(named(&again.missing), missing, "{seed}, {}", test.engine);
            push_all(&test, &a).await;
            for blob in &all {
                let found = store.peek_blob(&a, &digest(blob)).await.unwrap().unwrap();
                assert!(contents(store, &found).await == *blob, "{seed}: wrong bytes");
            }
            fs::remove_file(&stray).unwrap();
            collect_all(&test).await;
            files_become(&test, 0).await;
        }
    }
}
