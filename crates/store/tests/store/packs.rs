//! Packs: their chunks, and packs in the place of others.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::*;
use crate::toy::*;
use xebec_store::*;

async fn collect(test: &TestStore) -> Collected {
    tokio::time::sleep(Duration::from_millis(3)).await;
    test.store.collect(&CollectOptions::default()).await.unwrap()
}

fn numbered(number: u32) -> ChunkDigest {
    chunk_digest(&number.to_le_bytes())
}

/// A pack that says of itself that it has so many chunks, and a recipe that needs it.
async fn record(store: &Store, blob: &Blob, chunks: Vec<ChunkDigest>) -> Recording {
    let pack = NewPack {
        draft: store.put_draft(vec!["pack".into()]).await.unwrap(),
        checksum: digest(b"pack"),
        plain: 4,
        chunks,
    };
    let new = NewRecipe {
        blob: blob.clone(),
        recipe: store.put_draft(vec!["recipe".into()]).await.unwrap(),
        checksum: digest(b"recipe"),
        plain: blob.size,
        packs: vec![pack],
        uses: Vec::new(),
        form: None,
    };
    store.record_recipe(&new).await.unwrap()
}

#[tokio::test]
async fn all_chunks_of_a_large_pack_are_found_and_go_with_it() {
    const CHUNKS: u32 = 5000;
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        let blob = push(store, &a, b"many").await.unwrap();
        let mut chunks: Vec<ChunkDigest> = (0..CHUNKS).map(numbered).collect();
        chunks.push(numbered(0));
        let Recording::Recorded(keys) = record(store, &blob, chunks.clone()).await else {
            panic!("not recorded")
        };
        let here = store.chunks_here(&chunks).await.unwrap();
        assert!(here.iter().all(|pack| *pack == Some(keys[0])), "{}", test.engine);
        let asked = [numbered(CHUNKS), numbered(7)];
        assert_eq!(store.chunks_here(&asked).await.unwrap(), [None, Some(keys[0])]);
        assert_eq!(store.chunks_here(&[]).await.unwrap(), []);
        // A chunk stays where it is while that pack is sound, and is found in another one after that.
        let other = push(store, &a, b"other").await.unwrap();
        let Recording::Recorded(others) = record(store, &other, vec![numbered(7), numbered(CHUNKS)]).await
        else {
            panic!("not recorded")
        };
        assert_eq!(
            store.chunks_here(&asked).await.unwrap(),
            [Some(others[0]), Some(keys[0])]
        );
        assert!(store.note_pack_damaged(keys[0]).await.unwrap());
        assert_eq!(store.chunks_here(&asked).await.unwrap(), [Some(others[0]), None]);
        assert!(
            store
                .chunks_here(&chunks)
                .await
                .unwrap()
                .iter()
                .all(Option::is_none)
        );
        record(store, &other, vec![numbered(7)]).await;
        assert!(store.chunks_here(&asked).await.unwrap()[1].is_some());
        for bytes in [&b"many"[..], b"other"] {
            store.delete_blob(&a, &digest(bytes)).await.unwrap();
        }
        for _ in 0..3 {
            collect(&test).await;
        }
        assert_nothing_forgotten(test.directory.path());
        files_become(&test, 0).await;
    }
}

/// A pack with these chunks, as the toy writes it.
async fn pack(store: &Store, chunks: &[&[u8]]) -> NewPack {
    let bytes = pack_of(chunks);
    NewPack {
        checksum: digest(&bytes),
        draft: store.put_draft(vec![bytes.into()]).await.unwrap(),
        plain: chunks.iter().map(|chunk| chunk.len() as u64).sum(),
        chunks: chunks.iter().map(|chunk| chunk_digest(chunk)).collect(),
    }
}

/// These blobs, with the objects of their recipes.
async fn users(store: &Store, blobs: &[&[u8]]) -> BTreeMap<Digest, String> {
    let mut users = BTreeMap::new();
    for blob in blobs {
        let recipe = store.recipe(&digest(blob)).await.unwrap().unwrap();
        users.insert(digest(blob), recipe.object);
    }
    users
}

fn keys(packs: &[PackRecord]) -> Vec<PackKey> {
    packs.iter().map(|pack| pack.key).collect()
}

// One function, since each step needs what the one before it left.
#[tokio::test]
async fn packs_are_replaced_if_the_same_recipes_need_them() {
    for test in engines(no_grace).await {
        let (store, a) = (with_toy(&test.store), name("a"));
        let (one, two, three) = (of_chunks(&[1, 2]), of_chunks(&[2, 3]), of_chunks(&[2, 9]));
        for bytes in [&one, &two] {
            push_apart(store, &a, bytes).await;
        }
        let old = keys(&store.packs(9, None).await.unwrap().items);
        assert_eq!(old.len(), 2);
        let pieces: [&[u8]; 5] = [&[1; CHUNK], &[2; CHUNK], &[3; CHUNK], &[1, 2], &[2, 3]];
        let (first, second) = pieces.split_at(2);
        let replacement = PackReplacement {
            old: old.clone(),
            new: vec![pack(store, first).await, pack(store, second).await],
            users: users(store, &[&one, &two]).await,
        };
        let layers = [&one, &two, &three].map(|bytes| layer(bytes)).to_vec();
        // A recipe comes that needs one of them.
        push_apart(store, &a, &three).await;
        assert!(
            !store.replace_packs(&replacement).await.unwrap(),
            "{}",
            test.engine
        );
        assert_eq!(
            store.packs(9, None).await.unwrap().items.len(),
            3,
            "nothing has changed"
        );
        let mut replacement = PackReplacement {
            users: users(store, &[&one, &two, &three]).await,
            ..replacement
        };
        // Or one of them has another recipe by now, which may need other chunks.
        let recipe = replacement
            .users
            .insert(digest(&two), "another".to_owned())
            .unwrap();
        assert!(!store.replace_packs(&replacement).await.unwrap());
        replacement.users.insert(digest(&two), recipe);
        store
            .put_manifest(&a, &manifest("all", layers), &[])
            .await
            .unwrap();
        let before = store.recipe(&digest(&one)).await.unwrap().unwrap();
        assert!(store.replace_packs(&replacement).await.unwrap());
        assert!(
            !store.replace_packs(&replacement).await.unwrap(),
            "the old ones are gone"
        );
        let after = store.recipe(&digest(&one)).await.unwrap().unwrap();
        assert_eq!(after.object, before.object);
        let new = keys(&after.packs);
        assert!(new.len() == 2 && new.iter().all(|key| !old.contains(key)));
        for pack in &replacement.new {
            let here = store.chunks_here(&pack.chunks).await.unwrap();
            let its = here[0].filter(|key| new.contains(key));
            assert!(its.is_some() && here.iter().all(|key| *key == its), "{here:?}");
        }
        // The second needed both old ones; the third has a pack of its own, too.
        let recipe = store.recipe(&digest(&two)).await.unwrap().unwrap();
        assert_eq!(keys(&recipe.packs), new);
        let recipe = store.recipe(&digest(&three)).await.unwrap().unwrap();
        assert_eq!(recipe.packs.len(), 3);
        assert_nothing_forgotten(test.directory.path());
        let collected = collect(&test).await;
        assert_eq!(collected.packs, 2);
        let error = store
            .read_object(&before.packs[0].object, 0..1)
            .await
            .err()
            .unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        for bytes in [&one, &two, &three] {
            let blob = store.peek_blob(&a, &digest(bytes)).await.unwrap().unwrap();
            assert_eq!(contents(store, &blob).await, *bytes);
            assert!(store.has_object(&blob).await);
        }
        for key in new {
            assert_eq!(store.pack_users(key, 9, None).await.unwrap().items.len(), 3);
        }
    }
}
