//! The state of an upstream, as the registry knows it: because of it, no client goes without content that the upstream would have given.

use std::time::Duration;

use futures_util::future::join;
use reqwest::{Method, Response, StatusCode};
use xebec_testkit::registry::{Fault, FaultyRegistry, Options, When};

use crate::running::{OCI_MANIFEST, artifact, code};
use crate::upstream::{bytes, gets, json, layer_path, noise, pull, put, through, xebec_digest};

fn warning(answer: &Response) -> Option<&str> {
    answer
        .headers()
        .get("warning")
        .map(|value| value.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_slow_answer_keeps_nobody_from_what_is_not_here() {
    let upstream = FaultyRegistry::start().unwrap();
    let here = put(&upstream, "v1", b"here");
    let there = put(&upstream, "v2", b"there");
    let registry = through(&upstream, |settings| {
        settings.tag_ttl = Duration::ZERO;
        settings.patience = Duration::from_secs(60);
    })
    .await;
    pull(&registry, &here, "v1").await;
    upstream.inject(When::any(), Fault::Delay(Duration::from_secs(2)));
    let answer = registry.get("/v2/hub/app/manifests/v1").await;
    let said = warning(&answer).unwrap().to_owned();
    assert!(said.contains("no answer in 300 ms"), "{said}");
    // The answer to the first question is still awaited when these ask.
    let v2 = registry.get("/v2/hub/app/manifests/v2");
    let path = layer_path(&there);
    let (manifest, layer) = join(v2, registry.get(&path)).await;
    assert_eq!(bytes(manifest, StatusCode::OK).await, there.manifest.bytes);
    assert_eq!(bytes(layer, StatusCode::OK).await, there.layers[0].bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_manifest_is_fetched_while_nothing_is_left_of_the_upstreams_limit() {
    let upstream = FaultyRegistry::start().unwrap();
    let first = put(&upstream, "v1", &noise(100_000));
    let second = put(&upstream, "v2", b"second");
    let registry = through(&upstream, |settings| settings.negative_ttl = Duration::ZERO).await;
    let says = |left: &str| Fault::With(vec![("ratelimit-remaining", format!("{left};w=21600"))]);
    upstream.inject(When::manifest(), says("0"));
    // The last one that the upstream allows, and its blobs, which do not count.
    pull(&registry, &first, "v1").await;
    upstream.clear_faults();
    upstream.inject(When::any().path("/manifests/"), says("0"));
    upstream.clear_log();
    for reference in ["v2".to_owned(), second.manifest.digest.to_string()] {
        let answer = registry.get(&format!("/v2/hub/app/manifests/{reference}")).await;
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS, "{reference}");
        let after: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((3500..=3600).contains(&after), "{after}");
        assert_eq!(code(answer).await, "TOOMANYREQUESTS");
    }
    assert_eq!(gets(&upstream.log(), "/manifests/").len(), 0);
    // A question without a body shows that there is more again.
    upstream.clear_faults();
    upstream.inject(When::any().path("/manifests/"), says("5"));
    pull(&registry, &second, "v2").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_of_referrers_counts_when_all_of_it_is_here() {
    let upstream = FaultyRegistry::with(Options::default()).unwrap();
    let image = put(&upstream, "v1", b"contents");
    let subject = image.manifest.digest.to_string().parse().unwrap();
    let config = upstream
        .put_blob("app", b"{}".to_vec())
        .to_string()
        .parse()
        .unwrap();
    for number in 0..70 {
        let attached = artifact(&config, &subject, &format!("a/{number}")).to_string();
        upstream.put_manifest("app", &xebec_digest(&attached), OCI_MANIFEST, attached.clone());
    }
    let registry = through(&upstream, |settings| settings.patience = Duration::from_secs(60)).await;
    let path = format!("/v2/hub/app/referrers/{}", image.manifest.digest);
    let answer = registry.request(Method::GET, &path).send().await.unwrap();
    let said = warning(&answer).unwrap_or_default().to_owned();
    assert!(said.contains("6 more"), "{said:?}");
    assert_eq!(json(answer).await["manifests"].as_array().unwrap().len(), 64);
    let answer = registry.get(&path).await;
    assert_eq!(warning(&answer), None);
    assert_eq!(json(answer).await["manifests"].as_array().unwrap().len(), 70);
    // From now on it counts for as long as the settings say.
    upstream.clear_log();
    assert_eq!(
        json(registry.get(&path).await).await["manifests"]
            .as_array()
            .unwrap()
            .len(),
        70
    );
    assert!(upstream.log().is_empty());
}
