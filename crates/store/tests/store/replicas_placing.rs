//! What placers are told, and copies beside pushes, deletions, backups and other placers.

use std::time::Duration;

use futures_util::StreamExt as _;

use crate::common::*;
use crate::replicas::*;
use crate::toy::*;
use xebec_store::*;

async fn place(store: &Store, blob: &Digest, placements: &[&str]) -> Placed {
    store
        .place(&held(store, blob).await, &wanted(placements))
        .await
        .unwrap()
}

async fn standing(store: &Store, blob: &Digest) -> Standing {
    store.standing(blob).await.unwrap().unwrap()
}

async fn unplaced(store: &Store) -> Vec<Digest> {
    store.take_unplaced(9, Duration::ZERO).await.unwrap()
}

/// Looks at all that is to be looked at, and says that it is as it should be.
async fn settle(store: &Store) {
    for digest in unplaced(store).await {
        let seen = standing(store, &digest).await.seen;
        assert!(store.placed(&digest, seen).await.unwrap());
    }
}

#[tokio::test]
async fn one_who_looked_before_a_change_does_not_say_that_all_is_done() {
    for (test, _elsewhere) in stores().await {
        let (store, app) = (&test.store, name("app"));
        let digest = push(store, &app, &some_bytes(1000)).await.unwrap().digest;
        assert_eq!(unplaced(store).await, std::slice::from_ref(&digest));
        // Another placer, with other rules, makes a copy after that.
        let seen = standing(store, &digest).await.seen;
        place(store, &digest, &["main", "one"]).await;
        assert!(!store.placed(&digest, seen).await.unwrap());
        settle(store).await;
        assert_eq!(unplaced(store).await, []);
        // So it is when the object comes or goes, a copy goes, or is damaged.
        for placements in [&["one"][..], &["main", "one"], &["main"]] {
            let seen = standing(store, &digest).await.seen;
            place(store, &digest, placements).await;
            assert!(!store.placed(&digest, seen).await.unwrap(), "{placements:?}");
            settle(store).await;
        }
        // What is as it should be is not looked at for ever.
        let seen = standing(store, &digest).await.seen;
        place(store, &digest, &["main"]).await;
        assert_eq!(standing(store, &digest).await.seen, seen);
        assert!(store.delete_blob(&app, &digest).await.unwrap());
        assert_eq!(unplaced(store).await, std::slice::from_ref(&digest));
    }
}

#[tokio::test]
async fn links_popularity_and_rules_have_a_blob_looked_at() {
    for (test, _elsewhere) in stores().await {
        let (store, app) = (&test.store, name("app"));
        let digest = push(store, &app, &some_bytes(1000)).await.unwrap().digest;
        settle(store).await;
        assert_eq!(store.unplaced().await.unwrap(), 0);
        store.mount(&name("other"), &digest, Some(&app)).await.unwrap();
        assert_eq!(unplaced(store).await, std::slice::from_ref(&digest));
        let mut repositories = standing(store, &digest).await.repositories;
        repositories.sort();
        assert_eq!(repositories, [app, name("other")]);
        settle(store).await;
        let lasting = Duration::from_secs(3);
        store.note_popular(&digest, lasting).await.unwrap();
        assert_eq!(unplaced(store).await, std::slice::from_ref(&digest));
        assert!(standing(store, &digest).await.popular_until > 0);
        settle(store).await;
        // It is so already.
        store.note_popular(&digest, lasting).await.unwrap();
        assert_eq!(unplaced(store).await, []);
        tokio::time::sleep(lasting + Duration::from_millis(5)).await;
        // One that was popular until a moment ago is so anew.
        store.note_popular(&digest, Duration::ZERO).await.unwrap();
        assert_eq!(unplaced(store).await, std::slice::from_ref(&digest));
        settle(store).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(store.forget_unpopular().await.unwrap(), 1);
        assert_eq!(store.forget_unpopular().await.unwrap(), 0);
        assert_eq!(unplaced(store).await, std::slice::from_ref(&digest));
        assert_eq!(standing(store, &digest).await.popular_until, 0);
        settle(store).await;
        assert!(store.place_by("rules").await.unwrap());
        assert!(!store.place_by("rules").await.unwrap());
        assert_eq!(unplaced(store).await, std::slice::from_ref(&digest));
        // A placer that takes it has it for a while.
        assert_eq!(
            store.take_unplaced(9, Duration::from_secs(60)).await.unwrap(),
            std::slice::from_ref(&digest)
        );
        assert_eq!(unplaced(store).await, []);
        // One that changes it has it looked at again at its end, and not before.
        let seen = standing(store, &digest).await.seen;
        place(store, &digest, &["main", "one"]).await;
        assert_eq!(unplaced(store).await, []);
        assert!(!store.placed(&digest, seen).await.unwrap());
        assert_eq!(unplaced(store).await, std::slice::from_ref(&digest));
    }
}

/// Two blobs need one pack, and other copies are wanted of each.
#[tokio::test]
async fn a_pack_is_where_the_blobs_are_that_need_it() {
    for (test, _elsewhere) in stores().await {
        let (store, app) = (with_toy(&test.store), name("app"));
        // Packs are looked at where there are rules.
        store.place_by("rules").await.unwrap();
        let first = push_apart(store, &app, &of_chunks(&[1, 2])).await;
        push_kept(store, &of_chunks(&[1, 2])).await;
        let second = push_apart(store, &app, &of_chunks(&[1, 2])[..2 * CHUNK]).await;
        let [shared] = &store.recipe(&second.digest).await.unwrap().unwrap().packs[..] else {
            panic!("one pack");
        };
        store
            .want(&first.digest, &"chunks@main".parse().unwrap())
            .await
            .unwrap();
        store
            .want(&second.digest, &"chunks@one".parse().unwrap())
            .await
            .unwrap();
        let seen = store.pack_standing(shared.key).await.unwrap().unwrap();
        assert_eq!(seen.wanted.to_string(), "chunks@main chunks@one");
        let keys = store.take_unplaced_packs(9, Duration::ZERO).await.unwrap();
        assert!(keys.contains(&shared.key));
        assert!(store.pack_placed(shared.key, seen.seen).await.unwrap());
        let keys = store.take_unplaced_packs(9, Duration::ZERO).await.unwrap();
        assert!(!keys.contains(&shared.key));
        // What is wanted already is nothing new.
        store
            .want(&second.digest, &"chunks@one".parse().unwrap())
            .await
            .unwrap();
        let keys = store.take_unplaced_packs(9, Duration::ZERO).await.unwrap();
        assert!(!keys.contains(&shared.key));
        // With the blob goes what was wanted for its sake.
        assert!(store.delete_blob(&app, &second.digest).await.unwrap());
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(3)).await;
            collect(store).await;
        }
        let keys = store.take_unplaced_packs(9, Duration::ZERO).await.unwrap();
        assert!(keys.contains(&shared.key), "{}", test.engine);
        let seen = store.pack_standing(shared.key).await.unwrap().unwrap();
        assert_eq!(seen.wanted.to_string(), "chunks@main");
    }
}

#[tokio::test]
async fn a_push_of_a_blob_that_is_away_is_thrown_away() {
    for (test, elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let digest = push_kept(store, &bytes).await;
        place(store, &digest, &["one", "two"]).await;
        let before = held(store, &digest).await;
        push(store, &name("other"), &bytes).await.unwrap();
        assert_eq!(held(store, &digest).await, before, "its copies count");
        collect(store).await;
        assert_eq!(files(&test), 0, "{}", test.engine);
        // Without its copies, the new one counts, and no record of the old ones stays.
        for place in ["one", "two"] {
            for file in replica_files(elsewhere.path(), place) {
                std::fs::remove_file(file).unwrap();
            }
        }
        push(store, &name("other"), &bytes).await.unwrap();
        collect(store).await;
        assert_eq!(read(store, &digest).await.unwrap(), bytes);
        assert_eq!(
            store
                .placements(&held(store, &digest).await, &std::collections::BTreeSet::new())
                .await
                .unwrap(),
            wanted(&["main"])
        );
        assert_nothing_forgotten(test.directory.path());
    }
}

#[tokio::test]
async fn a_blob_that_goes_while_it_is_placed_leaves_nothing() {
    for (test, elsewhere) in stores().await {
        let (store, app) = (&test.store, name("app"));
        let digest = push(store, &app, &some_bytes(70_000)).await.unwrap().digest;
        place(store, &digest, &["main", "one"]).await;
        let seen = held(store, &digest).await;
        assert!(store.delete_blob(&app, &digest).await.unwrap());
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(3)).await;
            collect(store).await;
        }
        assert_eq!(store.any_blob(&digest).await.unwrap(), None);
        for placements in [&["main", "one"][..], &["two"], &["main"]] {
            let _ = store.place(&seen, &wanted(placements)).await;
        }
        collect(store).await;
        assert_eq!(files(&test), 0, "{}", test.engine);
        for place in PLACES {
            assert_eq!(replica_files(elsewhere.path(), place).len(), 0, "{place}");
        }
        assert_nothing_forgotten(test.directory.path());
    }
}

/// An object that has parts in S3, where the environment names one.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_object_is_copied_to_a_bucket_and_back() {
    for (mut test, elsewhere) in stores().await {
        let name_of_all = test
            .directory
            .path()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let mut config = test.store.config().clone();
        let bucket = std::env::var(S3)
            .ok()
            .map(|_| format!("{}-cloud", name_of_all.trim_start_matches('.')));
        let cloud = match (&bucket, &config.objects) {
            (Some(prefix), ObjectsConfig::S3 { .. }) => {
                let mut objects = config.objects.clone();
                if let ObjectsConfig::S3 { prefix: of_place, .. } = &mut objects {
                    of_place.clone_from(prefix);
                }
                PlaceConfig {
                    name: "cloud".parse().unwrap(),
                    root: None,
                    objects,
                }
            }
            _ => place_in(elsewhere.path(), "cloud"),
        };
        config.places.push(cloud);
        test.store = Store::open(&config).await.unwrap();
        let store = &test.store;
        let bytes = some_bytes(12_000_000);
        let digest = push_kept(store, &bytes).await;
        place(store, &digest, &["main", "cloud"]).await;
        place(store, &digest, &["cloud"]).await;
        assert_eq!(read(store, &digest).await.unwrap(), bytes);
        let shards = "one,two,cloud(1+2)";
        place(store, &digest, &["cloud", shards]).await;
        place(store, &digest, &[shards]).await;
        assert_eq!(read(store, &digest).await.unwrap(), bytes);
        assert_eq!(
            store
                .scrub(&ScrubOptions::default(), |_| {})
                .await
                .unwrap()
                .damaged_replicas,
            0
        );
        lose(elsewhere.path(), "one");
        lose(elsewhere.path(), "two");
        assert_eq!(
            read(store, &digest).await.unwrap(),
            bytes,
            "from the bucket's shard"
        );
        place(store, &digest, &["main"]).await;
        for place in ["one", "two"] {
            store.lose_place(&place.parse().unwrap()).await.unwrap();
        }
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_millis(3)).await;
            collect(store).await;
        }
        assert_eq!(read(store, &digest).await.unwrap(), bytes);
        let left = match &bucket {
            Some(prefix) => files_of_prefix(prefix) - 1,
            None => replica_files(elsewhere.path(), "cloud").len(),
        };
        assert_eq!(left, 0, "{}: beside the mark", test.engine);
        assert_nothing_forgotten(test.directory.path());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_what_is_away_also_if_it_moves_meanwhile() {
    if std::env::var_os(POSTGRES).is_some() || std::env::var_os(S3).is_some() {
        return;
    }
    for (test, _elsewhere) in stores().await {
        let (store, app) = (with_toy(&test.store), name("app"));
        let (bytes, other) = (some_bytes(20_000), some_bytes(30_000));
        let apart = push_apart(store, &app, &bytes).await;
        push_kept(store, &bytes).await;
        let recipe = store.recipe(&apart.digest).await.unwrap().unwrap();
        store
            .place(&Held::of_recipe(&recipe), &wanted(&["one"]))
            .await
            .unwrap();
        for pack in &recipe.packs {
            store
                .place(&Held::of_pack(pack), &wanted(&["two,three,four(2+1)"]))
                .await
                .unwrap();
        }
        let moving = push_kept(store, &other).await;
        place(store, &moving, &["one"]).await;
        let mut is_moved = false;
        let backup = test.directory.path().join("backup");
        let backed_up = store
            .backup(&backup, |_| {
                if std::mem::replace(&mut is_moved, true) {
                    return;
                }
                // The packs are copied, and other objects leave the places where the records say that they are.
                tokio::task::block_in_place(|| {
                    tokio::runtime::Handle::current().block_on(async {
                        place(store, &moving, &["main"]).await;
                        let recipe = store.recipe(&apart.digest).await.unwrap().unwrap();
                        store
                            .place(&Held::of_recipe(&recipe), &wanted(&["two"]))
                            .await
                            .unwrap();
                        store.collect(&CollectOptions::default()).await.unwrap();
                    });
                });
            })
            .await
            .unwrap();
        assert_eq!((backed_up.missing, backed_up.blobs, backed_up.pieces), (0, 1, 2));
        let root = test.directory.path().join("restored");
        Store::restore(&root, &backup, |_| ()).await.unwrap();
        let restored = Store::open(&StoreConfig::new(&root)).await.unwrap();
        with_toy(&restored);
        assert_eq!(read(&restored, &apart.digest).await.unwrap(), bytes);
        assert_eq!(read(&restored, &moving).await.unwrap(), other);
        let scrubbed = restored.scrub(&ScrubOptions::default(), |_| {}).await.unwrap();
        assert_eq!(
            (scrubbed.damaged_pieces, scrubbed.missing.len(), scrubbed.replicas),
            (0, 0, 0)
        );
        assert_nothing_forgotten(&root);
    }
}

/// A reader opens what it has found a while ago.
#[tokio::test]
async fn a_reader_finds_a_blob_that_was_moved_since() {
    for (test, _elsewhere) in stores().await {
        let (store, bytes) = (&test.store, some_bytes(70_000));
        let digest = push_kept(store, &bytes).await;
        for placements in [&["one"][..], &["main"], &["two,three,four(2+1)"], &["one"]] {
            let seen = store.any_blob(&digest).await.unwrap().unwrap();
            place(store, &digest, placements).await;
            collect(store).await;
            let mut pieces = store.read(&seen, 1000..60_000).await.unwrap();
            let mut found = Vec::new();
            while let Some(piece) = pieces.next().await {
                found.extend_from_slice(&piece.unwrap());
            }
            assert_eq!(found, bytes[1000..60_000], "{placements:?}");
        }
    }
}

/// An object is only on a place if neither a whole copy nor enough shards are elsewhere.
#[tokio::test]
async fn what_would_be_lost_with_a_place_is_counted() {
    let cases: [(&[&str], u64); 6] = [
        (&["main", "one"], 0),
        (&["one"], 1),
        (&["one", "two"], 0),
        (&["one,two,three(2+1)"], 0),
        (&["one,two(1+1)"], 0),
        (&["one", "two,three,four(2+1)"], 0),
    ];
    for (test, _elsewhere) in stores().await {
        let store = &test.store;
        for (at, (placements, lost)) in cases.iter().enumerate() {
            let digest = push(store, &name("app"), &some_bytes(1000 + at))
                .await
                .unwrap()
                .digest;
            let before = store.only_on(&"one".parse().unwrap()).await.unwrap();
            place(store, &digest, placements).await;
            let after = store.only_on(&"one".parse().unwrap()).await.unwrap();
            assert_eq!(after - before, *lost, "{placements:?} {}", test.engine);
        }
    }
}

/// What has failed comes again at its time, after a change, or when somebody has it come sooner: some at a time, and after what is new.
#[tokio::test]
async fn what_waits_comes_after_what_is_new() {
    const HOUR: u64 = 3_600_000;
    for (test, _elsewhere) in stores().await {
        let (store, app) = (&test.store, name("app"));
        let mut blobs = Vec::new();
        for number in 0..5_u8 {
            blobs.push(push(store, &app, &[number; 100]).await.unwrap().digest);
        }
        assert_eq!(unplaced(store).await.len(), 5);
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
        let now = u64::try_from(now).unwrap();
        for (hours, digest) in (1..).zip(&blobs) {
            let what = Postponed::Blob(digest.clone());
            store.postpone_placing(what, now + hours * HOUR).await.unwrap();
        }
        assert_eq!(unplaced(store).await, []);
        // One changes, which comes at once, though somebody who has looked at it before says that it has failed.
        store
            .note_popular(&blobs[4], Duration::from_secs(60))
            .await
            .unwrap();
        store
            .postpone_placing(Postponed::Blob(blobs[4].clone()), now + HOUR)
            .await
            .unwrap();
        assert_eq!(
            store.take_unplaced(9, Duration::from_secs(60)).await.unwrap(),
            std::slice::from_ref(&blobs[4])
        );
        let first = store
            .hasten_blobs(2, Some(now + HOUR / 2))
            .await
            .unwrap()
            .unwrap();
        let new = push(store, &app, b"new").await.unwrap().digest;
        let taken = store.take_unplaced(1, Duration::from_secs(60)).await.unwrap();
        assert_eq!(taken, [new]);
        let rest = store.take_unplaced(9, Duration::from_secs(60)).await.unwrap();
        assert_eq!(rest.len(), 2, "so many were to come sooner");
        let second = store.hasten_blobs(9, Some(first)).await.unwrap().unwrap();
        let mut rest = store.take_unplaced(9, Duration::from_secs(60)).await.unwrap();
        rest.sort();
        let mut wanted = vec![blobs[2].clone(), blobs[3].clone()];
        wanted.sort();
        assert_eq!(rest, wanted);
        assert_eq!(store.hasten_blobs(9, Some(second)).await.unwrap(), None);
        assert_eq!(store.hasten_packs(9, Some(0)).await.unwrap(), None);
    }
}
