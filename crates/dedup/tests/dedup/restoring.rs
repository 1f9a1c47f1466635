//! Blobs come back exactly, whole and in part.

use crate::common::*;
use xebec_dedup::Cutting;

#[tokio::test(flavor = "multi_thread")]
async fn layers_come_back_by_whatever_they_were_compressed() {
    let world = World::new().await;
    let plain = layer(1, 30, 10);
    for bytes in [
        gzip(&plain),
        zstd(&plain),
        plain.clone(),
        b"not a tar at all, only some bytes".to_vec(),
    ] {
        let digest = world.take_apart(&bytes).await;
        assert_eq!(world.read(&digest).await, bytes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_several_layers_have_is_stored_once() {
    let world = World::new().await;
    let first = gzip(&layer(1, 60, 4));
    world.take_apart(&first).await;
    let after_first = world.stored();
    // 56 of 60 files are the same; the recipe and four files are new.
    for own in 2..5 {
        let next = gzip(&layer(own, 60, 4));
        let digest = world.take_apart(&next).await;
        assert_eq!(world.read(&digest).await, next);
    }
    let grown = world.stored() - after_first;
    assert!(grown < 3 * after_first / 5, "{after_first} and {grown} more");
}

#[tokio::test(flavor = "multi_thread")]
async fn any_range_is_the_same_as_that_of_the_intact_blob() {
    let world = World::new().await;
    // Two parts or more: with compression, the first has 4 MiB of plain bytes, since no encoder makes it.
    let plain = layer(7, 230, 230);
    assert!(plain.len() > 5_000_000, "{}", plain.len());
    for bytes in [gzip(&plain), plain] {
        let digest = world.take_apart(&bytes).await;
        let size = bytes.len() as u64;
        let mut numbers = xebec_testkit::corpus::Numbers(5);
        let mut ranges = vec![0..1, size - 1..size, size / 2..size / 2, 0..size, 3..size - 3];
        for _ in 0..12 {
            let start = numbers.below(bytes.len()) as u64;
            let length = numbers.below(1 << 20) as u64;
            ranges.push(start..size.min(start + length));
        }
        for range in ranges {
            let found = world.read_range(&digest, range.clone()).await.unwrap();
            assert_eq!(
                found,
                bytes[range.start as usize..range.end as usize],
                "{range:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_files_that_differ_a_little_share_what_they_have_in_common() {
    let mut first = text(1, 2 << 20);
    let one = gzip(&tar(&[("a.bin", &first)]));
    first.splice(1_000_000..1_000_000, *b"a few bytes more");
    let other = gzip(&tar(&[("a.bin", &first)]));
    let mut grown = Vec::new();
    for cutting in [Cutting::Files, Cutting::Contents] {
        let world = World::with(|settings| settings.cutting = cutting).await;
        world.take_apart(&one).await;
        let before = world.stored();
        let digest = world.take_apart(&other).await;
        assert_eq!(world.read(&digest).await, other);
        grown.push((world.stored() - before, before));
    }
    let [(files, of_files), (contents, of_contents)] = grown[..] else {
        panic!()
    };
    assert!(files > of_files / 2, "{files} of {of_files}");
    assert!(contents < of_contents / 5, "{contents} of {of_contents}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_read_one_blob_have_it_restored_once() {
    let world = World::new().await;
    let plain = layer(3, 230, 230);
    let bytes = gzip(&plain);
    let digest = world.take_apart(&bytes).await;
    let readers = (0..16).map(|_| world.read(&digest));
    for read in futures_util::future::join_all(readers).await {
        assert!(read == bytes);
    }
    let units = world.restorer.figures().units;
    assert!(units.missed <= 4 + plain.len() as u64 / (1 << 20), "{units:?}");
    // What is made ahead of a reader is asked for, too.
    assert!(units.hit + units.waited >= 15 * units.missed, "{units:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_give_up_keep_nothing() {
    let world = World::with(|settings| {
        settings.restored = 1 << 18;
        settings.working = 64 << 20;
    })
    .await;
    let bytes = gzip(&layer(3, 80, 80));
    let digest = world.take_apart(&bytes).await;
    let blob = world.blob(&digest).await.unwrap();
    for _ in 0..20 {
        // It is dropped while its first pieces are made.
        drop(world.store.read(&blob, 0..blob.size).await.unwrap());
        let mut stream = world.store.read(&blob, 0..blob.size).await.unwrap();
        let first = futures_util::StreamExt::next(&mut stream);
        let _ = tokio::time::timeout(std::time::Duration::from_millis(1), first).await;
    }
    assert!(world.read(&digest).await == bytes);
}
