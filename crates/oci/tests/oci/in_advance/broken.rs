//! Answers whose bodies break off, stall, or come too slowly: what does not come is asked for by itself.

use std::time::Duration;

use xebec_oci::Client;
use xebec_testkit::registry::{Fault, When};

use super::{PLAIN, Setup, acquainted, ask, log, pieces, setup, start};
use crate::support::config;

#[tokio::test]
async fn what_does_not_come_is_asked_for_by_itself() {
    for cut in [Fault::Truncate, Fault::Reset] {
        let setup = setup();
        let client = acquainted(&setup).await;
        // In the middle of the configuration; the blob and the pieces follow.
        let position = position_of_config(&client, &setup).await;
        setup
            .registry
            .inject(When::any().path("/_xebec/start/answer"), cut(position + 10));
        let answered = ask(&client, &setup).await.unwrap();
        start(&answered, &setup).await;
        assert_eq!(log(&setup), ["POST start", "GET blobs", "GET blobs"]);
        let broken = pieces(&answered, &setup).await.unwrap_err();
        assert!(broken.contains("broke off"), "{broken}");
    }
}

/// Bytes that come too slowly: the rest is asked for by itself, and not waited for again.
#[tokio::test]
async fn what_comes_too_slowly_is_asked_for_by_itself() {
    let setup = setup();
    let mut config = config();
    (config.budget.stall_window, config.budget.stall_bytes) = (Duration::from_secs(1), 1 << 20);
    let client = Client::new(config).unwrap();
    client.check_login(&setup.registry.host()).await.unwrap();
    let position = position_of_config(&client, &setup).await;
    // At the end of the window, the blob has come to its half: the pieces follow it.
    let slow = Fault::Trickle {
        bytes_per_second: position + setup.config.size + setup.blob.size / 2,
    };
    setup
        .registry
        .inject(When::any().path("/_xebec/start/answer"), slow);
    let answered = ask(&client, &setup).await;
    start(answered.as_ref().unwrap_or(&client), &setup).await;
    // On a busy machine less has come by then. Whatever has not is asked for by itself, in the order of a start.
    let log = log(&setup);
    let (mut plain, asked) = (PLAIN.iter(), &log[1..]);
    assert!(
        asked.iter().all(|asked| plain.any(|line| line == asked)),
        "{log:?}"
    );
    assert_eq!(asked.last().unwrap(), "GET blobs");
    if let Some(answered) = answered {
        let broken = pieces(&answered, &setup).await.unwrap_err();
        assert!(broken.contains("broke off"), "{broken}");
    }
}

/// One wait in vain is for all that is still to come.
#[tokio::test]
async fn a_body_that_stalls_is_waited_for_once() {
    for stall_window in [Duration::from_secs(3), Duration::from_secs(600)] {
        let setup = setup();
        let mut config = config();
        config.budget.stall_window = stall_window;
        let client = Client::new(config).unwrap();
        client.check_login(&setup.registry.host()).await.unwrap();
        setup.registry.clear_log();
        let position = position_of_config(&client, &setup).await;
        setup.registry.inject(
            When::any().path("/_xebec/start/answer"),
            Fault::Stall(position - 10),
        );
        let answered = ask(&client, &setup).await.unwrap();
        // With the second window each of the four that are missing would be waited for ten seconds, one after the other.
        let calls = async {
            start(&answered, &setup).await;
            assert!(pieces(&answered, &setup).await.is_err());
        };
        tokio::time::timeout(Duration::from_secs(29), calls)
            .await
            .unwrap();
        let asked = ["POST start", "GET blobs", "GET manifests", "GET blobs"];
        assert_eq!(log(&setup), asked);
    }
}

/// Where the configuration begins, in the body of an answer: the blob and the pieces follow it.
async fn position_of_config(client: &Client, setup: &Setup) -> u64 {
    let answered = ask(client, setup).await.unwrap();
    let pieces = pieces(&answered, setup).await.unwrap().len() as u64;
    let all = setup.registry.log().last().unwrap().bytes_sent;
    setup.registry.clear_log();
    all - pieces - setup.blob.size - setup.config.size
}
