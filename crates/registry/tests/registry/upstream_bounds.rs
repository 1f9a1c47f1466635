//! How many blobs of an upstream are fetched, for all the clients that ask for them and go away.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::StatusCode;
use xebec_testkit::registry::{Fault, FaultyRegistry, When};

use crate::running::code;
use crate::upstream::{bytes, gets, through};

/// Those that are fetched at the same time, and those that are fetched or wait.
const AT_ONCE: usize = 12;
const MOST: usize = 256;

/// The first ones are larger.
fn content(number: usize) -> Vec<u8> {
    match number < AT_ONCE {
        true => format!("{number:150}").into_bytes(),
        false => format!("{number:10}").into_bytes(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_blobs_are_fetched_and_those_that_nobody_waits_for_are_not() {
    let upstream = FaultyRegistry::start().unwrap();
    let paths: Vec<String> = (0..=MOST + 1)
        .map(|number| format!("/v2/hub/app/blobs/{}", upstream.put_blob("app", content(number))))
        .collect();
    let registry = through(&upstream, |settings| settings.patience = Duration::from_secs(60)).await;
    // The first ones take 15 seconds each, since they come as slowly as these faults let them.
    let slowly = Fault::Trickle { bytes_per_second: 10 };
    upstream.inject(When::blob().times(AT_ONCE as u64), slowly);
    let mut answers = Vec::new();
    for some in [&paths[..AT_ONCE], &paths[AT_ONCE..MOST]] {
        answers.extend(join_all(some.iter().map(|path| registry.get(path))).await);
    }
    assert!(answers.iter().all(|answer| answer.status() == StatusCode::OK));
    let more = registry.get(&paths[MOST]).await;
    assert_eq!(more.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(more.headers().contains_key("retry-after"));
    assert_eq!(code(more).await, "UNAVAILABLE");
    // Blobs that a client waits for come, the others go.
    let waits = answers.pop().unwrap();
    drop(answers);
    assert_eq!(bytes(waits, StatusCode::OK).await, content(MOST - 1));
    assert_eq!(
        bytes(registry.get(&paths[MOST + 1]).await, StatusCode::OK).await,
        content(MOST + 1)
    );
    let fetched = gets(&upstream.log(), "/blobs/").len();
    assert!((AT_ONCE..MOST / 2).contains(&fetched), "{fetched}");
}
