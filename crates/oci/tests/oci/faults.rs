//! Registries that misbehave: what is mended, what it costs, and what is said when it cannot be mended.

use std::time::{Duration, Instant};

use xebec_oci::config::Mirror;
use xebec_oci::{Client, ClientConfig, ClientError, Platform, RangeAnswer};
use xebec_testkit::registry::{Fault, FaultyRegistry, When};

use crate::support::{Image, NAME, SIZE, client, config, repository, setup, setup_http2, status, tagged};

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
async fn http2_faults() {
    let (registry, image, client) = setup_http2(SIZE);
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
