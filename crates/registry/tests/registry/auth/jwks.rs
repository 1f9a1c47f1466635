//! Keys of issuers: rotated, away, too large, redirected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use xebec_access::jwks::{KeySource, KeysError, Location};
use xebec_access::outgoing::{self, OutgoingError, Redirects};

use super::server::{Answer, Server, ok};
use super::signing::{Issuer, set};

const DAY: Duration = Duration::from_secs(86_400);

fn source(location: Location) -> Arc<KeySource> {
    KeySource::new(
        location,
        outgoing::client(None, Redirects::SameHost).unwrap(),
        None,
        DAY,
    )
}

fn at(url: &str) -> Location {
    Location::Address(outgoing::address(url).unwrap())
}

/// A server whose answer can be changed.
async fn changing(first: Vec<u8>) -> (Server, Arc<Mutex<Answer>>) {
    let answer = Arc::new(Mutex::new(ok(first)));
    let told = Arc::clone(&answer);
    let server = Server::start(move |_| told.lock().clone()).await;
    (server, answer)
}

/// Lets the clock of the source pass without waiting. Nothing of the network is under way meanwhile.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_new_key_counts_as_soon_as_a_token_names_it_and_an_old_one_ends() {
    let (old, new) = (Issuer::ed25519(), Issuer::p256());
    let (server, answer) = changing(set(&[(&old, "old")])).await;
    let source = source(at(&server.url));
    assert!(source.keys(Some("old")).await.unwrap().knows("old"));
    *answer.lock() = ok(set(&[(&new, "new")]));

    // Right after a fetch, an unknown name makes none: forged ones would be a flood.
    for _ in 0..50 {
        assert!(!source.keys(Some("new")).await.unwrap().knows("new"));
    }
    assert_eq!(server.requests().len(), 1);

    pass(Duration::from_secs(11)).await;
    let keys = source.keys(Some("new")).await.unwrap();
    assert!(keys.knows("new") && !keys.knows("old"));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_key_that_was_withdrawn_counts_no_more_after_a_quiet_time() {
    let (old, new) = (Issuer::ed25519(), Issuer::p256());
    let (server, answer) = changing(set(&[(&old, "old")])).await;
    let source = source(at(&server.url));
    assert!(source.keys(Some("old")).await.unwrap().knows("old"));
    *answer.lock() = ok(set(&[(&new, "new")]));
    pass(Duration::from_secs(3600)).await;
    let keys = source.keys(Some("old")).await.unwrap();
    assert!(keys.knows("new") && !keys.knows("old"));
    // While the issuer is away, the last good ones count as before.
    *answer.lock() = None;
    pass(Duration::from_secs(3600)).await;
    assert!(source.keys(Some("new")).await.unwrap().knows("new"));
}

#[tokio::test]
async fn one_fetch_serves_all_that_wait() {
    let issuer = Issuer::ed25519();
    let server = Server::start({
        let set = set(&[(&issuer, "one")]);
        move |_| {
            std::thread::sleep(Duration::from_millis(50));
            ok(set.clone())
        }
    })
    .await;
    let source = source(at(&server.url));
    let waiting: Vec<_> = (0..40)
        .map(|_| {
            let source = Arc::clone(&source);
            tokio::spawn(async move { source.keys(Some("one")).await.unwrap().knows("one") })
        })
        .collect();
    for one in waiting {
        assert!(one.await.unwrap());
    }
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn the_last_good_keys_count_for_a_time_while_the_issuer_is_away() {
    let issuer = Issuer::ed25519();
    let (server, answer) = changing(set(&[(&issuer, "one")])).await;
    let source = source(at(&server.url));
    assert!(source.keys(None).await.is_ok());
    for away in [
        None,
        Some((500, String::new(), Vec::new())),
        ok("damaged"),
        ok("{\"keys\":[]}"),
    ] {
        *answer.lock() = away;
        pass(Duration::from_secs(400)).await;
        // The old ones are given at once, and the fetch goes on beside.
        assert!(source.keys(Some("one")).await.unwrap().knows("one"));
        pass(Duration::from_secs(11)).await;
        assert!(source.keys(Some("other")).await.unwrap().knows("one"));
    }
    pass(DAY).await;
    assert!(matches!(
        source.keys(Some("one")).await,
        Err(KeysError::Unsound(_))
    ));

    *answer.lock() = ok(set(&[(&issuer, "one")]));
    pass(Duration::from_secs(11)).await;
    assert!(source.keys(Some("one")).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_was_never_there_is_asked_again_but_not_by_each_token() {
    let there = Arc::new(AtomicBool::new(false));
    let issuer = Issuer::ed25519();
    let server = Server::start({
        let (there, set) = (Arc::clone(&there), set(&[(&issuer, "one")]));
        move |_| there.load(Ordering::SeqCst).then(|| ok(set.clone())).flatten()
    })
    .await;
    let source = source(at(&server.url));
    for _ in 0..20 {
        let error = source.keys(Some("one")).await.unwrap_err();
        assert!(
            matches!(error, KeysError::Away(OutgoingError::NoAnswer { .. })),
            "{error}"
        );
    }
    let before = server.requests().len();
    assert!(before <= 2, "{before} requests");
    there.store(true, Ordering::SeqCst);
    pass(Duration::from_secs(11)).await;
    assert!(source.keys(Some("one")).await.is_ok());
}

#[tokio::test]
async fn a_file_is_read_again_when_it_has_changed() {
    let (old, new) = (Issuer::ed25519(), Issuer::p256());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    std::fs::write(&path, set(&[(&old, "old")])).unwrap();
    let source = source(Location::File(path.clone()));
    assert!(source.keys(Some("old")).await.unwrap().knows("old"));
    std::fs::write(&path, set(&[(&new, "new")])).unwrap();
    pass(Duration::from_secs(2)).await;
    let keys = source.keys(Some("old")).await.unwrap();
    assert!(
        keys.knows("new") && !keys.knows("old"),
        "a key that was taken out counts no more"
    );
    std::fs::write(&path, "damaged").unwrap();
    pass(Duration::from_secs(2)).await;
    assert!(source.keys(Some("new")).await.unwrap().knows("new"));
}

#[tokio::test]
async fn what_is_too_large_is_not_read_and_another_host_is_not_asked() {
    let large = Server::start(|_| ok(vec![b' '; 400 * 1024])).await;
    let error = source(at(&large.url)).keys(None).await.unwrap_err();
    assert!(
        matches!(error, KeysError::Away(OutgoingError::TooLarge { .. })),
        "{error}"
    );

    let issuer = Issuer::ed25519();
    let keys = set(&[(&issuer, "one")]);
    let asked = Arc::new(AtomicUsize::new(0));
    let other = Server::start({
        let (keys, asked) = (keys.clone(), Arc::clone(&asked));
        move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            ok(keys.clone())
        }
    })
    .await;
    let elsewhere = format!("location: {}", other.url);
    let redirecting = Server::start(move |_| Some((302, elsewhere.clone(), Vec::new()))).await;
    let error = source(at(&redirecting.url)).keys(None).await.unwrap_err();
    assert!(
        matches!(error, KeysError::Away(OutgoingError::Status { status: 302, .. })),
        "{error}"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 0);

    let same = Server::start(move |request| match request.path.as_str() {
        "/keys" => ok(keys.clone()),
        _ => Some((302, "location: /keys".to_owned(), Vec::new())),
    })
    .await;
    assert!(source(at(&same.url)).keys(None).await.is_ok());
}

#[tokio::test]
async fn keys_are_found_by_discovery_and_a_token_stays_with_its_host() {
    let issuer = Issuer::p256();
    let keys = set(&[(&issuer, "one")]);
    let other = Server::start(move |_| ok(keys.clone())).await;
    let keys_elsewhere = format!("{}/keys", other.url);
    let name = Arc::new(Mutex::new(String::new()));
    let issuing = Server::start({
        let name = Arc::clone(&name);
        move |_| ok(json!({"issuer": *name.lock(), "jwks_uri": keys_elsewhere}).to_string())
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "secret\n").unwrap();
    let client = || outgoing::client(None, Redirects::SameHost).unwrap();
    let source = || {
        KeySource::new(
            Location::Issuer(issuing.url.clone()),
            client(),
            Some(token.clone()),
            DAY,
        )
    };

    let error = source().keys(None).await.unwrap_err();
    assert!(matches!(error, KeysError::Discovery { .. }), "{error}");
    *name.lock() = issuing.url.clone();
    assert!(source().keys(Some("one")).await.unwrap().knows("one"));
    let asked = issuing.requests().pop().unwrap();
    assert_eq!(asked.path, "/.well-known/openid-configuration");
    assert_eq!(asked.header("authorization").as_deref(), Some("Bearer secret"));
    assert_eq!(other.requests().pop().unwrap().header("authorization"), None);
}

#[test]
fn plain_http_is_for_this_host_only() {
    for url in [
        "http://127.0.0.1:8080/keys",
        "http://localhost/keys",
        "http://[::1]/keys",
        "https://issuer.example/keys",
    ] {
        assert!(outgoing::address(url).is_ok(), "{url}");
    }
    for url in [
        "http://issuer.example/keys",
        "ftp://x/",
        "file:///etc/passwd",
        "https://a:b@c/",
        "keys",
        "http://127.0.0.1.example/",
    ] {
        assert!(outgoing::address(url).is_err(), "{url}");
    }
}
