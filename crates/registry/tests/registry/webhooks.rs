//! Events that are passed on: webhooks, and how a registry ends that has some.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use xebec_events::webhooks::{WebhookSettings, Webhooks, signature};
use xebec_events::{EventKind, Listener};

use crate::auth::server::{Server, ok};
use crate::commands;
use crate::telling::event;
use crate::upkeep::Serving;

async fn in_time(mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it did not come about");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
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

/// So many events that come at once, of which one is `odd`.
fn burst(webhooks: &Webhooks, count: usize, odd: usize) {
    for number in 0..count {
        let mut event = event(EventKind::PushBlob);
        event.tags.clear();
        event.repository = format!("team/app-{number}");
        if number == odd {
            event.repository = "team/odd".to_owned();
        }
        webhooks.happened(&event);
    }
}

fn counted(webhooks: &Webhooks) -> [u64; 3] {
    let (_, counters) = webhooks.counters().next().unwrap();
    [&counters.delivered, &counters.dropped, &counters.waiting].map(|counter| counter.load(Ordering::SeqCst))
}

/// Repositories of events that a receiver with this rule has taken, in order.
async fn taken(
    refuses: impl Fn(&str) -> Option<u16> + Send + Sync + Copy + 'static,
) -> (Vec<String>, [u64; 3]) {
    let server = Server::start(
        move |request| match refuses(&String::from_utf8_lossy(&request.body)) {
            Some(status) => Some((status, String::new(), Vec::new())),
            None => ok(""),
        },
    )
    .await;
    let webhooks = Webhooks::start(&[webhook(&server.url, "")], "n").unwrap();
    // While the first fails or goes, the others wait and go together.
    burst(&webhooks, 100, 37);
    in_time(|| counted(&webhooks)[2] == 0).await;
    let requests = server.requests().into_iter();
    let taken = requests.filter(|request| refuses(&String::from_utf8_lossy(&request.body)).is_none());
    let bodies = taken.map(|request| serde_json::from_slice::<Value>(&request.body).unwrap());
    let names = bodies.flat_map(|body| {
        let events = body["events"].as_array().unwrap().clone();
        events
            .into_iter()
            .map(|event| event["target"]["repository"].as_str().unwrap().to_owned())
    });
    (names.collect(), counted(&webhooks))
}

#[tokio::test]
async fn what_is_too_large_for_a_receiver_is_halved_until_it_fits() {
    let (names, counted) = taken(|body| (body.len() > 4096).then_some(413)).await;
    let mut expected: Vec<String> = (0..100).map(|number| format!("team/app-{number}")).collect();
    expected[37] = "team/odd".to_owned();
    assert_eq!(names, expected);
    assert_eq!(counted, [100, 0, 0]);
}

#[tokio::test]
async fn one_event_that_a_receiver_does_not_want_takes_no_others_with_it() {
    let (names, counted) = taken(|body| body.contains("team/odd").then_some(422)).await;
    let expected: Vec<String> = (0..100)
        .filter(|number| *number != 37)
        .map(|number| format!("team/app-{number}"))
        .collect();
    assert_eq!(names, expected);
    assert_eq!(counted, [99, 1, 0]);
}

#[tokio::test]
async fn what_clients_say_of_themselves_is_cut_before_it_is_sent() {
    let server = Server::start(|_| ok("")).await;
    let webhooks = Webhooks::start(&[webhook(&server.url, "")], "n").unwrap();
    let mut large = event(EventKind::PushBlob);
    large.tags.clear();
    large.origin.user_agent = "ä".repeat(60_000);
    large.origin.host = "x".repeat(60_000);
    webhooks.happened(&large);
    in_time(|| !server.requests().is_empty()).await;
    assert!(server.requests()[0].body.len() < 4096);
    assert_eq!(received(&server)[0]["request"]["useragent"], "ä".repeat(300));
}

#[tokio::test]
async fn a_secret_header_comes_from_the_environment() {
    let server = Server::start(|_| ok("")).await;
    // The only variable that is certainly there.
    let settings = webhook(&server.url, "headers_env = { 'authorization' = 'PATH' }");
    settings.check().unwrap();
    let webhooks = Webhooks::start(&[settings], "n").unwrap();
    burst(&webhooks, 1, 1);
    in_time(|| !server.requests().is_empty()).await;
    assert_eq!(
        server.requests()[0].header("authorization"),
        std::env::var("PATH").ok()
    );
    let none = webhook(
        &server.url,
        "headers_env = { 'authorization' = 'XEBEC_NO_SUCH_VARIABLE' }",
    );
    let error = Webhooks::start(&[none], "n").unwrap_err().to_string();
    assert!(error.contains("XEBEC_NO_SUCH_VARIABLE is not set"), "{error}");
}

#[tokio::test]
async fn what_waits_is_sent_before_the_end_and_a_receiver_that_hangs_does_not_hold_it_up() {
    let server = Server::start(|_| {
        std::thread::sleep(Duration::from_millis(20));
        ok("")
    })
    .await;
    let webhooks = Webhooks::start(&[webhook(&server.url, "")], "n").unwrap();
    burst(&webhooks, 500, 500);
    assert_eq!(webhooks.finish(Duration::from_secs(60)).await, 0);
    assert_eq!(received(&server).len(), 500);
    assert_eq!(counted(&webhooks), [500, 0, 0]);
    // It takes no more.
    burst(&webhooks, 1, 1);
    assert_eq!(counted(&webhooks), [500, 1, 0]);

    let held = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hanging = format!("http://{}/", held.local_addr().unwrap());
    let webhooks = Webhooks::start(&[webhook(&hanging, "")], "n").unwrap();
    burst(&webhooks, 5, 5);
    assert_eq!(webhooks.finish(Duration::from_millis(300)).await, 5);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_is_told_to_end_sends_what_waits() {
    let server = Server::start(|_| {
        std::thread::sleep(Duration::from_millis(700));
        ok("")
    })
    .await;
    let root = tempfile::tempdir().unwrap();
    let place = root.path().display();
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let file = root.path().join("registry.toml");
    let text = format!(
        "[server]\nlisten = [\"{port}\"]\n[storage]\nroot = \"{place}/root\"\n\
         [audit]\nfile = \"{place}/audit.log\"\n[[webhook]]\nurl = \"{}\"\n",
        server.url
    );
    std::fs::write(&file, text).unwrap();
    let mut serve = commands::program(&["serve", "--config", file.to_str().unwrap()]);
    let mut serve = Serving(serve.stderr(std::process::Stdio::null()).spawn().unwrap());
    // As in `Running`: it may be there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let begun = Instant::now();
    while client.get(format!("http://{port}/healthz")).send().await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not serve");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for number in 0..5 {
        let content = format!("blob {number}");
        let digest = xebec_store::Digest::of(xebec_store::Algorithm::Sha256, content.as_bytes());
        let address = format!("http://{port}/v2/a/blobs/uploads/?digest={digest}");
        assert_eq!(
            client.post(address).body(content).send().await.unwrap().status(),
            201
        );
    }
    // The first is being sent, and the others wait.
    assert!(received(&server).len() < 5);
    let kill = std::process::Command::new("kill")
        .arg(serve.0.id().to_string())
        .status();
    assert!(kill.unwrap().success());
    let ended = tokio::task::spawn_blocking(move || serve.0.wait().unwrap());
    assert!(ended.await.unwrap().success());
    assert_eq!(received(&server).len(), 5);
    let audit = std::fs::read_to_string(root.path().join("audit.log")).unwrap();
    assert_eq!(audit.lines().count(), 5);
}
