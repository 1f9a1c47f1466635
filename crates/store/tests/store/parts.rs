//! Uploads to S3, whose parts are on their way at the same time. These tests run where there is an S3 server: `engines::over_s3` has one.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;

use crate::common::*;
use crate::gate::Gate;
use xebec_store::*;

/// The size of the first parts.
const PART: usize = 5 << 20;
/// The root of the store and the upload that a process of its own is to go on with.
const CHILD: [&str; 2] = ["XEBEC_STORE_TEST_PARTS_ROOT", "XEBEC_STORE_TEST_PARTS_UPLOAD"];
/// The size of the upload that this process sends.
const LARGE: usize = 9 * PART + 12_345;
const KILLS: usize = 10;

/// A store, and the gate between it and its bucket; nothing where objects are files.
async fn behind_a_gate() -> Option<(TestStore, Gate)> {
    let gate = Gate::before(&std::env::var(S3).ok()?).await;
    let address = gate.address.clone();
    let mut tests = engines(move |config| {
        config.grace = Duration::from_millis(400);
        if let ObjectsConfig::S3 { endpoint, .. } = &mut config.objects {
            *endpoint = Some(address.clone());
        }
    })
    .await;
    Some((tests.pop()?, gate))
}

/// Bytes of which each part is another one.
fn bytes(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(length as u64);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

/// A port that was free a moment ago stands for a server that is away.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_objects_that_is_away_does_not_answer() {
    let Some((test, _gate)) = behind_a_gate().await else {
        return;
    };
    test.store.objects_answer().await.unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let mut config = test.store.config().clone();
    if let ObjectsConfig::S3 { endpoint, .. } = &mut config.objects {
        *endpoint = Some(address);
    }
    let away = Store::open(&config).await.unwrap();
    let error = away.objects_answer().await.unwrap_err();
    assert!(error.contains("object store"), "{error}");
    // The database is another server.
    away.database_answers().await.unwrap();
}

/// A server says so while it removes the folder that the last object has left.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_conflicts_with_another_request_is_put_again() {
    let Some((test, gate)) = behind_a_gate().await else {
        return;
    };
    let (a, content) = (name("a"), bytes(1000));
    let id = test.store.begin_upload(&a).await.unwrap();
    gate.conflict(3);
    let sent = test.store.append(&a, &id, Some(0), body(&[&content])).await;
    assert_eq!(sent.unwrap(), 1000);
    let blob = test
        .store
        .finish_upload(&a, &id, &digest(&content))
        .await
        .unwrap();
    assert!(contents(&test.store, &blob).await == content);
    // One that always does is not put for ever.
    let id = test.store.begin_upload(&a).await.unwrap();
    gate.conflict(usize::MAX);
    let sent = test.store.append(&a, &id, Some(0), body(&[&content])).await;
    assert!(sent.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_parts_of_an_upload_are_sent_at_the_same_time() {
    let Some((test, gate)) = behind_a_gate().await else {
        return;
    };
    let content = bytes(9 * PART + 1000);
    let blob = push(&test.store, &name("a"), &content).await.unwrap();
    assert!(contents(&test.store, &blob).await == content);
    assert_eq!(gate.most(), 4);
    assert_eq!(gate.sent().len(), 10, "each part is sent once");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_all_uploads_together_are_bounded() {
    let Some((test, gate)) = behind_a_gate().await else {
        return;
    };
    let uploads = (0..8_usize).map(|number| {
        let (store, content) = (test.store.clone(), bytes(4 * PART + number));
        async move {
            let blob = push(&store, &name("a"), &content).await.unwrap();
            assert!(contents(&store, &blob).await == content);
        }
    });
    join_all(uploads).await;
    // Those that are sent ahead, and the one for which each upload waits.
    assert!(gate.most() <= 16 + 8, "{}", gate.most());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_byte_counts_as_here_before_all_parts_up_to_it_are_stored() {
    let Some((test, gate)) = behind_a_gate().await else {
        return;
    };
    let (a, content) = (name("a"), bytes(6 * PART + 77));
    let id = test.store.begin_upload(&a).await.unwrap();
    // A part is acknowledged, and some bytes after it as a tail, though the last of the pieces begins the parts. More come to them in the
    // request that fails.
    let first = PART + 1000;
    let (acknowledged, rest) = content.split_at(first);
    let pieces = |content| <[u8]>::chunks(content, 100_000).collect::<Vec<_>>();
    let sent = test.store.append(&a, &id, Some(0), body(&pieces(acknowledged)));
    assert_eq!(sent.await.unwrap(), first as u64);
    gate.refuse(2, true);
    let failed = test
        .store
        .append(&a, &id, Some(first as u64), body(&pieces(rest)))
        .await;
    assert!(failed.is_err(), "a part that was refused counts as stored");
    assert!(gate.sent().contains(&4), "{:?}", gate.sent());
    // Parts after the one that was refused are stored, and do not count. The acknowledged bytes do.
    let other = Store::open(test.store.config()).await.unwrap();
    let at = other.upload(&a, &id).await.unwrap().unwrap();
    assert_eq!(at, first as u64);
    gate.refuse(2, false);
    let sent = other.append(&a, &id, Some(at), body(&[rest])).await;
    assert_eq!(sent.unwrap(), content.len() as u64);
    let blob = other.finish_upload(&a, &id, &digest(&content)).await.unwrap();
    assert!(contents(&other, &blob).await == content);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_in_many_requests_is_the_same_as_in_one() {
    let Some((test, _gate)) = behind_a_gate().await else {
        return;
    };
    let (a, content) = (name("a"), bytes(5 * PART));
    let id = test.store.begin_upload(&a).await.unwrap();
    let other = Store::open(test.store.config()).await.unwrap();
    let (mut at, mut random) = (0, fastrand::Rng::with_seed(1));
    while at < content.len() {
        let end = content.len().min(at + random.usize(1..PART));
        let store = if random.bool() { &test.store } else { &other };
        let sent = store
            .append(&a, &id, Some(at as u64), body(&[&content[at..end]]))
            .await;
        assert_eq!(sent.unwrap(), end as u64);
        at = end;
    }
    let blob = other.finish_upload(&a, &id, &digest(&content)).await.unwrap();
    assert!(contents(&other, &blob).await == content);
}

/// Waits for something that must come, however busy the machine is.
async fn until(holds: impl Fn() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come");
}

/// Has the store send bytes at the end of an upload, and go away when the gate has all of what is sent and the bucket has nothing.
async fn send_and_go(test: &TestStore, gate: &Gate, id: &UploadId, content: &[u8]) {
    gate.hold_objects(true);
    let (store, upload, content) = (test.store.clone(), id.clone(), content.to_vec());
    let sender =
        tokio::spawn(async move { store.append(&name("a"), &upload, None, body(&[&content])).await });
    until(|| gate.objects_held() > 0).await;
    sender.abort();
}

/// Lets the bucket have what the gate has held.
async fn arrive(gate: &Gate) {
    gate.hold_objects(false);
    until(|| gate.objects_held() == 0).await;
}

/// Another node of the same registry, without the gate.
async fn another(test: &TestStore) -> Store {
    let mut config = test.store.config().clone();
    if let ObjectsConfig::S3 { endpoint, .. } = &mut config.objects {
        *endpoint = Some(std::env::var(S3).unwrap());
    }
    Store::open(&config).await.unwrap()
}

/// A server may have all of an object when its sender dies, and store it after the object was deleted.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_stored_after_it_was_deleted_is_deleted_again() {
    let Some((test, gate)) = behind_a_gate().await else {
        return;
    };
    let a = name("a");
    let id = test.store.begin_upload(&a).await.unwrap();
    send_and_go(&test, &gate, &id, b"bytes").await;
    let other = another(&test).await;
    assert!(other.cancel_upload(&a, &id).await.unwrap());
    // It is deleted in the background.
    tokio::time::sleep(Duration::from_millis(300)).await;
    arrive(&gate).await;
    assert_eq!(files(&test), 1, "the server did not store it after its deletion");
    collect_all(&test).await;
    assert_eq!(files(&test), 0);
}

/// A server may have all of an object when its sender dies, and store it after another node has gone on and finished the blob.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_node_has_sent_does_not_overwrite_a_blob() {
    let Some((test, gate)) = behind_a_gate().await else {
        return;
    };
    let (a, content) = (name("a"), b"bytes and more of them");
    let id = test.store.begin_upload(&a).await.unwrap();
    send_and_go(&test, &gate, &id, &content[..5]).await;
    let other = another(&test).await;
    let at = other.upload(&a, &id).await.unwrap().unwrap();
    let rest = &content[usize::try_from(at).unwrap()..];
    let sent = other.append(&a, &id, Some(at), body(&[rest])).await;
    assert_eq!(sent.unwrap(), content.len() as u64);
    let blob = other.finish_upload(&a, &id, &digest(content)).await.unwrap();
    arrive(&gate).await;
    assert!(contents(&other, &blob).await == content);
    collect_all(&test).await;
    assert_eq!(files(&test), 0, "no manifest names the blob");
}

/// The same with bytes that come after parts.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_node_has_sent_does_not_overwrite_acknowledged_bytes() {
    let Some((test, gate)) = behind_a_gate().await else {
        return;
    };
    let (a, content) = (name("a"), bytes(2 * PART));
    let id = test.store.begin_upload(&a).await.unwrap();
    let (first, second) = (PART + 1000, PART + 4000);
    let sent = test.store.append(&a, &id, Some(0), body(&[&content[..first]]));
    assert_eq!(sent.await.unwrap(), first as u64);
    send_and_go(&test, &gate, &id, &content[first..first + 500]).await;
    let other = another(&test).await;
    let at = first as u64;
    let sent = other
        .append(&a, &id, Some(at), body(&[&content[first..second]]))
        .await;
    assert_eq!(sent.unwrap(), second as u64);
    arrive(&gate).await;
    // The record is no longer the first node's own, so no answer to that node changes it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let third = another(&test).await;
    let at = second as u64;
    assert_eq!(third.upload(&a, &id).await.unwrap(), Some(at));
    let sent = third.append(&a, &id, Some(at), body(&[&content[second..]])).await;
    assert_eq!(sent.unwrap(), content.len() as u64);
    let blob = third.finish_upload(&a, &id, &digest(&content)).await.unwrap();
    assert!(contents(&third, &blob).await == content);
    collect_all(&test).await;
    assert_eq!(files(&test), 0);
}

/// The object is whole, and the process that put it together dies before that is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_whose_parts_were_put_together_already_is_finished() {
    let Some((test, gate)) = behind_a_gate().await else {
        return;
    };
    let (a, content) = (name("a"), bytes(2 * PART));
    let id = test.store.begin_upload(&a).await.unwrap();
    let sent = test.store.append(&a, &id, Some(0), body(&[&content])).await;
    assert_eq!(sent.unwrap(), content.len() as u64);
    gate.hold_completions();
    let (store, of, upload, whole) = (test.store.clone(), a.clone(), id.clone(), digest(&content));
    let finishing = tokio::spawn(async move { store.finish_upload(&of, &upload, &whole).await });
    until(|| gate.completions_held() > 0).await;
    finishing.abort();
    let other = another(&test).await;
    let blob = other.finish_upload(&a, &id, &digest(&content)).await.unwrap();
    assert!(contents(&other, &blob).await == content);
    collect_all(&test).await;
    assert_eq!(files(&test), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_recorded_before_the_tail_of_earlier_ones_is_overwritten() {
    let Some((test, gate)) = behind_a_gate().await else {
        return;
    };
    let (a, content) = (name("a"), bytes(4 * PART));
    let id = test.store.begin_upload(&a).await.unwrap();
    let (first, second) = (PART + 1000, 3 * PART + 2000);
    let sent = test.store.append(&a, &id, Some(0), body(&[&content[..first]]));
    assert_eq!(sent.await.unwrap(), first as u64);
    // The process gets no further than to store the tail.
    gate.hold_tails(true);
    let (store, of, upload, piece) = (
        test.store.clone(),
        a.clone(),
        id.clone(),
        content[first..second].to_vec(),
    );
    tokio::spawn(async move { store.append(&of, &upload, None, body(&[&piece])).await });
    until(|| gate.tails_held() > 0).await;
    assert_eq!(gate.tails_held(), 1);
    gate.hold_tails(false);
    let other = Store::open(test.store.config()).await.unwrap();
    let at = other.upload(&a, &id).await.unwrap().unwrap();
    assert!(at >= first as u64, "{at}");
    let rest = &content[usize::try_from(at).unwrap()..];
    let sent = other.append(&a, &id, Some(at), body(&[rest])).await;
    assert_eq!(sent.unwrap(), content.len() as u64);
    let blob = other.finish_upload(&a, &id, &digest(&content)).await.unwrap();
    assert!(contents(&other, &blob).await == content);
}

/// Goes on with an upload to its end, in requests of all sizes, and says how far it was acknowledged.
#[test]
fn child() {
    let [Ok(root), Ok(id)] = CHILD.map(std::env::var) else {
        return;
    };
    let (id, a, content): (UploadId, _, _) = (id.parse().unwrap(), name("a"), bytes(LARGE));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Store::open(&config(Path::new(&root))).await.unwrap();
        let mut at = usize::try_from(store.upload(&a, &id).await.unwrap().unwrap()).unwrap();
        while at < content.len() {
            let end = content.len().min(at + fastrand::usize(1..4 * PART));
            let pieces: Vec<&[u8]> = content[at..end].chunks(100_000).collect();
            let sent = store.append(&a, &id, Some(at as u64), body(&pieces)).await;
            assert_eq!(sent.unwrap(), end as u64);
            at = end;
            // In one write, so that a kill leaves no half of it.
            let _ = std::io::stdout().write_all(format!("at {at}\n").as_bytes());
        }
    });
}

/// Runs [`child`] for a while, or to its end, and returns how far it was acknowledged last.
async fn go_on(test: &TestStore, gate: &Gate, id: &UploadId, until: Option<Duration>) -> Option<u64> {
    let [root, upload] = CHILD;
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "parts::child", "--nocapture"])
        .env(root, test.directory.path())
        .env(upload, id.as_str())
        .env(S3, &gate.address)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    if let Some(until) = until {
        tokio::time::sleep(until).await;
        child.kill().unwrap();
    }
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
    let ended = ended.await.unwrap();
    assert!(until.is_some() || ended.status.success());
    let said = String::from_utf8(ended.stdout).unwrap();
    let mut acknowledged = said
        .lines()
        .filter_map(|line| line.strip_prefix("at ")?.parse().ok());
    acknowledged.next_back()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_byte_is_lost_by_kills_while_parts_are_on_their_way() {
    let Some((test, gate)) = behind_a_gate().await else {
        return;
    };
    let a = name("a");
    let id = test.store.begin_upload(&a).await.unwrap();
    let mut at = 0;
    for _ in 0..KILLS {
        let until = Duration::from_millis(fastrand::u64(100..900));
        at = go_on(&test, &gate, &id, Some(until)).await.unwrap_or(at);
        let found = test.store.upload(&a, &id).await.unwrap().unwrap();
        assert!(found >= at, "{at} bytes were acknowledged, {found} are here");
        at = found;
    }
    go_on(&test, &gate, &id, None).await;
    let content = bytes(LARGE);
    let blob = test
        .store
        .finish_upload(&a, &id, &digest(&content))
        .await
        .unwrap();
    assert!(contents(&test.store, &blob).await == content);
}
