//! Stored bytes that are wrong are found, and never sent.

use crate::common::*;
use xebec_dedup::Done;

/// Flips a bit of an object. Reading gives the right bytes or an error; a scrub finds what reading did not come across.
#[tokio::test(flavor = "multi_thread")]
async fn no_flipped_bit_of_a_pack_or_a_recipe_is_ever_sent() {
    let bytes = layer(1, 8, 8);
    for (recipe, place) in [
        (false, 0),
        (false, 50),
        (false, 100),
        (true, 0),
        (true, 50),
        (true, 100),
    ] {
        let case = format!("recipe: {recipe}, {place} %");
        let world = World::new().await;
        let digest = world.take_apart(&bytes).await;
        let record = world.store.recipe(&digest).await.unwrap().unwrap();
        let object = if recipe {
            record.object
        } else {
            record.packs[0].object.clone()
        };
        let path = world.directory.path().join("objects").join(object);
        let mut stored = std::fs::read(&path).unwrap();
        let at = (stored.len() - 1) * place / 100;
        stored[at] ^= 4;
        std::fs::write(&path, &stored).unwrap();
        match world.read_range(&digest, 0..bytes.len() as u64).await {
            Ok(read) => assert!(read == bytes && place == 0, "{case}"),
            Err(_) => assert_eq!(world.blob(&digest).await, None, "{case}"),
        }
        world.store.scrub(&Default::default(), |_| {}).await.unwrap();
        // From now on it is absent, and a push mends it.
        assert_eq!(world.blob(&digest).await, None, "{case}");
        world.push(&bytes).await;
        assert!(world.read(&digest).await == bytes, "{case}");
        assert_eq!(world.work().await, [(digest.clone(), Done::Recorded)], "{case}");
        assert!(world.read(&digest).await == bytes, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_that_is_gone_makes_its_blobs_absent() {
    let world = World::new().await;
    let (one, other) = (layer(1, 16, 4), layer(2, 16, 4));
    let first = world.take_apart(&one).await;
    let (path, _) = world
        .objects()
        .into_iter()
        .max_by_key(|(_, bytes)| bytes.len())
        .unwrap();
    let second = world.take_apart(&other).await;
    std::fs::remove_file(path).unwrap();
    assert!(world.read_range(&first, 0..one.len() as u64).await.is_err());
    assert_eq!(
        (world.blob(&first).await, world.blob(&second).await),
        (None, None)
    );
    for bytes in [&one, &other] {
        world.push(bytes).await;
    }
    world.work().await;
    assert_eq!(world.read(&first).await, one);
    assert_eq!(world.read(&second).await, other);
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_beside_an_intact_blob_costs_nothing() {
    let world = World::with(|settings| settings.keep_intact = true).await;
    let bytes = layer(1, 16, 4);
    let digest = world.push(&bytes).await;
    world.work().await;
    let pack = world.store.recipe(&digest).await.unwrap().unwrap().packs[0].key;
    world.store.note_pack_damaged(pack).await.unwrap();
    assert_eq!(world.read(&digest).await, bytes);
    // It is taken apart anew, and nothing of the damaged pack is used.
    assert_eq!(world.work().await, [(digest.clone(), Done::Recorded)]);
    let packs = world.store.recipe(&digest).await.unwrap().unwrap().packs;
    assert!(packs.iter().all(|other| other.key != pack));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_is_tried_until_no_damaged_pack_has_files_of_it() {
    let world = World::new().await;
    let files: Vec<(String, Vec<u8>)> = (0..8)
        .map(|number| (format!("usr/{number}.txt"), text(number, 9000)))
        .collect();
    let files: Vec<(&str, &[u8])> = files
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_slice()))
        .collect();
    for file in &files {
        let digest = world.take_apart(&tar(&[*file])).await;
        let pack = world
            .store
            .recipe(&digest)
            .await
            .unwrap()
            .unwrap()
            .packs
            .remove(0);
        let path = world.directory.path().join("objects").join(&pack.object);
        let mut stored = std::fs::read(&path).unwrap();
        stored[40] ^= 1;
        std::fs::write(&path, stored).unwrap();
    }
    let bytes = tar(&files);
    let digest = world.push(&bytes).await;
    // Each try finds one of the packs damaged, and the next one uses it no more.
    let mut tries = 0;
    loop {
        world.deduplicator.release().await.unwrap();
        match world.deduplicator.work_once().await.unwrap() {
            Some((blob, Done::Later(_))) if blob.digest == digest => tries += 1,
            Some((blob, Done::Recorded)) if blob.digest == digest => break,
            other => panic!("{other:?} after {tries} tries"),
        }
    }
    assert_eq!(tries, files.len());
    assert!(world.read(&digest).await == bytes);
}
