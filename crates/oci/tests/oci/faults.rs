//! Registries that misbehave: what is mended, what it costs, and what is said when it cannot be mended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use xebec_oci::config::Mirror;
use xebec_oci::{
    Budget, Client, ClientConfig, ClientError, Listener, Observer, Outage, Platform, RangeAnswer, Wait,
    listening,
};
use xebec_testkit::registry::{Access, Fault, FaultyRegistry, Options, When};

use crate::support::{Image, NAME, client, config, put_image, repository, tagged};

const SIZE: usize = 1 << 20;

fn setup() -> (FaultyRegistry, Image) {
    let registry = FaultyRegistry::start().unwrap();
    let image = put_image(&registry, SIZE);
    (registry, image)
}

fn status(code: u16, retry_after: Option<&str>) -> Fault {
    Fault::Status {
        code,
        retry_after: retry_after.map(str::to_owned),
    }
}

/// Reads a range while `fault` befalls the first request for it, and checks the bytes. Gives the requests that
/// it took and the bytes that were sent.
async fn mended(when: When, fault: Fault) -> (usize, u64) {
    let (registry, image) = setup();
    registry.inject(when, fault.clone());
    let client = client();
    let range = 100_000..500_000;
    let bytes = client
        .blob_range(&repository(&registry), &image.layer_digest, range)
        .await;
    let bytes = bytes.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    assert!(bytes == image.layer[100_000..500_000], "{fault:?}");
    let log = registry.log();
    (log.len(), log.iter().map(|request| request.bytes_sent).sum())
}

#[tokio::test]
async fn passing_faults_are_mended() {
    for fault in [
        status(500, None),
        status(503, None),
        status(429, Some("0")),
        status(408, None),
        status(416, None),
        Fault::Reset(0),
        Fault::Hang,
        Fault::WrongContentRange,
        Fault::WrongContentLength,
        Fault::Multipart,
    ] {
        let (requests, _) = mended(When::blob().times(1), fault.clone()).await;
        assert_eq!(requests, 2, "{fault:?}");
    }
}

#[tokio::test]
async fn broken_bodies_go_on_where_they_broke() {
    for fault in [
        Fault::Truncate(300_000),
        Fault::Reset(300_000),
        Fault::ShortRange(300_000),
    ] {
        let (requests, bytes) = mended(When::blob().times(1), fault.clone()).await;
        assert_eq!(requests, 2, "{fault:?}");
        // A reset may destroy what was sent but not read yet; nothing else may be fetched twice.
        let most = if matches!(fault, Fault::Reset(_)) {
            700_000
        } else {
            440_000
        };
        assert!(bytes <= most, "{fault:?} cost {bytes} bytes for 400,000");
    }
    let (requests, bytes) = mended(When::blob(), Fault::ShortRange(100_000)).await;
    assert_eq!((requests, bytes), (4, 400_000));
}

#[tokio::test]
async fn a_trickle_is_given_up_and_resumed() {
    let start = Instant::now();
    let (requests, _) = mended(
        When::blob().times(1),
        Fault::Trickle {
            bytes_per_second: 1000,
        },
    )
    .await;
    assert_eq!(requests, 2);
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "took {:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn an_ignored_range_is_read_once() {
    let (requests, bytes) = mended(When::blob(), Fault::IgnoreRange).await;
    assert_eq!(requests, 1);
    assert!(bytes <= SIZE as u64);

    let (registry, image) = setup();
    registry.inject(When::blob(), Fault::IgnoreRange);
    let (client, repository) = (client(), repository(&registry));
    let answer = client
        .blob_range_or_whole(&repository, &image.layer_digest, SIZE as u64, 5..9)
        .await
        .unwrap();
    assert_eq!(client.ranges_honoured(&registry.host()), Some(false));
    let RangeAnswer::Whole(mut stream) = answer else {
        panic!("a part of an ignored range");
    };
    let mut all = Vec::new();
    while let Some(part) = stream.next_part().await.unwrap() {
        all.extend_from_slice(&part);
    }
    assert!(all == image.layer);
    assert_eq!(registry.log().len(), 1);
}

async fn stream_all(client: &Client, registry: &FaultyRegistry, image: &Image, from: u64) -> Vec<u8> {
    let digest = &image.layer_digest;
    let mut stream = client
        .blob_stream(&repository(registry), digest, SIZE as u64, from)
        .await
        .unwrap();
    let mut all = Vec::new();
    while let Some(part) = stream.next_part().await.unwrap() {
        all.extend_from_slice(&part);
    }
    all
}

#[tokio::test]
async fn streams_resume() {
    for fault in [Fault::Truncate(200_000), Fault::Reset(200_000)] {
        let (registry, image) = setup();
        registry.inject(When::blob(), fault.clone());
        // Each try brings 200,000 bytes: more tries than a call has, but each makes progress.
        let all = stream_all(&client(), &registry, &image, 0).await;
        assert!(all == image.layer, "{fault:?}");
        if matches!(fault, Fault::Reset(_)) {
            continue;
        }
        assert_eq!(registry.log().len(), 6, "{fault:?}");
        let sent: u64 = registry.log().iter().map(|request| request.bytes_sent).sum();
        assert!(sent < SIZE as u64 + 300_000, "{fault:?} cost {sent}");
        let ranges: Vec<_> = registry
            .log()
            .iter()
            .filter_map(|request| request.head.range.clone())
            .collect();
        assert_eq!(ranges.len(), 5, "all but the first go on in the middle");
    }
    let (registry, image) = setup();
    assert!(stream_all(&client(), &registry, &image, 1_000_000).await == image.layer[1_000_000..]);
    assert!(
        stream_all(&client(), &registry, &image, SIZE as u64)
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn streams_resume_without_ranges_by_skipping() {
    let (registry, image) = setup();
    registry.inject(When::blob().range(true), Fault::IgnoreRange);
    registry.inject(When::blob().times(1), Fault::Truncate(500_000));
    assert!(stream_all(&client(), &registry, &image, 0).await == image.layer);
    assert_eq!(registry.log().len(), 2);
}

#[tokio::test]
async fn a_blob_of_another_length_is_refused() {
    let (registry, image) = setup();
    let digest = image.layer_digest;
    let error = client()
        .blob_stream(&repository(&registry), &digest, SIZE as u64 - 1, 0)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("announces 1048576"), "{error}");
}

#[tokio::test]
async fn lasting_faults_end_in_an_error_that_names_everything() {
    for (fault, said) in [
        (status(500, None), "status 500"),
        (status(429, None), "limits requests"),
        (Fault::Truncate(1), "ended after 1"),
        (Fault::Reset(0), "connection"),
        (Fault::WrongContentRange, "wrong range"),
        (Fault::Multipart, "several parts"),
        (Fault::ContentEncoding, "compressed"),
        (status(403, None), "xebec login"),
        (status(404, None), "not found"),
    ] {
        let (registry, image) = setup();
        registry.inject(When::blob(), fault.clone());
        let start = Instant::now();
        let result = client()
            .blob_range(&repository(&registry), &image.layer_digest, 10..20)
            .await;
        let text = result.unwrap_err().to_string();
        for part in [
            said,
            &registry.host(),
            NAME,
            &image.layer_digest.to_string(),
            "10..20",
        ] {
            assert!(text.contains(part), "{fault:?}: {part:?} is not in {text:?}");
        }
        assert!(
            registry.log().len() <= 4,
            "{fault:?}: {} requests",
            registry.log().len()
        );
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

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
async fn manifests_survive_the_same_faults() {
    for fault in [
        status(502, None),
        Fault::Truncate(10),
        Fault::WrongBytes,
        Fault::Reset(0),
        Fault::Reset(10),
    ] {
        let (registry, image) = setup();
        registry.inject(When::manifest().times(2), fault.clone());
        let resolved = client()
            .resolve(&tagged(&registry), &Platform::linux("amd64"))
            .await;
        let resolved = resolved.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(resolved.manifest_digest, image.manifest_digest);
    }
    let (registry, _) = setup();
    registry.inject(When::manifest(), Fault::Html);
    let error = client()
        .resolve(&tagged(&registry), &Platform::linux("amd64"))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::Manifest { .. }), "{error}");
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

#[tokio::test]
async fn http2_faults() {
    let registry = FaultyRegistry::with(Options {
        tls: true,
        ..Options::default()
    })
    .unwrap();
    let image = put_image(&registry, SIZE);
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, registry.ca_pem().unwrap()).unwrap();
    let client = Client::new(ClientConfig {
        ca_files: vec![ca],
        ..config()
    })
    .unwrap();
    for fault in [
        Fault::Truncate(300_000),
        Fault::Reset(300_000),
        Fault::Reset(0),
        Fault::Hang,
    ] {
        registry.inject(When::blob().times(1), fault.clone());
        let bytes = client
            .blob_range(&repository(&registry), &image.layer_digest, 0..500_000)
            .await;
        assert!(bytes.unwrap_or_else(|error| panic!("{fault:?}: {error}")) == image.layer[..500_000]);
    }
    assert!(registry.log().iter().all(|request| request.head.http2));
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

#[tokio::test]
async fn damaged_mirrors_are_avoided_and_resting_ones_asked_when_nobody_else_is_there() {
    let (registry, image) = setup();
    let mirror = FaultyRegistry::start().unwrap();
    mirror.put_blob(NAME, image.layer.clone());
    let list = vec![Mirror {
        url: format!("http://{}", mirror.host()),
        resolve_tags: false,
    }];
    let client = Client::new(ClientConfig {
        mirrors: [(registry.host(), list)].into(),
        ..config()
    })
    .unwrap();
    let repository = repository(&registry);
    let read = async |client: &Client| {
        let bytes = client.blob_range(&repository, &image.layer_digest, 0..10).await;
        assert_eq!(bytes.unwrap(), image.layer[..10]);
    };
    read(&client.avoiding(&[mirror.host()])).await;
    assert_eq!((mirror.log().len(), registry.log().len()), (0, 1));
    // The mirror fails and rests, then the registry goes away: the mirror is asked all the same.
    mirror.inject(When::blob().times(1), Fault::Reset(0));
    read(&client).await;
    registry.set_down(true);
    let begin = Instant::now();
    read(&client).await;
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
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
