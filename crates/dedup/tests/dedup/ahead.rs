//! Blobs that are restored before somebody asks are files, and whatever becomes of these, nobody gets wrong bytes.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::StreamExt as _;
use xebec_store::Digest;

use crate::common::*;

/// A world in which so many blobs of `bytes` have been taken apart and nothing is in memory, and their digests.
async fn world_of(blobs: &[Vec<u8>]) -> (World, Vec<Digest>) {
    // Two of them fit.
    let world = World::with_files(8 << 20, |settings| {
        (settings.frames, settings.restored) = (1, 1);
    })
    .await;
    tokio::spawn(world.restorer.clone().prefetch(world.store.clone()));
    let mut digests = Vec::new();
    for bytes in blobs {
        digests.push(world.take_apart(bytes).await);
    }
    (world, digests)
}

fn file_of(world: &World, digest: &Digest) -> PathBuf {
    let name = digest.to_string().replace(':', "-") + ".blob";
    world.directory.path().join("restored").join(name)
}

async fn restore_ahead(world: &World, digest: &Digest) {
    world.restorer.expect(world.blob(digest).await.unwrap());
    for _ in 0..2000 {
        if file_of(world, digest).exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{digest} is not restored ahead");
}

/// A layer of about 3 MB.
fn large(seed: u64) -> Vec<u8> {
    tar(&[("usr/bin/program", &text(seed, 3 << 20))])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_goes_while_it_is_read_is_read_to_its_end() {
    let blobs = [large(1), large(2), large(3)];
    let (world, digests) = world_of(&blobs).await;
    restore_ahead(&world, &digests[0]).await;
    let blob = world.blob(&digests[0]).await.unwrap();
    let mut reading = world.store.read(&blob, 0..blob.size).await.unwrap();
    assert_eq!(world.restorer.figures().blobs.hit, 1);
    let mut all = reading.next().await.unwrap().unwrap().to_vec();
    assert!(all.len() < blobs[0].len());
    restore_ahead(&world, &digests[1]).await;
    assert!(world.read(&digests[1]).await == blobs[1]);
    restore_ahead(&world, &digests[2]).await;
    assert!(!file_of(&world, &digests[0]).exists());
    while let Some(piece) = reading.next().await {
        all.extend_from_slice(&piece.unwrap());
    }
    assert!(all == blobs[0]);
    assert!(world.read(&digests[0]).await == blobs[0]);
    let hits = world.restorer.figures().blobs;
    assert_eq!((hits.hit, hits.missed), (2, 1));
    // Nothing of the one that went is left.
    let files = std::fs::read_dir(world.directory.path().join("restored")).unwrap();
    assert_eq!(files.count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_of_a_file_are_an_error_once_and_the_file_goes() {
    let bytes = large(1);
    let (world, digests) = world_of(std::slice::from_ref(&bytes)).await;
    let (digest, size) = (&digests[0], bytes.len() as u64);
    let file = file_of(&world, digest);
    for (what, range) in [
        ("flipped", 0..size),
        ("cut", 0..size),
        ("cut", size - 5..size),
        ("gone", 0..size),
    ] {
        restore_ahead(&world, digest).await;
        assert!(world.read(digest).await == bytes);
        let mut stored = std::fs::read(&file).unwrap();
        match what {
            "flipped" => {
                stored[1_000_000] ^= 1;
                std::fs::write(&file, stored).unwrap();
            }
            "cut" => std::fs::write(&file, &stored[..2_000_000]).unwrap(),
            _ => std::fs::remove_file(&file).unwrap(),
        }
        let wanted = &bytes[range.start as usize..];
        // Some reads are compared with the digest.
        let mut reads = 0;
        while file.exists() && reads < 20 {
            reads += 1;
            match world.read_range(digest, range.clone()).await {
                Ok(read) => assert!(what == "flipped" || read == wanted, "{what}"),
                Err(error) => assert!(what != "gone", "{error}"),
            }
        }
        assert!(!file.exists(), "{what}");
        assert!(world.read_range(digest, range).await.unwrap() == wanted, "{what}");
        assert_eq!(world.restorer.figures().file_bytes, 0);
    }
}
