//! Blobs that are kept as recipes: read, pushed again, lost, mended, collected.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::*;
use crate::toy::*;
use xebec_store::*;

async fn collect(test: &TestStore) -> Collected {
    tokio::time::sleep(Duration::from_millis(3)).await;
    test.store.collect(&CollectOptions::default()).await.unwrap()
}

/// A manifest names these blobs.
async fn keep(store: &Store, repository: &RepositoryName, blobs: &[&[u8]]) {
    let layers = blobs.iter().map(|bytes| layer(bytes)).collect();
    store
        .put_manifest(repository, &manifest("kept", layers), &[])
        .await
        .unwrap();
}

/// The file of a blob's only pack.
async fn pack_file(test: &TestStore, bytes: &[u8]) -> PathBuf {
    let recipe = test.store.recipe(&digest(bytes)).await.unwrap().unwrap();
    let [pack] = recipe.packs.as_slice() else {
        panic!("{recipe:?}")
    };
    object(test.directory.path(), &pack.object)
}

async fn recipe_file(test: &TestStore, bytes: &[u8]) -> PathBuf {
    let recipe = test.store.recipe(&digest(bytes)).await.unwrap().unwrap();
    object(test.directory.path(), &recipe.object)
}

fn flip(path: &std::path::Path) {
    let mut content = std::fs::read(path).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(path, content).unwrap();
}

#[tokio::test]
async fn a_blob_that_is_not_intact_is_read_by_its_recipe() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        let bytes = of_chunks(&[1, 2, 3]);
        let intact = push(store, &a, &bytes).await.unwrap();
        assert!(
            !store.drop_intact(&intact.digest).await.unwrap(),
            "it has no recipe"
        );
        take_all(store, false).await;
        assert!(
            store
                .any_blob(&intact.digest)
                .await
                .unwrap()
                .unwrap()
                .object
                .is_some()
        );
        assert!(
            store.drop_intact(&intact.digest).await.unwrap(),
            "{}",
            test.engine
        );
        assert!(!store.drop_intact(&intact.digest).await.unwrap());
        let blob = store.blob(&a, &intact.digest).await.unwrap().unwrap();
        assert_eq!((blob.object.clone(), blob.size), (None, intact.size));
        files_become(&test, 2).await;
        let refused = store.read(&blob, 0..blob.size).await.err().unwrap();
        assert!(matches!(refused, StoreError::NoRestorer(_)), "{refused}");
        with_toy(store);
        assert_eq!(contents(store, &blob).await, bytes);
        assert_eq!(range(store, &blob, 60..130).await, bytes[60..130]);
        assert_eq!(range(store, &blob, 190..999).await, bytes[190..]);
        // A reader that has looked it up before reads it, too.
        assert_eq!(contents(store, &intact).await, bytes);
        assert!(store.has_object(&blob).await && store.is_whole(&blob).await.unwrap());
        let address = store.signed_address(&blob, Duration::from_secs(1)).await;
        assert_eq!(address.unwrap(), None);
        store.objects_answer().await.unwrap();
        assert_nothing_forgotten(test.directory.path());
    }
}

#[tokio::test]
async fn blobs_share_chunks_and_a_pack_stays_while_one_of_them_does() {
    for test in engines(no_grace).await {
        let (store, a) = (with_toy(&test.store), name("a"));
        let (one, two) = (of_chunks(&[1, 2]), of_chunks(&[2, 3]));
        push_apart(store, &a, &one).await;
        let blob = push_apart(store, &a, &two).await;
        keep(store, &a, &[&two]).await;
        files_become(&test, 4).await;
        let packs = store.packs(9, None).await.unwrap().items;
        let first = packs.iter().find(|pack| pack.plain == 2 * 64 + 2).unwrap().key;
        let users = store.pack_users(first, 1, None).await.unwrap();
        assert!(users.next, "{users:?}");
        assert_eq!(store.pack_users(first, 9, None).await.unwrap().items.len(), 2);
        store.delete_blob(&a, &digest(&one)).await.unwrap();
        for _ in 0..3 {
            collect(&test).await;
            assert_nothing_forgotten(test.directory.path());
        }
        files_become(&test, 3).await;
        assert_eq!(contents(store, &blob).await, two, "{}", test.engine);
        store.delete_manifest(&a, &digest(b"kept")).await.unwrap();
        let options = CollectOptions { dry_run: true };
        let mut dry = store.collect(&options).await.unwrap();
        // Each step takes what is older than the moment, which is counted in milliseconds.
        for _ in 0..20 {
            if dry.deleted > 0 {
                break;
            }
            collect(&test).await;
            // A blob that was condemned in this very millisecond is not counted, and the next collection takes it.
            tokio::time::sleep(Duration::from_millis(3)).await;
            dry = store.collect(&options).await.unwrap();
        }
        assert_eq!(
            (dry.packs, dry.deleted),
            (0, 1),
            "its packs are needed until it goes: {dry:?}"
        );
        let collected = collect(&test).await;
        let sizes = 2 * 64 + 2 + 3 * 2 + 64 + 2 + 2 * 2;
        assert_eq!((collected.packs, collected.pack_bytes), (2, sizes));
        files_become(&test, 0).await;
        assert_eq!(store.space().await.unwrap(), Space::default());
    }
}

#[tokio::test]
async fn a_recipe_is_recorded_only_while_all_is_here_that_it_needs() {
    for test in engines(|config| {
        no_grace(config);
        config.upload_timeout = Duration::from_millis(300);
    })
    .await
    {
        let (store, a) = (with_toy(&test.store), name("a"));
        let (one, two) = (of_chunks(&[1, 2]), of_chunks(&[2, 3]));
        push_apart(store, &a, &one).await;
        let blob = push(store, &a, &two).await.unwrap();
        keep(store, &a, &[&two]).await;
        let new = written(store, &blob).await.unwrap();
        // Another one in the meantime.
        let mut other = blob.clone();
        other.object = Some("00/another".to_owned());
        let of_other = NewRecipe {
            blob: other,
            ..new.clone()
        };
        assert_eq!(store.record_recipe(&of_other).await.unwrap(), Recording::BlobGone);
        // The pack that it shares goes.
        store.delete_blob(&a, &digest(&one)).await.unwrap();
        for _ in 0..3 {
            collect(&test).await;
        }
        assert_eq!(
            store.record_recipe(&new).await.unwrap(),
            Recording::PacksGone,
            "{}",
            test.engine
        );
        assert_eq!(store.recipe(&blob.digest).await.unwrap(), None);
        // Nothing has changed: with a pack for all of its chunks, the same draft is of use.
        let mut whole = written(store, &blob).await.unwrap();
        assert_eq!((whole.uses.len(), whole.packs.len()), (0, 1));
        store.drop_draft(&whole.recipe).await.unwrap();
        whole.recipe = new.recipe.clone();
        tokio::time::sleep(Duration::from_millis(350)).await;
        collect(&test).await;
        assert_eq!(store.record_recipe(&whole).await.unwrap(), Recording::DraftsGone);
        let whole = written(store, &blob).await.unwrap();
        let recorded = store.record_recipe(&whole).await.unwrap();
        assert!(matches!(recorded, Recording::Recorded(_)), "{recorded:?}");
        // A damaged pack is as good as gone.
        let [pack] = &store.recipe(&blob.digest).await.unwrap().unwrap().packs[..] else {
            panic!("one pack")
        };
        let third = push(store, &a, &of_chunks(&[3, 4])).await.unwrap();
        let uses = written(store, &third).await.unwrap();
        assert_eq!(uses.uses, [pack.key]);
        store.note_pack_damaged(pack.key).await.unwrap();
        assert_eq!(store.record_recipe(&uses).await.unwrap(), Recording::PacksGone);
        assert!(
            !store.drop_intact(&blob.digest).await.unwrap(),
            "its recipe is damaged"
        );
        assert_nothing_forgotten(test.directory.path());
    }
}

#[tokio::test]
async fn a_push_of_a_blob_that_is_kept_as_a_recipe_mends_what_is_lost() {
    for test in engines(no_grace).await {
        let (store, a) = (with_toy(&test.store), name("a"));
        let bytes = of_chunks(&[1, 2, 3]);
        let blob = push_apart(store, &a, &bytes).await;
        keep(store, &a, &[&bytes]).await;
        files_become(&test, 2).await;
        // All is sound: the new object is garbage.
        let again = push(store, &a, &bytes).await.unwrap();
        assert_eq!(again, blob, "{}", test.engine);
        files_become(&test, 2).await;
        for is_pack in [true, false] {
            let file = match is_pack {
                true => pack_file(&test, &bytes).await,
                false => recipe_file(&test, &bytes).await,
            };
            std::fs::remove_file(file).unwrap();
            assert!(!store.has_object(&blob).await);
            let lost = store.read(&blob, 0..blob.size).await.err().unwrap();
            assert!(matches!(lost, StoreError::Lost(_)), "{lost}");
            assert_eq!(store.blob(&a, &blob.digest).await.unwrap(), None, "it is shown");
            let mended = push(store, &a, &bytes).await.unwrap();
            assert!(mended.object.is_some());
            assert_eq!(store.recipe(&blob.digest).await.unwrap(), None);
            assert_eq!(contents(store, &mended).await, bytes);
            assert_eq!(store.space().await.unwrap().waiting, 1);
            take_all(store, true).await;
            for _ in 0..2 {
                collect(&test).await;
            }
            files_become(&test, 2).await;
            assert_eq!(contents(store, &blob).await, bytes);
            assert_nothing_forgotten(test.directory.path());
        }
        // A push that nobody has told of the loss looks itself.
        std::fs::remove_file(pack_file(&test, &bytes).await).unwrap();
        let mended = push(store, &a, &bytes).await.unwrap();
        assert_eq!(contents(store, &mended).await, bytes);
    }
}

#[tokio::test]
async fn a_blob_whose_pack_is_lost_is_not_whole_and_counts_as_absent() {
    for test in engines(no_grace).await {
        let (store, a) = (with_toy(&test.store), name("a"));
        let bytes = of_chunks(&[1, 2, 3]);
        let blob = push_apart(store, &a, &bytes).await;
        std::fs::remove_file(pack_file(&test, &bytes).await).unwrap();
        assert!(!store.is_whole(&blob).await.unwrap(), "{}", test.engine);
        assert_eq!(store.blob(&a, &blob.digest).await.unwrap(), None);
        assert_eq!(
            store.chunks_here(&[chunk_digest(&[1; CHUNK])]).await.unwrap(),
            [None]
        );
    }
}

#[tokio::test]
async fn a_scrub_finds_wrong_bytes_in_packs_and_recipes() {
    for test in engines(no_grace).await {
        let (store, a) = (with_toy(&test.store), name("a"));
        let (one, two, sound) = (of_chunks(&[1]), of_chunks(&[2, 3]), of_chunks(&[4, 5, 6]));
        for bytes in [&one, &two, &sound] {
            push_apart(store, &a, bytes).await;
        }
        // It is taken apart, and intact.
        let intact = of_chunks(&[1, 1]);
        push(store, &a, &intact).await.unwrap();
        take_all(store, false).await;
        let clean = store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
        let objects = 4 + 4;
        assert_eq!(
            (clean.blobs, clean.pieces, clean.damaged_pieces),
            (4, objects, 0),
            "{}",
            test.engine
        );
        let later = ScrubOptions {
            not_within: Duration::from_secs(3600),
            ..ScrubOptions::default()
        };
        let none = store.scrub(&later, |_| ()).await.unwrap();
        assert_eq!((none.blobs, none.pieces), (0, 0));
        flip(&pack_file(&test, &one).await);
        flip(&recipe_file(&test, &two).await);
        let found = store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
        let mut damaged = vec![digest(&one), digest(&two)];
        damaged.sort();
        assert_eq!((found.damaged, found.damaged_pieces), (damaged, 2));
        for bytes in [&one, &two] {
            assert_eq!(store.peek_blob(&a, &digest(bytes)).await.unwrap(), None);
        }
        let blob = store.peek_blob(&a, &digest(&sound)).await.unwrap().unwrap();
        assert_eq!(contents(store, &blob).await, sound);
        assert_eq!(
            store.space().await.unwrap().waiting,
            1,
            "the one that is intact waits"
        );
        // The bytes are found again: then so are the blobs.
        flip(&pack_file(&test, &one).await);
        flip(&recipe_file(&test, &two).await);
        let found = store.scrub(&later, |_| ()).await.unwrap();
        assert_eq!((found.damaged, found.damaged_pieces), (vec![], 0));
        for bytes in [&one, &two, &intact] {
            let blob = store.peek_blob(&a, &digest(bytes)).await.unwrap().unwrap();
            assert_eq!(contents(store, &blob).await, *bytes);
        }
        take_all(store, true).await;
        assert_nothing_forgotten(test.directory.path());
        for bytes in [&one, &two, &sound, &intact] {
            store.delete_blob(&a, &digest(bytes)).await.unwrap();
        }
        for _ in 0..3 {
            collect(&test).await;
        }
        files_become(&test, 0).await;
    }
}

#[tokio::test]
async fn an_object_that_clients_may_be_reading_elsewhere_stays_for_a_while() {
    for (addresses_last, lingers) in [(Duration::ZERO, 0), (Duration::from_secs(3600), 1)] {
        let with_addresses = |config: &mut StoreConfig| {
            no_grace(config);
            config.addresses_last = addresses_last;
        };
        for test in engines(with_addresses).await {
            push_apart(&test.store, &name("a"), &of_chunks(&[1, 2])).await;
            for _ in 0..2 {
                files_become(&test, 2 + lingers).await;
                let dry = test.store.collect(&CollectOptions { dry_run: true }).await;
                // One that does not linger may be about to be forgotten.
                assert!(dry.unwrap().objects == 0 || lingers == 0, "{}", test.engine);
                collect(&test).await;
            }
        }
    }
}

/// A program that knows the fourth schema takes a blob without its recipe.
#[tokio::test]
async fn a_recipe_that_an_older_program_has_left_goes_after_a_scrub() {
    for test in engines(no_grace).await {
        let (store, a) = (&test.store, name("a"));
        push_apart(store, &a, &of_chunks(&[1, 2])).await;
        files_become(&test, 2).await;
        let root = test.directory.path().to_owned();
        let taking = std::thread::spawn(move || {
            crate::upgrade::raw::Raw::open(&root).run("DELETE FROM repository_blobs; DELETE FROM blobs");
        });
        taking.join().unwrap();
        store.scrub(&ScrubOptions::default(), |_| ()).await.unwrap();
        assert_nothing_forgotten(test.directory.path());
        collect(&test).await;
        files_become(&test, 0).await;
    }
}

/// Whether backups are supported here: of embedded records and files.
fn has_backups() -> bool {
    std::env::var_os(POSTGRES).is_none() && std::env::var_os(S3).is_none()
}

#[tokio::test]
async fn a_backup_has_packs_and_recipes_and_is_compared_with_them() {
    if !has_backups() {
        return;
    }
    for test in engines(no_grace).await {
        let (store, a) = (with_toy(&test.store), name("a"));
        let (one, two) = (of_chunks(&[1, 2]), of_chunks(&[2, 3]));
        push_apart(store, &a, &one).await;
        push_apart(store, &a, &two).await;
        push(store, &a, b"intact").await.unwrap();
        store.put_draft(vec!["no part of it".into()]).await.unwrap();
        let at = |name: &str| test.directory.path().join(name);
        let backed_up = store.backup(&at("backup"), |_| ()).await.unwrap();
        assert_eq!((backed_up.blobs, backed_up.pieces, backed_up.missing), (1, 4, 0));
        assert_eq!(store.backup(&at("backup"), |_| ()).await.unwrap().kept, 5);
        let restored = Store::restore(&at("restored"), &at("backup"), |_| ())
            .await
            .unwrap();
        assert_eq!((restored.blobs, restored.pieces), (3, 4));
        let again = Store::open(&StoreConfig::new(at("restored"))).await.unwrap();
        with_toy(&again);
        for bytes in [&one, &two] {
            let blob = again.peek_blob(&a, &digest(bytes)).await.unwrap().unwrap();
            assert_eq!(
                (contents(&again, &blob).await, blob.object),
                (bytes.clone(), None)
            );
        }
        // The chunk that only the second has is lost.
        let pack = store.recipe(&digest(&two)).await.unwrap().unwrap().packs;
        let pack = pack.iter().find(|pack| pack.chunks == 2).unwrap();
        let file = at("backup").join("objects").join(&pack.object);
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, b"wrong").unwrap();
        let refused = Store::restore(&at("none"), &at("backup"), |_| ())
            .await
            .unwrap_err();
        let StoreError::BadBackup { damaged } = refused else {
            panic!("{refused}")
        };
        assert_eq!(damaged, [digest(&two)]);
        let (rest, left_out) = Store::restore_without_damaged(&at("rest"), &at("backup"), |_| ())
            .await
            .unwrap();
        assert_eq!(
            (rest.blobs, rest.pieces, left_out[0].damage.clone()),
            (2, 3, Damage::Recipe)
        );
        let rest = Store::open(&StoreConfig::new(at("rest"))).await.unwrap();
        with_toy(&rest);
        assert_eq!(rest.peek_blob(&a, &digest(&two)).await.unwrap(), None);
        let blob = rest.peek_blob(&a, &digest(&one)).await.unwrap().unwrap();
        assert_eq!(contents(&rest, &blob).await, one);
        let mended = push(&rest, &a, &two).await.unwrap();
        assert_eq!(contents(&rest, &mended).await, two);
    }
}

/// A recipe may make other bytes than the blob's although its own are right. No restore can tell, so its mark stays.
#[tokio::test]
async fn a_restore_takes_a_mark_away_only_where_it_has_read_what_was_marked() {
    if !has_backups() {
        return;
    }
    for test in engines(no_grace).await {
        let (store, a) = (with_toy(&test.store), name("a"));
        let (inexact, found_again) = (of_chunks(&[1, 2]), of_chunks(&[3, 4]));
        for bytes in [&inexact, &found_again] {
            push_apart(store, &a, bytes).await;
        }
        let recipe = store.recipe(&digest(&inexact)).await.unwrap().unwrap();
        assert!(store.note_recipe_damaged(&recipe).await.unwrap());
        let recipe = store.recipe(&digest(&found_again)).await.unwrap().unwrap();
        assert!(store.note_pack_damaged(recipe.packs[0].key).await.unwrap());
        let at = |name: &str| test.directory.path().join(name);
        store.backup(&at("backup"), |_| ()).await.unwrap();
        let (restored, left_out) = Store::restore_without_damaged(&at("restored"), &at("backup"), |_| ())
            .await
            .unwrap();
        let left_out: Vec<_> = left_out
            .into_iter()
            .map(|left| (left.digest, left.damage))
            .collect();
        assert_eq!(left_out, [(digest(&inexact), Damage::Recipe)]);
        assert_eq!((restored.blobs, restored.pieces), (1, 4));
    }
}

/// The object could not be written: that is what the caller has to know, also if the database does not forget the draft.
#[tokio::test]
async fn what_comes_out_of_a_failed_draft_is_why_its_object_was_not_written() {
    if !has_backups() {
        return;
    }
    for test in engines(no_grace).await {
        let root = test.directory.path().to_owned();
        std::fs::remove_dir_all(root.join("objects")).unwrap();
        std::fs::write(root.join("objects"), b"no directory").unwrap();
        let refusing = std::thread::spawn(move || {
            crate::upgrade::raw::Raw::open(&root).run(
                "CREATE TRIGGER refused BEFORE DELETE ON drafts BEGIN SELECT RAISE(ABORT, 'refused'); END",
            );
        });
        refusing.join().unwrap();
        let error = test.store.put_draft(vec!["a pack".into()]).await.unwrap_err();
        assert!(matches!(error, StoreError::Object { .. }), "{error}");
    }
}

/// The packs may give the blob, once their place answers.
#[tokio::test]
async fn a_blob_without_right_bytes_is_not_lost_while_its_packs_cannot_be_read() {
    for test in engines(no_grace).await {
        let (store, a, bytes) = (&test.store, name("a"), of_chunks(&[1, 2]));
        push(store, &a, &bytes).await.unwrap();
        keep(store, &a, &[&bytes]).await;
        take_all(store, false).await;
        let blob = store.any_blob(&digest(&bytes)).await.unwrap().unwrap();
        std::fs::remove_file(object(test.directory.path(), key(&blob))).unwrap();
        let slow = Store::open(store.config()).await.unwrap();
        slow.set_restorer(std::sync::Arc::new(Waiting));
        assert!(slow.read(&blob, 0..blob.size).await.is_err());
        let scrubbed = slow.scrub(&ScrubOptions::default(), |_| {}).await.unwrap();
        let unreadable: Vec<_> = scrubbed.unreadable.into_iter().map(|(blob, _)| blob).collect();
        assert_eq!(
            (scrubbed.missing, unreadable),
            (vec![], vec![blob.digest.clone()])
        );
        assert_eq!(slow.blob(&a, &blob.digest).await.unwrap().as_ref(), Some(&blob));
        // It answers again.
        let scrubbed = with_toy(store)
            .scrub(&ScrubOptions::default(), |_| {})
            .await
            .unwrap();
        assert_eq!((scrubbed.missing, scrubbed.mended), (vec![], 1));
        assert_eq!(contents(store, &blob).await, bytes);
    }
}
