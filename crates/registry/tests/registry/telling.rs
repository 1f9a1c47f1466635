//! What is written down and passed on: the audit log and webhooks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use xebec_access::{Action, Need, Observer, Peer, Refusal};
use xebec_events::audit::{Audit, AuditSettings, MAX_LINE, Pulls};
use xebec_events::webhooks::{WebhookSettings, Webhooks, signature};
use xebec_events::{Event, EventKind, Gone, Listener, Origin, Thing};

use crate::auth::server::{Server, ok};

fn event(kind: EventKind) -> Event {
    Event {
        kind,
        time: SystemTime::now(),
        repository: "team/app".to_owned(),
        digest: Some(format!("sha256:{}", "a".repeat(64))),
        tags: vec!["v1".to_owned(), "latest".to_owned()],
        media_type: Some("application/vnd.oci.image.manifest.v1+json".to_owned()),
        size: Some(1234),
        from: None,
        origin: Origin {
            user: Some("anna".to_owned()),
            peer: Some("192.0.2.7:4711".parse().unwrap()),
            request_id: "r1".to_owned(),
            host: "registry.example".to_owned(),
            user_agent: "docker/29".to_owned(),
            method: "PUT".to_owned(),
        },
    }
}

/// Waits until something is so, since a thread or a task brings it about.
fn eventually(mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it did not come about");
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn in_time(mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it did not come about");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn audit(directory: &tempfile::TempDir, pulls: Pulls) -> (Arc<Audit>, std::path::PathBuf) {
    let path = directory.path().join("audit.log");
    let file = Some(path.clone());
    (Audit::open(&AuditSettings { file, pulls }).unwrap(), path)
}

fn lines(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn each_change_is_a_line_and_pulls_as_wished() {
    for (pulls, expected) in [
        (Pulls::None, &["push-manifest", "delete-tag"][..]),
        (
            Pulls::Manifests,
            &["push-manifest", "pull-manifest", "delete-tag"],
        ),
        (
            Pulls::All,
            &["push-manifest", "pull-manifest", "pull-blob", "delete-tag"],
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (audit, path) = audit(&directory, pulls);
        for kind in [
            EventKind::PushManifest,
            EventKind::PullManifest,
            EventKind::PullBlob,
            EventKind::DeleteTag,
        ] {
            audit.happened(&event(kind));
        }
        eventually(|| lines(&path).len() == expected.len());
        let written = lines(&path);
        let kinds: Vec<&str> = written
            .iter()
            .map(|line| line["event"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, expected);
        let first = &written[0];
        assert_eq!(first["user"], "anna");
        assert_eq!(first["address"], "192.0.2.7:4711");
        assert_eq!(first["repository"], "team/app");
        assert_eq!(first["tags"][1], "latest");
        assert_eq!(first["request_id"], "r1");
    }
}

#[test]
fn a_line_is_bounded_and_one_line_whatever_clients_say() {
    let directory = tempfile::tempdir().unwrap();
    let (audit, path) = audit(&directory, Pulls::All);
    let mut large = event(EventKind::PushManifest);
    // Six bytes each, once written as JSON.
    large.origin.user_agent = "\u{1}\n\"".repeat(100_000);
    large.origin.host = "\u{1}".repeat(100_000);
    large.repository = "\u{1}".repeat(100_000);
    large.tags = vec!["\u{1}".repeat(1000); 5000];
    large.media_type = Some("\u{1}".repeat(1000));
    audit.happened(&large);
    audit.happened(&event(EventKind::PushManifest));
    eventually(|| {
        std::fs::read(&path)
            .unwrap()
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            == 2
    });
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.lines().all(|line| line.len() < MAX_LINE));
    assert_eq!(lines(&path)[0]["shortened"], true);
    assert_eq!(lines(&path)[0]["user"], "anna");
}

#[test]
fn the_log_may_be_moved_away() {
    let directory = tempfile::tempdir().unwrap();
    let (audit, path) = audit(&directory, Pulls::All);
    let old = directory.path().join("audit.log.1");
    audit.happened(&event(EventKind::PushManifest));
    eventually(|| lines(&path).len() == 1);
    std::fs::rename(&path, &old).unwrap();
    audit.happened(&event(EventKind::DeleteTag));
    eventually(|| lines(&path).len() == 1);
    assert_eq!(lines(&old)[0]["event"], "push-manifest");
    assert_eq!(lines(&path)[0]["event"], "delete-tag");
    // What cannot be written is counted, and told when it can.
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    audit.happened(&event(EventKind::DeleteTag));
    eventually(|| audit.lost() == 1);
    std::fs::remove_dir(&path).unwrap();
    audit.happened(&event(EventKind::PushBlob));
    eventually(|| lines(&path).len() == 2);
    assert_eq!(lines(&path)[1]["lines"], 1);
}

#[test]
fn what_the_registry_lets_go_is_a_line_with_the_rule() {
    let directory = tempfile::tempdir().unwrap();
    let (audit, path) = audit(&directory, Pulls::None);
    let tags: Vec<String> = (0..12).map(|number| format!("v{number}")).collect();
    for what in [
        Thing::Tag("ci-1".to_owned()),
        Thing::Manifest,
        Thing::Copy { tags, manifests: 3 },
    ] {
        audit.let_go(&Gone {
            repository: "team/app".to_owned(),
            what,
            digest: "sha256:1".to_owned(),
            why: "[[retention]] 1".to_owned(),
        });
    }
    assert_eq!(audit.finish(), 0);
    let lines = lines(&path);
    let of = |name: &str| lines.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("event"), ["delete-tag", "delete-manifest", "delete-copy"]);
    assert_eq!(of("rule"), ["[[retention]] 1"; 3]);
    assert_eq!(of("digest"), ["sha256:1"; 3]);
    assert_eq!(of("manifests"), [Value::Null, Value::Null, 3.into()]);
    let tags = of("tags").into_iter().map(|tags| tags.as_array().unwrap().len());
    assert_eq!(tags.collect::<Vec<_>>(), [1, 0, 10]);
}

#[test]
fn refusals_are_written_down_once_somebody_showed_who_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let (audit, path) = audit(&directory, Pulls::None);
    let request = |authorization: Option<&str>| {
        let mut request = hyper::Request::put("/v2/team/app/manifests/v1").header("user-agent", "crane");
        if let Some(value) = authorization {
            request = request.header("authorization", value);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        parts.extensions.insert(Peer("192.0.2.7:1".parse().unwrap()));
        parts
    };
    let needs = [Need {
        repository: "team/app".to_owned(),
        action: Action::Push,
    }];
    let unauthorized = Refusal::Unauthorized {
        challenge: String::new(),
        detail: "the name or the password is wrong".to_owned(),
    };
    audit.refused(&request(None), &needs, &unauthorized);
    audit.refused(&request(Some("Basic YW5uYTpzZWNyZXQ=")), &needs, &unauthorized);
    audit.refused(
        &request(Some("Bearer a.b.c")),
        &needs,
        &Refusal::Denied {
            detail: "no".to_owned(),
        },
    );
    eventually(|| lines(&path).len() == 2);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        !text.contains("secret") && !text.contains("YW5u") && !text.contains("a.b.c"),
        "{text}"
    );
    let lines = lines(&path);
    assert_eq!(lines[0]["claimed_user"], "anna");
    assert_eq!(lines[0]["outcome"], "unauthorized");
    assert_eq!(lines[0]["needs"][0], "push team/app");
    assert_eq!(lines[0]["address"], "192.0.2.7:1");
    assert_eq!(lines[1]["outcome"], "denied");
}

fn webhook(url: &str, more: &str) -> WebhookSettings {
    toml::from_str(&format!("url = '{url}'\n{more}")).unwrap()
}

/// All events that a receiver got, in order.
fn received(server: &Server) -> Vec<Value> {
    let bodies = server
        .requests()
        .into_iter()
        .map(|request| serde_json::from_slice::<Value>(&request.body).unwrap());
    bodies
        .flat_map(|body| body["events"].as_array().unwrap().clone())
        .collect()
}

#[tokio::test]
async fn receivers_get_events_in_the_format_of_the_cncf_registry() {
    let server = Server::start(|_| ok("")).await;
    let settings = webhook(&server.url, "headers = { 'x-more' = 'yes' }");
    let webhooks = Webhooks::start(&[settings], "node-1").unwrap();
    webhooks.happened(&event(EventKind::PushManifest));
    webhooks.happened(&event(EventKind::PullManifest));
    let mut mount = event(EventKind::MountBlob);
    mount.from = Some("team/base".to_owned());
    mount.tags.clear();
    mount.origin.user = None;
    webhooks.happened(&mount);
    in_time(|| received(&server).len() == 3).await;
    let events = received(&server);
    let digest = format!("sha256:{}", "a".repeat(64));
    for (event, tag) in events.iter().zip(["v1", "latest"]) {
        assert_eq!(event["action"], "push");
        assert_eq!(event["target"]["tag"], tag);
        assert_eq!(event["target"]["digest"], digest);
        assert_eq!(event["target"]["length"], 1234);
        assert_eq!(event["target"]["repository"], "team/app");
        assert_eq!(event["target"]["url"], format!("/v2/team/app/manifests/{digest}"));
        assert_eq!(event["actor"]["name"], "anna");
        assert_eq!(event["request"]["addr"], "192.0.2.7:4711");
        assert_eq!(event["source"]["instanceID"], "node-1");
        assert_eq!(event["id"].as_str().unwrap().len(), 36);
    }
    assert_eq!(events[2]["action"], "mount");
    assert_eq!(events[2]["target"]["fromRepository"], "team/base");
    assert_eq!(events[2]["actor"], serde_json::json!({}));
    let request = server.requests().remove(0);
    assert_eq!(
        request.header("content-type").as_deref(),
        Some("application/vnd.docker.distribution.events.v1+json")
    );
    assert_eq!(request.header("x-more").as_deref(), Some("yes"));
    assert_eq!(request.header("x-xebec-signature-256"), None);
}

#[tokio::test]
async fn only_the_events_and_repositories_that_were_asked_for_are_sent() {
    let server = Server::start(|_| ok("")).await;
    let deletes = webhook(&server.url, "events = ['delete']\nrepositories = 'team/**'");
    let webhooks = Webhooks::start(&[deletes], "n").unwrap();
    webhooks.happened(&event(EventKind::PushManifest));
    let mut other = event(EventKind::DeleteTag);
    other.repository = "other".to_owned();
    webhooks.happened(&other);
    webhooks.happened(&event(EventKind::DeleteBlob));
    in_time(|| !received(&server).is_empty()).await;
    assert!(
        received(&server)
            .iter()
            .all(|event| event["action"] == "delete" && event["target"]["repository"] == "team/app")
    );
}

#[test]
fn a_signature_is_the_hmac_of_the_body() {
    // RFC 4231, test case 2.
    assert_eq!(
        signature(b"Jefe", b"what do ya want for nothing?"),
        "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

#[tokio::test]
async fn what_fails_is_sent_again_in_order_and_signed() {
    let failures = Arc::new(AtomicUsize::new(2));
    let server = Server::start({
        let failures = Arc::clone(&failures);
        move |_| match failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(2) => Some((503, String::new(), Vec::new())),
            Ok(_) => None,
            Err(_) => ok(""),
        }
    })
    .await;
    // The only variable that is certainly there.
    let webhooks = Webhooks::start(&[webhook(&server.url, "secret_env = 'PATH'")], "n").unwrap();
    let mut first = event(EventKind::PushBlob);
    first.tags.clear();
    webhooks.happened(&first);
    in_time(|| server.requests().len() == 1).await;
    let mut second = first.clone();
    second.kind = EventKind::DeleteBlob;
    webhooks.happened(&second);
    in_time(|| {
        webhooks
            .counters()
            .next()
            .unwrap()
            .1
            .delivered
            .load(Ordering::SeqCst)
            == 2
    })
    .await;
    let actions: Vec<Value> = received(&server)
        .into_iter()
        .map(|event| event["action"].clone())
        .collect();
    assert_eq!(actions, ["push", "push", "push", "delete"]);
    let secret = std::env::var("PATH").unwrap();
    for request in server.requests() {
        assert_eq!(
            request.header("x-xebec-signature-256"),
            Some(signature(secret.as_bytes(), &request.body))
        );
    }
}

#[tokio::test]
async fn a_receiver_that_hangs_holds_up_nobody_and_the_queue_is_bounded() {
    let held = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hanging = format!("http://{}/", held.local_addr().unwrap());
    let other = Server::start(|_| ok("")).await;
    let settings = [
        webhook(&hanging, "queue = 10"),
        webhook(&other.url, "queue = 1000"),
    ];
    let webhooks = Webhooks::start(&settings, "n").unwrap();
    let begun = Instant::now();
    for _ in 0..200 {
        webhooks.happened(&event(EventKind::DeleteTag));
    }
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "a request would have waited {:?}",
        begun.elapsed()
    );
    let dropped = webhooks
        .counters()
        .next()
        .unwrap()
        .1
        .dropped
        .load(Ordering::SeqCst);
    assert!(dropped >= 380, "only {dropped} were dropped");
    in_time(|| received(&other).len() == 400).await;
    drop(held);
}

#[tokio::test]
async fn what_the_receiver_calls_wrong_is_given_up_and_the_next_is_sent() {
    let server = Server::start(|request| {
        let wrong = String::from_utf8_lossy(&request.body).contains("\"push\"");
        if wrong {
            Some((400, String::new(), Vec::new()))
        } else {
            ok("")
        }
    })
    .await;
    let webhooks = Webhooks::start(&[webhook(&server.url, "")], "n").unwrap();
    let mut first = event(EventKind::PushBlob);
    first.tags.clear();
    webhooks.happened(&first);
    in_time(|| server.requests().len() == 3).await;
    first.kind = EventKind::DeleteBlob;
    webhooks.happened(&first);
    in_time(|| {
        webhooks
            .counters()
            .next()
            .unwrap()
            .1
            .delivered
            .load(Ordering::SeqCst)
            == 1
    })
    .await;
    assert_eq!(
        webhooks
            .counters()
            .next()
            .unwrap()
            .1
            .dropped
            .load(Ordering::SeqCst),
        1
    );
}

#[tokio::test]
async fn mistakes_of_the_configuration_are_told_at_the_start() {
    for (more, expected) in [
        (
            "secret_env = 'XEBEC_NO_SUCH_VARIABLE'",
            "XEBEC_NO_SUCH_VARIABLE is not set",
        ),
        ("headers = { 'a b' = 'x' }", "\"a b\""),
        ("headers = { 'a' = \"x\\ny\" }", "\"a\""),
        ("ca_file = '/not/there'", "/not/there"),
    ] {
        let error = Webhooks::start(&[webhook("http://127.0.0.1:1/", more)], "n")
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = Webhooks::start(&[webhook("http://receiver.example/", "")], "n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("http:// is for this host"), "{error}");
}
