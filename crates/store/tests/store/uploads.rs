//! Uploads: continued after all that can come between.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::common::*;
use xebec_store::*;

#[tokio::test]
async fn an_upload_goes_on_in_another_process() {
    for test in engines(|_| ()).await {
        let a = name("a");
        let id = test.store.begin_upload(&a).await.unwrap();
        assert_eq!(
            test.store.upload(&a, &id).await.unwrap(),
            Some(0),
            "{}",
            test.engine
        );
        assert_eq!(
            test.store
                .append(&a, &id, Some(0), body(&[b"one ", b"two "]))
                .await
                .unwrap(),
            8
        );
        // Another process knows the records and the disk only.
        let other = Store::open(test.store.config()).await.unwrap();
        assert_eq!(other.upload(&a, &id).await.unwrap(), Some(8));
        assert_eq!(
            other.append(&a, &id, Some(8), body(&[b"three"])).await.unwrap(),
            13
        );
        let blob = other
            .finish_upload(&a, &id, &digest(b"one two three"))
            .await
            .unwrap();
        assert_eq!(contents(&other, &blob).await, b"one two three");
        assert_eq!(other.upload(&a, &id).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_repository_has_so_many_uploads_under_way_and_no_more() {
    for test in engines(|config| config.max_uploads = 3).await {
        let (a, b) = (name("a"), name("b"));
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(test.store.begin_upload(&a).await.unwrap());
        }
        let error = test.store.begin_upload(&a).await.unwrap_err();
        assert!(
            matches!(error, StoreError::TooManyUploads { most: 3, .. }),
            "{error}"
        );
        test.store.begin_upload(&b).await.unwrap();
        let finished = ids.pop().unwrap();
        let none = digest(b"");
        test.store.finish_upload(&a, &finished, &none).await.unwrap();
        assert!(test.store.cancel_upload(&a, &ids[0]).await.unwrap());
        for _ in 0..2 {
            test.store.begin_upload(&a).await.unwrap();
        }
        assert!(test.store.begin_upload(&a).await.is_err());
    }
}

#[tokio::test]
async fn an_upload_goes_to_another_process_and_back() {
    for test in engines(|_| ()).await {
        let a = name("a");
        let other = Store::open(test.store.config()).await.unwrap();
        let id = test.store.begin_upload(&a).await.unwrap();
        let mut all = Vec::new();
        // One piece is larger than a part of an upload to S3.
        for (store, size) in [
            (&test.store, 1000),
            (&other, 20),
            (&test.store, 6_000_000),
            (&test.store, 3),
            (&other, 70_000),
            (&test.store, 5),
        ] {
            let piece = vec![u8::try_from(size % 251).unwrap(); size];
            let at = all.len() as u64;
            let found = store.upload(&a, &id).await.unwrap();
            assert_eq!(found, Some(at), "{}", test.engine);
            let appended = store.append(&a, &id, Some(at), body(&[&piece])).await;
            all.extend(piece);
            assert_eq!(appended.unwrap(), all.len() as u64, "{}", test.engine);
        }
        let blob = other.finish_upload(&a, &id, &digest(&all)).await.unwrap();
        assert!(contents(&test.store, &blob).await == all, "{}", test.engine);
        let unknown = test.store.append(&a, &id, None, body(&[b"x"])).await;
        assert!(matches!(unknown, Err(AppendError::Unknown { .. })));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_comes_while_an_upload_is_finished_changes_nothing_of_the_blob() {
    for test in engines(|_| ()).await {
        let a = name("a");
        for round in 0..30_u8 {
            let id = test.store.begin_upload(&a).await.unwrap();
            let content = vec![round; 100];
            test.store
                .append(&a, &id, Some(0), body(&[&content]))
                .await
                .unwrap();
            // Late parts come at every moment of the end, and of what follows it.
            let late = (0..40_u64).map(|at| {
                let (store, a, id) = (test.store.clone(), a.clone(), id.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_micros(at * 250)).await;
                    let part = store.append(&a, &id, Some(100), body(&[b"late"])).await;
                    part.is_ok()
                })
            });
            let late: Vec<_> = late.collect();
            let finished = test.store.finish_upload(&a, &id, &digest(&content)).await;
            let mut was_taken = false;
            for part in late {
                was_taken |= part.await.unwrap();
            }
            match finished {
                Ok(blob) => {
                    assert!(
                        !was_taken,
                        "{round}, {}: a part was taken after the end",
                        test.engine
                    );
                    let file = object(test.directory.path(), key(&blob));
                    let size = std::fs::metadata(file).unwrap().len();
                    assert_eq!(
                        size, 100,
                        "{round}, {}: a part was written to a blob",
                        test.engine
                    );
                    assert_eq!(contents(&test.store, &blob).await, content);
                }
                // A part was first.
                Err(StoreError::Busy(_) | StoreError::DigestMismatch { .. }) => {}
                Err(error) => panic!("{round}, {}: {error}", test.engine),
            }
        }
    }
}

#[tokio::test]
async fn an_upload_can_be_of_sha512() {
    for test in engines(|_| ()).await {
        let a = name("a");
        let id = test.store.begin_upload(&a).await.unwrap();
        test.store.append(&a, &id, None, body(&[b"bytes"])).await.unwrap();
        let digest = Digest::of(Algorithm::Sha512, b"bytes");
        let blob = test.store.finish_upload(&a, &id, &digest).await.unwrap();
        assert_eq!(blob.digest, digest, "{}", test.engine);
        assert!(test.store.blob(&a, &digest).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn what_came_before_a_body_broke_off_is_kept() {
    for test in engines(|_| ()).await {
        let a = name("a");
        let id = test.store.begin_upload(&a).await.unwrap();
        let first = vec![7; 300_000];
        let broken = body(&[&first]).chain(stream::once(async { Err(io::Error::other("gone")) }));
        let error = test.store.append(&a, &id, None, broken).await.unwrap_err();
        assert!(matches!(error, AppendError::Body(_)), "{error}");
        assert_eq!(
            test.store.upload(&a, &id).await.unwrap(),
            Some(300_000),
            "{}",
            test.engine
        );
        let error = test
            .store
            .append(&a, &id, Some(0), body(&[b"x"]))
            .await
            .unwrap_err();
        assert!(
            matches!(error, AppendError::WrongOffset { at: 300_000 }),
            "{error}"
        );
        test.store
            .append(&a, &id, Some(300_000), body(&[b"rest"]))
            .await
            .unwrap();
        let whole = [&first[..], b"rest"].concat();
        test.store.finish_upload(&a, &id, &digest(&whole)).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_goes_away_loses_nothing_that_came() {
    for test in engines(|_| ()).await {
        let a = name("a");
        let id = test.store.begin_upload(&a).await.unwrap();
        let endless = body(&[&[1; 400_000]]).chain(stream::pending());
        let appending = test.store.append(&a, &id, None, endless);
        // Dropped in the middle, as a server does with a connection that is closed.
        assert!(
            tokio::time::timeout(Duration::from_millis(300), appending)
                .await
                .is_err()
        );
        for _ in 0..200 {
            match test.store.append(&a, &id, Some(400_000), body(&[b"rest"])).await {
                Ok(size) => assert_eq!(size, 400_004, "{}", test.engine),
                Err(AppendError::Busy(_)) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
                Err(error) => panic!("{error}"),
            }
            break;
        }
        let whole = [&[1; 400_000][..], b"rest"].concat();
        test.store.finish_upload(&a, &id, &digest(&whole)).await.unwrap();
    }
}

#[tokio::test]
async fn one_request_continues_an_upload_at_a_time() {
    for test in engines(|_| ()).await {
        let (store, a) = (test.store.clone(), name("a"));
        let id = store.begin_upload(&a).await.unwrap();
        let (send, receive) = tokio::sync::mpsc::channel::<io::Result<Bytes>>(1);
        let slow = stream::unfold(receive, |mut receive| async {
            receive.recv().await.map(|item| (item, receive))
        });
        let first = tokio::spawn({
            let (store, a, id) = (store.clone(), a.clone(), id.clone());
            async move { store.append(&a, &id, None, slow).await }
        });
        send.send(Ok(Bytes::from_static(b"slow"))).await.unwrap();
        // The second send waits until the first piece was taken: the first request has the upload then.
        send.send(Ok(Bytes::from_static(b"ly"))).await.unwrap();
        let error = store.append(&a, &id, None, body(&[b"x"])).await.unwrap_err();
        assert!(matches!(error, AppendError::Busy(_)), "{error}");
        assert!(matches!(
            store.finish_upload(&a, &id, &digest(b"")).await,
            Err(StoreError::Busy(_))
        ));
        assert!(matches!(
            store.cancel_upload(&a, &id).await,
            Err(StoreError::Busy(_))
        ));
        drop(send);
        assert_eq!(first.await.unwrap().unwrap(), 6, "{}", test.engine);
        store.finish_upload(&a, &id, &digest(b"slowly")).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_kept_of_what_is_not_what_it_was_called() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let id = store.begin_upload(&a).await.unwrap();
        store.append(&a, &id, None, body(&[b"bytes"])).await.unwrap();
        let error = store
            .finish_upload(&a, &id, &digest(b"others"))
            .await
            .unwrap_err();
        assert!(matches!(error, StoreError::DigestMismatch { .. }), "{error}");
        assert_eq!(store.upload(&a, &id).await.unwrap(), None);
        assert_eq!(store.any_blob(&digest(b"bytes")).await.unwrap(), None);
        files_become(&test, 0).await;
    }
}

#[tokio::test]
async fn a_cancelled_upload_is_gone() {
    for test in engines(|_| ()).await {
        let (store, a) = (&test.store, name("a"));
        let id = store.begin_upload(&a).await.unwrap();
        store.append(&a, &id, None, body(&[b"bytes"])).await.unwrap();
        assert!(
            !store.cancel_upload(&name("b"), &id).await.unwrap(),
            "another repository's upload"
        );
        assert!(store.cancel_upload(&a, &id).await.unwrap());
        assert!(!store.cancel_upload(&a, &id).await.unwrap());
        let error = store.append(&a, &id, None, body(&[b"x"])).await.unwrap_err();
        assert!(matches!(error, AppendError::Unknown { .. }), "{error}");
        files_become(&test, 0).await;
    }
}

#[tokio::test]
async fn a_blob_has_a_limit() {
    for test in engines(|config| config.max_blob = 10).await {
        let (store, a) = (&test.store, name("a"));
        let id = store.begin_upload(&a).await.unwrap();
        assert_eq!(store.append(&a, &id, None, body(&[b"12345"])).await.unwrap(), 5);
        let error = store
            .append(&a, &id, None, body(&[b"12345", b"6"]))
            .await
            .unwrap_err();
        assert!(matches!(error, AppendError::TooLarge { limit: 10 }), "{error}");
    }
}
