//! A scrub restores what is not intact: right bytes of packs and recipes are not enough.

use std::io::Write as _;

use bytes::Bytes;
use futures_util::StreamExt as _;
use xebec_dedup::Done;
use xebec_recipe::{Limits, Part, Piece, Recipe, RecipeBuilder};
use xebec_store::{Algorithm, Digest, NewRecipe, Recording, ScrubOptions, Scrubbed, Store, StoreConfig};

use crate::common::*;

/// The same plain bytes, written at another time: the streams differ in one byte of their heads.
fn gzip_at(time: u32, plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::GzBuilder::new()
        .mtime(time)
        .write(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

async fn recipe_of(world: &World, digest: &Digest) -> Recipe {
    let record = world.store.recipe(digest).await.unwrap().unwrap();
    let mut stream = world
        .store
        .read_object(&record.object, 0..record.size)
        .await
        .unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    Recipe::from_bytes(&bytes, &Limits::default()).unwrap()
}

/// A recipe of one blob with the parts and the description of another one's.
fn as_of(digest: &Digest, other: &Recipe) -> Vec<u8> {
    let mut builder = RecipeBuilder::new(Limits::default());
    for part in other.parts() {
        match part {
            Part::Inline(bytes) => drop(builder.add(Piece::Inline(bytes)).unwrap()),
            Part::Zeros(length) => drop(builder.add(Piece::Zeros(length)).unwrap()),
            Part::Chunk { id, length } => builder.add_chunk(id, length).unwrap(),
        }
    }
    let blob = xebec_recipe::Blob {
        digest: digest.to_string(),
        size: other.blob().size,
    };
    builder
        .finish(blob, other.description().to_vec())
        .unwrap()
        .to_bytes()
}

async fn scrub(store: &Store) -> Scrubbed {
    store.scrub(&ScrubOptions::default(), |_| {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrub_finds_a_recipe_that_makes_other_bytes() {
    let world = World::with(|settings| settings.keep_intact = true).await;
    let plain = tar(&[("a.txt", &text(1, 9000)), ("b.txt", &text(2, 9000))]);
    let (one, other) = (gzip_at(1, &plain), gzip_at(2, &plain));
    let (wrong, right) = (world.push(&one).await, world.push(&other).await);
    world.work().await;
    // As a later version would make it, which understands the description otherwise: of the right chunks, with a right checksum.
    let bytes = as_of(&wrong, &recipe_of(&world, &right).await);
    let new = NewRecipe {
        blob: world.blob(&wrong).await.unwrap(),
        checksum: Digest::of(Algorithm::Sha256, &bytes),
        recipe: world.store.put_draft(vec![Bytes::from(bytes)]).await.unwrap(),
        plain: plain.len() as u64,
        packs: Vec::new(),
        form: None,
        uses: world
            .store
            .recipe(&right)
            .await
            .unwrap()
            .unwrap()
            .packs
            .iter()
            .map(|pack| pack.key)
            .collect(),
    };
    assert_eq!(
        world.store.record_recipe(&new).await.unwrap(),
        Recording::Recorded(Vec::new())
    );
    for digest in [&wrong, &right] {
        assert!(world.store.drop_intact(digest).await.unwrap());
    }
    assert_eq!(world.read(&wrong).await, other, "the recipe can be carried out");
    for _ in 0..2 {
        let found = scrub(&world.store).await;
        assert_eq!((&found.damaged, found.damaged_pieces), (&vec![wrong.clone()], 0));
        assert_eq!((found.restored, found.not_restored), (1, 0));
        assert_eq!(world.blob(&wrong).await, None);
        assert_eq!(world.read(&right).await, other);
    }
    // A push mends it.
    world.push(&one).await;
    assert_eq!(world.work().await, [(wrong.clone(), Done::Recorded)]);
    assert!(world.store.drop_intact(&wrong).await.unwrap());
    assert_eq!(world.read(&wrong).await, one);
    let found = scrub(&world.store).await;
    assert_eq!((found.damaged.len(), found.restored), (0, 2));
    // A program that has no restorer says so.
    let bare = Store::open(&StoreConfig::new(world.directory.path()))
        .await
        .unwrap();
    let found = scrub(&bare).await;
    assert_eq!(
        (found.damaged.len(), found.restored, found.not_restored),
        (0, 0, 2)
    );
}
