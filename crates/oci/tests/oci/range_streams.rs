//! Ranges of blobs as streams: what comes is what was asked for and comes as it arrives, however the registry misbehaves.

use std::ops::Range;

use xebec_oci::{BlobStream, Client, ClientError};
use xebec_testkit::registry::{Fault, FaultyRegistry, When};

use crate::support::{Image, NAME, SIZE, client, repository, setup};

const RANGE: Range<u64> = 100_000..500_000;

fn status(code: u16) -> Fault {
    Fault::Status {
        code,
        retry_after: None,
    }
}

async fn open(
    client: &Client,
    registry: &FaultyRegistry,
    image: &Image,
    range: Range<u64>,
) -> Result<BlobStream, ClientError> {
    let repository = repository(registry);
    client
        .blob_range_stream(&repository, &image.layer_digest, SIZE as u64, range)
        .await
}

/// The bytes that come until the end or an error.
async fn read(stream: &mut BlobStream) -> (Vec<u8>, Option<ClientError>) {
    let mut all = Vec::new();
    loop {
        match stream.next_part().await {
            Ok(Some(part)) => {
                assert!(!part.is_empty());
                all.extend_from_slice(&part);
            }
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(error)),
        }
    }
}

/// Reads [`RANGE`] while `fault` befalls requests, and checks the bytes. Gives requests, bytes sent, and retries.
async fn mended(when: When, fault: Fault) -> (usize, u64, u64) {
    let (registry, image) = setup();
    registry.inject(when, fault.clone());
    let client = client();
    let mut stream = open(&client, &registry, &image, RANGE)
        .await
        .unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    let (bytes, error) = read(&mut stream).await;
    assert!(error.is_none(), "{fault:?}: {error:?}");
    assert!(bytes == image.layer[100_000..500_000], "{fault:?}");
    let log = registry.log();
    let sent = log.iter().map(|request| request.bytes_sent).sum();
    (log.len(), sent, client.stats().retries)
}

#[tokio::test]
async fn any_range_comes_over_one_connection() {
    let (registry, image) = setup();
    let client = client();
    let size = SIZE as u64;
    let ranges = [0..1, 0..size, 5..size, 77_777..77_778, RANGE];
    for range in ranges.clone() {
        let mut stream = open(&client, &registry, &image, range.clone()).await.unwrap();
        let (bytes, error) = read(&mut stream).await;
        assert!(error.is_none(), "{range:?}: {error:?}");
        assert!(
            bytes == image.layer[range.start as usize..range.end as usize],
            "{range:?}"
        );
    }
    let log = registry.log();
    assert_eq!(log.len(), ranges.len());
    let sent: u64 = log.iter().map(|request| request.bytes_sent).sum();
    let asked: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    assert_eq!(sent, asked);
    assert!(
        log.iter()
            .all(|request| request.head.connection == log[0].head.connection)
    );
    assert_eq!(client.ranges_honoured(&registry.host()), Some(true));
}

#[tokio::test]
async fn passing_faults_are_mended() {
    for fault in [
        status(500),
        status(429),
        status(416),
        Fault::Reset(0),
        Fault::Hang,
        Fault::WrongContentRange,
        Fault::WrongContentLength,
        Fault::Multipart,
        Fault::Html,
    ] {
        let (requests, _, retries) = mended(When::blob().times(1), fault.clone()).await;
        assert_eq!((requests, retries), (2, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn broken_bodies_go_on_where_they_broke() {
    for fault in [Fault::Truncate(300_000), Fault::Reset(300_000)] {
        let (requests, bytes, _) = mended(When::blob().times(1), fault.clone()).await;
        assert_eq!(requests, 2, "{fault:?}");
        // A reset may destroy what was sent but not read yet; nothing else may be fetched twice.
        let most = if matches!(fault, Fault::Reset(_)) {
            700_000
        } else {
            440_000
        };
        assert!(bytes <= most, "{fault:?} cost {bytes} bytes for 400,000");
    }
    let slow = Fault::Trickle {
        bytes_per_second: 1000,
    };
    assert_eq!(mended(When::blob().times(1), slow).await.0, 2);
    // More breaks than a call has tries, but each try makes progress.
    let (requests, ..) = mended(When::blob(), Fault::Truncate(70_000)).await;
    assert_eq!(requests, 6);
}

#[tokio::test]
async fn a_part_of_the_range_is_no_fault() {
    let answer = mended(When::blob(), Fault::ShortRange(100_000)).await;
    assert_eq!(answer, (4, 400_000, 0));
}

#[tokio::test]
async fn of_an_ignored_range_the_wanted_part_is_given() {
    let (requests, ..) = mended(When::blob(), Fault::IgnoreRange).await;
    assert_eq!(requests, 1);
    // Only the server that answers after a break ignores ranges.
    let (registry, image) = setup();
    registry.inject(When::blob().times(1), Fault::Truncate(200_000));
    registry.inject(When::blob(), Fault::IgnoreRange);
    let mut stream = open(&client(), &registry, &image, RANGE).await.unwrap();
    let (bytes, error) = read(&mut stream).await;
    assert!(error.is_none(), "{error:?}");
    assert!(bytes == image.layer[100_000..500_000]);
    assert_eq!(registry.log().len(), 2);
}

/// The bytes that came before a lasting fault are handed on, and the error names the range whose rest is missing.
#[tokio::test]
async fn parts_come_before_the_range_is_complete() {
    let (registry, image) = setup();
    registry.inject(When::blob().skip(1), status(503));
    registry.inject(When::blob().times(1), Fault::Truncate(200_000));
    let mut stream = open(&client(), &registry, &image, RANGE).await.unwrap();
    assert_eq!(stream.size(), SIZE as u64);
    let (bytes, error) = read(&mut stream).await;
    assert!(bytes == image.layer[100_000..300_000], "{}", bytes.len());
    let text = error.unwrap().to_string();
    for part in [NAME, "bytes 100000..500000 of blob", "status 503"] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert!(
        stream.next_part().await.unwrap().is_none(),
        "it ends after an error"
    );
}

#[tokio::test]
async fn lasting_faults_end_in_an_error_that_says_what_is_wrong() {
    for (fault, said) in [
        (status(416), "outside of the blob"),
        (status(404), "not found"),
        (Fault::WrongContentRange, "wrong range"),
        (Fault::Html, "1048576 bytes were to come, the registry announces"),
    ] {
        let (registry, image) = setup();
        registry.inject(When::blob(), fault.clone());
        let text = open(&client(), &registry, &image, RANGE)
            .await
            .unwrap_err()
            .to_string();
        assert!(text.contains(said), "{fault:?}: {said:?} is not in {text:?}");
    }
    // A whole blob, but not as long as the one that was to be read.
    let (registry, image) = setup();
    registry.inject(When::blob(), Fault::IgnoreRange);
    let repository = repository(&registry);
    let result = client()
        .blob_range_stream(&repository, &image.layer_digest, SIZE as u64 - 1, RANGE)
        .await;
    let text = result.unwrap_err().to_string();
    assert!(text.contains("announces 1048576"), "{text}");
    let (registry, image) = setup();
    registry.inject(When::blob(), Fault::Truncate(1));
    let mut stream = open(&client(), &registry, &image, RANGE).await.unwrap();
    let (bytes, error) = read(&mut stream).await;
    assert_eq!(bytes, image.layer[100_000..100_004]);
    let text = error.unwrap().to_string();
    assert!(text.contains("ended after 1 of 399997 bytes"), "{text}");
}

#[tokio::test]
async fn ranges_that_the_blob_does_not_have_are_not_asked_for() {
    let (registry, image) = setup();
    let end = SIZE as u64;
    #[expect(clippy::reversed_empty_ranges, reason = "it is to be refused")]
    let ranges = [5..5, 9..5, 0..end + 1, end..end, end + 5..end + 9];
    for range in ranges {
        let result = open(&client(), &registry, &image, range.clone()).await;
        assert!(
            matches!(result, Err(ClientError::InvalidRange { .. })),
            "{range:?}"
        );
    }
    assert_eq!(registry.log().len(), 0);
}
