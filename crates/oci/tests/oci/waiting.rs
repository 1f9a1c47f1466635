//! How long a call waits for a registry that is away or busy, and what it tells those who wait for the call.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use xebec_oci::{Budget, Client, ClientConfig, ClientError, Listener, Observer, Outage, Wait, listening};
use xebec_testkit::registry::{Access, Fault, FaultyRegistry, Options, When};

use crate::support::{SIZE, client, config, put_image, repository, setup, status};

#[tokio::test]
async fn retry_after_is_obeyed() {
    let (registry, image) = setup();
    registry.inject(When::blob().times(1), status(429, Some("1")));
    let start = Instant::now();
    client()
        .blob_range(&repository(&registry), &image.layer_digest, 0..10)
        .await
        .unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
    // Longer than the call may last: said at once.
    registry.inject(When::blob().times(1), status(429, Some("3600")));
    let start = Instant::now();
    let error = client()
        .blob_range(&repository(&registry), &image.layer_digest, 0..10)
        .await
        .unwrap_err();
    assert!(
        matches!(error, ClientError::RateLimited { attempts: 1, .. }),
        "{error}"
    );
    // And the next call is not held back.
    client()
        .blob_range(&repository(&registry), &image.layer_digest, 0..10)
        .await
        .unwrap();
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_registry_that_comes_back() {
    let (registry, image) = setup();
    let client = Client::new(ClientConfig {
        budget: Budget {
            attempts: 100,
            base_delay: Duration::from_millis(20),
            ..config().budget
        },
        ..config()
    })
    .unwrap();
    let repository = repository(&registry);
    client
        .blob_range(&repository, &image.layer_digest, 0..10)
        .await
        .unwrap();
    registry.set_down(true);
    let reads = (0..20u64).map(|n| client.blob_range(&repository, &image.layer_digest, n..n + 10));
    let reads = futures_util::future::join_all(reads);
    let back = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        registry.set_down(false);
    };
    let (results, ()) = tokio::join!(reads, back);
    assert!(results.into_iter().all(|result| result.is_ok()));
}

#[tokio::test]
async fn concurrency_is_bounded() {
    let (registry, image) = setup();
    let client = Client::new(ClientConfig {
        budget: Budget {
            max_concurrent_per_registry: 4,
            ..config().budget
        },
        ..config()
    })
    .unwrap();
    let repository = repository(&registry);
    // The head of an answer that takes its time, and the body.
    for slow in [
        Fault::Delay(Duration::from_millis(100)),
        Fault::Trickle {
            bytes_per_second: 100,
        },
    ] {
        registry.clear_faults();
        registry.inject(When::blob(), slow.clone());
        let start = Instant::now();
        let reads = (0..16u64).map(|n| client.blob_range(&repository, &image.layer_digest, n..n + 20));
        assert!(
            futures_util::future::join_all(reads)
                .await
                .into_iter()
                .all(|result| result.is_ok())
        );
        assert!(
            start.elapsed() >= Duration::from_millis(400),
            "16 reads of 0.1 s, 4 at once, {slow:?}: {:?}",
            start.elapsed()
        );
    }
    let connections: std::collections::BTreeSet<u64> = registry
        .log()
        .iter()
        .map(|request| request.head.connection)
        .collect();
    assert!(connections.len() <= 4, "{connections:?}");
}

/// Writes down what it is told.
#[derive(Debug, Default)]
struct Notes {
    waits: Mutex<Vec<Wait>>,
    retries: Mutex<Vec<String>>,
    received: Mutex<Vec<(String, u64)>>,
}

impl Observer for Notes {
    fn waits(&self, wait: Wait) {
        let mut waits = self.waits.lock();
        if waits.last() != Some(&wait) {
            waits.push(wait);
        }
    }

    fn received(&self, from: &str, bytes: u64) {
        self.received.lock().push((from.to_owned(), bytes));
    }

    fn retries(&self, fault: &xebec_oci::Fault) {
        self.retries.lock().push(fault.to_string());
    }
}

#[tokio::test]
async fn an_observer_is_told_what_a_call_waits_for() {
    let registry = FaultyRegistry::with(Options {
        access: Access::anonymous_tokens(Duration::from_secs(60)),
        ..Options::default()
    })
    .unwrap();
    let image = put_image(&registry, SIZE);
    registry.inject(When::blob().skip(1).times(1), status(503, None));
    let notes = Arc::new(Notes::default());
    let client = client().observed(notes.clone());
    client
        .blob_range(&repository(&registry), &image.layer_digest, 0..1000)
        .await
        .unwrap();
    let waits = notes.waits.lock().clone();
    // Asked without a token, with one, and once more.
    let once = [Wait::Place, Wait::Head, Wait::Body];
    let with_token = [Wait::Token, Wait::Head, Wait::Body, Wait::Pause];
    assert_eq!(waits, [&once[..], &with_token[..], &once[..]].concat());
    let retries = notes.retries.lock().clone();
    assert!(
        matches!(&retries[..], [one] if one.contains("503")),
        "{retries:?}"
    );
    assert_eq!(*notes.received.lock(), [(registry.host(), 1000)]);
    assert_eq!(client.stats().retries, 1);
}

#[tokio::test]
async fn patient_calls_outlast_what_calls_with_a_budget_do_not() {
    let (registry, image) = setup();
    let client = Client::new(ClientConfig {
        budget: Budget {
            attempts: 2,
            retry_burst: 1,
            ..config().budget
        },
        ..config()
    })
    .unwrap();
    let repository = repository(&registry);
    let read = |client: Client| {
        let (repository, digest) = (repository.clone(), image.layer_digest);
        async move { client.blob_range(&repository, &digest, 0..10).await }
    };
    read(client.clone()).await.unwrap();
    registry.set_down(true);
    assert!(read(client.clone()).await.is_err());
    let patient = client.patient_until(tokio::time::Instant::now() + Duration::from_secs(30));
    let reads = futures_util::future::join_all((0..40).map(|_| read(patient.clone())));
    let back = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        registry.set_down(false);
        Instant::now()
    };
    let (results, back) = tokio::join!(reads, back);
    assert!(results.into_iter().all(|result| result.is_ok()));
    // By the bucket alone, forty would take their turns for ten seconds.
    assert!(back.elapsed() < Duration::from_secs(3), "{:?}", back.elapsed());
}

/// A call that is given up at once has not waited, and nobody is told that a wait is over.
#[tokio::test]
async fn the_end_of_a_wait_is_told_to_who_was_told_of_the_wait() {
    for (attempts, wanted) in [(1, vec![]), (2, vec!["waits", "over"])] {
        let config = config();
        let client = Client::new(ClientConfig {
            budget: Budget {
                attempts,
                ..config.budget
            },
            ..config
        });
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener: Listener = Arc::new({
            let heard = heard.clone();
            move |outage| {
                heard.lock().push(match outage {
                    Outage::Waits { .. } => "waits",
                    Outage::Over { .. } => "over",
                });
            }
        });
        let probed = listening(listener, client.unwrap().probe("127.0.0.1:1", None)).await;
        probed.unwrap_err();
        assert_eq!(*heard.lock(), wanted, "{attempts} attempts");
    }
}
