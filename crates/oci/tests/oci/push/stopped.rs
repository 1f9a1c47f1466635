//! Pushes that find the place of an upload that was stopped, and registries that do not take an upload in pieces to its end.

use xebec_testkit::registry::LoggedRequest;

use super::*;
use crate::support::{setup_http2, status};

/// Bytes of a piece.
const PIECE: u64 = 16 << 20;
/// Size of the blob: a piece and a part of one.
const LENGTH: u64 = 20 << 20;

fn blob() -> Bytes {
    noise(1 << 20).repeat(20).into()
}

/// Pushes the blob to its end.
async fn push(client: &Client, registry: &FaultyRegistry, kept: &Kept) {
    let source = BlobSource::Bytes(blob());
    let pushed = client
        .push_blob_keeping(&repository(registry), source, None, Some(kept))
        .await
        .unwrap();
    assert_eq!(pushed.1, BlobUpload::Sent);
    assert!(registry.blob(NAME, &pushed.0).unwrap() == blob());
    assert!(kept.is_over());
    registry.remove_blob(NAME, &pushed.0);
}

/// A push that is stopped after its first piece.
async fn stopped(registry: &FaultyRegistry) -> Kept {
    let kept = Kept::default();
    registry.inject(When::any().method("PATCH").skip(1).times(1000), Fault::Reset(0));
    let source = BlobSource::Bytes(blob());
    let pushed = client()
        .push_blob_keeping(&repository(registry), source, None, Some(&kept))
        .await;
    pushed.unwrap_err();
    assert!(!kept.is_over());
    registry.clear_faults();
    registry.clear_log();
    kept
}

fn requests(registry: &FaultyRegistry, method: &str) -> usize {
    let is_one = |request: &&LoggedRequest| request.head.method == method;
    registry.log().iter().filter(is_one).count()
}

/// The question for an upload.
fn question() -> When {
    When::any().method("GET").path("/blobs/uploads/")
}

#[tokio::test]
async fn a_place_that_has_no_answer_is_given_up() {
    let registry = FaultyRegistry::start().unwrap();
    let path = format!("/v2/{NAME}/blobs/uploads/1");
    for origin in [
        // Nobody listens there.
        "http://127.0.0.1:1".to_owned(),
        // It speaks no TLS.
        format!("https://{}", registry.host()),
    ] {
        push(&client(), &registry, &Kept::at(&format!("{origin}{path}"))).await;
    }
    let lasting = |fault| (question().times(1000), fault);
    for (when, fault) in [
        lasting(status(500, None)),
        lasting(status(403, None)),
        lasting(Fault::Reset(0)),
        lasting(Fault::Hang),
    ] {
        let kept = stopped(&registry).await;
        registry.inject(when, fault);
        let client = client();
        push(&client, &registry, &kept).await;
        assert_eq!(client.stats().bytes_sent, LENGTH);
        registry.clear_faults();
    }
}

#[tokio::test]
async fn a_busy_registry_still_has_the_upload() {
    let registry = FaultyRegistry::start().unwrap();
    for fault in [
        status(429, Some("1")),
        status(503, Some("1")),
        status(408, None),
        status(502, None),
    ] {
        let kept = stopped(&registry).await;
        registry.inject(question().times(2), fault.clone());
        let client = client();
        push(&client, &registry, &kept).await;
        assert_eq!(client.stats().bytes_sent, LENGTH - PIECE, "{fault:?}");
        assert_eq!(requests(&registry, "GET"), 3, "{fault:?}");
        // The same in answer to a piece.
        let kept = stopped(&registry).await;
        registry.inject(When::any().method("PATCH").times(1), fault.clone());
        push(&self::client(), &registry, &kept).await;
        assert_eq!(requests(&registry, "POST"), 0, "{fault:?}");
    }
    for code in [400, 404, 409, 410, 416] {
        let kept = stopped(&registry).await;
        registry.inject(question().times(1000), status(code, None));
        let client = client();
        push(&client, &registry, &kept).await;
        assert_eq!(client.stats().bytes_sent, LENGTH, "{code}");
        assert_eq!(requests(&registry, "GET"), 1, "{code}");
        registry.clear_faults();
    }
}

/// The registry says where the upload is, and fails when it is to go on with it.
#[tokio::test]
async fn an_upload_that_is_stuck_is_given_up() {
    let registry = FaultyRegistry::start().unwrap();
    for (times, anew) in [(2, 0), (3, 1)] {
        let kept = stopped(&registry).await;
        registry.inject(When::any().method("PATCH").times(times), status(500, None));
        push(&client(), &registry, &kept).await;
        assert_eq!(requests(&registry, "POST"), anew);
    }
}

#[tokio::test]
async fn an_upload_goes_on_with_a_new_token() {
    let registry = FaultyRegistry::with(Options {
        access: Access::anonymous_tokens(std::time::Duration::from_secs(300)),
        ..Options::default()
    })
    .unwrap();
    let kept = stopped(&registry).await;
    registry.inject(question().times(1), Fault::ExpireTokens);
    let client = client();
    push(&client, &registry, &kept).await;
    assert_eq!(client.stats().bytes_sent, LENGTH - PIECE);
}

/// One that takes a piece and no second one, and one that loses the upload at its end.
#[tokio::test]
async fn a_registry_that_loses_an_upload_in_pieces_gets_all_at_once() {
    let registry = FaultyRegistry::start().unwrap();
    let second_piece = When::any().method("PATCH").skip(1).times(1000);
    let end = When::any().method("PUT").path("/blobs/uploads/").times(1);
    for when in [second_piece, end] {
        for code in [400, 404, 416] {
            registry.inject(when.clone(), status(code, None));
            push(&client(), &registry, &Kept::default()).await;
            assert_eq!(requests(&registry, "POST"), 2, "{code}");
            registry.clear_faults();
            registry.clear_log();
        }
    }
}

/// The place is of a time when the registry was spoken to without TLS.
#[tokio::test]
async fn a_place_without_tls_is_not_asked_for_a_registry_with_it() {
    let (registry, _, client) = setup_http2(1000);
    let listener = FaultyRegistry::start().unwrap();
    let place = format!("http://{}/v2/{NAME}/blobs/uploads/1", listener.host());
    push(&client, &registry, &Kept::at(&place)).await;
    assert_eq!(listener.log().len(), 0);
}
