//! Resolving and reading from a registry that behaves.

use std::time::Duration;

use xebec_format::digest::{Digest, Digester};
use xebec_oci::manifest::{Descriptor, Index};
use xebec_oci::media_type::{DOCKER_MANIFEST, OCI_INDEX, OCI_MANIFEST};
use xebec_oci::{ClientError, Platform, RangeAnswer, Reference};
use xebec_testkit::registry::{Fault, FaultyRegistry, Options, When};

use crate::support::{NAME, amd64, client, manifest_of, noise, put_image, repository, tagged};

#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let registry = FaultyRegistry::start().unwrap();
    // Two pages and a half.
    let tags: Vec<String> = (0..2500).map(|number| format!("t{number:04}")).collect();
    for tag in &tags {
        registry.put_manifest(NAME, tag, OCI_MANIFEST, "{}");
    }
    assert_eq!(client().tags(&repository(&registry)).await.unwrap(), tags);
}

#[tokio::test]
async fn resolves_and_reads() {
    let registry = FaultyRegistry::start().unwrap();
    let image = put_image(&registry, 300_000);
    let client = client();
    let resolved = client.resolve(&tagged(&registry), &amd64()).await.unwrap();
    assert_eq!(resolved.manifest_digest, image.manifest_digest);
    assert_eq!(resolved.config.config.entrypoint, ["/bin/app"]);
    assert_eq!(resolved.layers().len(), 1);
    assert_eq!(resolved.index_digest, None);
    let repository = repository(&registry);
    for range in [0..1, 0..300_000, 299_999..300_000, 1000..200_000] {
        let bytes = client
            .blob_range(&repository, &image.layer_digest, range.clone())
            .await
            .unwrap();
        assert_eq!(bytes, image.layer[range.start as usize..range.end as usize]);
    }
    assert_eq!(client.ranges_honoured(&registry.host()), Some(true));
    let mut stream = client
        .blob_stream(&repository, &image.layer_digest, 300_000, 0)
        .await
        .unwrap();
    let mut digester = Digester::new();
    while let Some(part) = stream.next_part().await.unwrap() {
        digester.update(&part);
    }
    assert_eq!(digester.finish(), image.layer_digest);
    let stats = client.stats();
    assert_eq!(stats.requests, registry.log().len() as u64);
    assert_eq!(
        stats.bytes_received,
        registry
            .log()
            .iter()
            .map(|request| request.bytes_sent)
            .sum::<u64>()
    );
    assert_eq!(stats.retries, 0);
    let connections: std::collections::BTreeSet<u64> = registry
        .log()
        .iter()
        .map(|request| request.head.connection)
        .collect();
    assert_eq!(
        connections.len(),
        1,
        "one kept-alive connection serves calls in sequence"
    );
}

#[tokio::test]
async fn counters_of_a_part() {
    let registry = FaultyRegistry::start().unwrap();
    let image = put_image(&registry, 1000);
    let whole = client();
    let part = whole.with_own_stats();
    part.blob_range(&repository(&registry), &image.layer_digest, 0..10)
        .await
        .unwrap();
    whole
        .blob_range(&repository(&registry), &image.layer_digest, 0..5)
        .await
        .unwrap();
    assert_eq!((part.stats().requests, part.stats().bytes_received), (1, 10));
    assert_eq!((whole.stats().requests, whole.stats().bytes_received), (2, 15));
}

#[tokio::test]
async fn follows_an_index() {
    let registry = FaultyRegistry::start().unwrap();
    let mut entries = Vec::new();
    for architecture in ["arm64", "amd64"] {
        let layer = noise(if architecture == "amd64" { 100 } else { 50 });
        let (config, manifest) = manifest_of(&layer, architecture);
        registry.put_blob(NAME, config);
        registry.put_blob(NAME, layer);
        let digest = registry.put_manifest(
            NAME,
            &Digest::of(&manifest).to_string(),
            OCI_MANIFEST,
            manifest.clone(),
        );
        let mut entry = Descriptor::of(OCI_MANIFEST, &manifest);
        assert_eq!(entry.digest, digest);
        entry.platform = Some(Platform::linux(architecture));
        entries.push(entry);
    }
    let index = serde_json::to_vec(&Index::of(entries.clone())).unwrap();
    let index_digest = registry.put_manifest(NAME, "v1", OCI_INDEX, index);
    let resolved = client().resolve(&tagged(&registry), &amd64()).await.unwrap();
    assert_eq!(resolved.manifest_digest, entries[1].digest);
    assert_eq!(resolved.index_digest, Some(index_digest));
    let by_digest: Reference = format!("{}/{NAME}@{index_digest}", registry.host())
        .parse()
        .unwrap();
    let arm: Platform = "linux/arm64/v8".parse().unwrap();
    assert_eq!(
        client().resolve(&by_digest, &arm).await.unwrap().manifest_digest,
        entries[0].digest
    );
    let error = client()
        .resolve(&by_digest, &Platform::linux("s390x"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("linux/arm64, linux/amd64"), "{error}");
}

#[tokio::test]
async fn refuses_what_is_no_image_or_does_not_fit() {
    let registry = FaultyRegistry::start().unwrap();
    put_image(&registry, 10);
    let error = client()
        .resolve(&tagged(&registry), &Platform::linux("arm64"))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::NoPlatform { .. }), "{error}");
    let schema1 = br#"{"schemaVersion":1,"fsLayers":[],"name":"x"}"#;
    registry.put_manifest(
        NAME,
        "v1",
        "application/vnd.docker.distribution.manifest.v1+json",
        &schema1[..],
    );
    let error = client().resolve(&tagged(&registry), &amd64()).await.unwrap_err();
    assert!(error.to_string().contains("schema 1"), "{error}");
    let missing: Reference = format!("{}/{NAME}:none", registry.host()).parse().unwrap();
    let error = client().resolve(&missing, &amd64()).await.unwrap_err();
    let text = format!("{}/{NAME} has no tag \"none\"; it has: v1", registry.host());
    assert_eq!(error.to_string(), text);
    let (config, manifest) = manifest_of(b"layer", "amd64");
    let config_digest = registry.put_blob(NAME, config);
    registry.put_blob_as(NAME, config_digest, &b"other"[..]);
    registry.put_manifest(NAME, "v1", DOCKER_MANIFEST, manifest);
    let error = client().resolve(&tagged(&registry), &amd64()).await.unwrap_err();
    assert!(
        matches!(error, ClientError::WrongDigest { attempts: 4, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_tag_that_is_not_there_is_met_with_those_that_are() {
    let registry = FaultyRegistry::start().unwrap();
    put_image(&registry, 10);
    for number in 0..20 {
        registry.put_manifest(NAME, &format!("1.{number}"), DOCKER_MANIFEST, &b"{}"[..]);
    }
    let ask = async |name: &str| {
        let missing: Reference = format!("{}/{name}", registry.host()).parse().unwrap();
        let error = client().resolve(&missing, &amd64()).await.unwrap_err();
        error.to_string().replace(&registry.host(), "HOST")
    };
    assert_eq!(
        ask("team/app:1").await,
        "HOST/team/app has no tag \"1\"; it has: 1.9, 1.8, 1.7, 1.6, 1.5 (and 16 more)"
    );
    assert_eq!(registry.count("/tags/list"), 1);
    assert_eq!(
        ask("team/ap:1").await,
        "there is no repository HOST/team/ap; check the spelling of its name"
    );
    // By digest, no other helps.
    let said = ask(&format!("team/app@{}", Digest::of(b"x"))).await;
    assert!(said.contains("was not found"), "{said}");
    assert_eq!(registry.count("/tags/list"), 2);
    // A registry that does not list them.
    let codes = [404, 405, 500, 401];
    for code in codes {
        registry.clear_faults();
        let fault = Fault::Status {
            code,
            retry_after: None,
        };
        registry.inject(When::any().path("/tags/list"), fault);
        let said = ask("team/app:1").await;
        assert!(
            said.starts_with("HOST/team/app: manifest 1 was not found"),
            "{said}"
        );
    }
    registry.clear_faults();
    registry.inject(When::any().path("/tags/list"), Fault::Hang);
    let begin = std::time::Instant::now();
    let said = ask("team/app:1").await;
    assert!(said.contains("was not found"), "{said}");
    assert!(begin.elapsed() < std::time::Duration::from_secs(4));
}

#[tokio::test]
async fn probe_says_what_a_registry_can() {
    let registry = FaultyRegistry::start().unwrap();
    put_image(&registry, 1000);
    let report = client()
        .probe(&registry.host(), Some(&tagged(&registry)))
        .await
        .unwrap();
    assert_eq!(
        (report.scheme.as_str(), report.http_version.as_str()),
        ("http", "HTTP/1.1")
    );
    assert_eq!(
        (report.ranges, report.referrers_api, report.accepted),
        (Some(true), Some(true), true)
    );
    registry.inject(When::blob(), Fault::IgnoreRange);
    let report = client()
        .probe(&registry.host(), Some(&tagged(&registry)))
        .await
        .unwrap();
    assert_eq!(report.ranges, Some(false));
    let error = client().probe("127.0.0.1:1", None).await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn ranges_out_of_bounds() {
    let registry = FaultyRegistry::start().unwrap();
    let image = put_image(&registry, 1000);
    let (client, repository) = (client(), repository(&registry));
    #[allow(clippy::reversed_empty_ranges)]
    for range in [5..5, 7..3, 0..u64::MAX] {
        let error = client
            .blob_range(&repository, &image.layer_digest, range)
            .await
            .unwrap_err();
        assert!(matches!(error, ClientError::InvalidRange { .. }), "{error}");
    }
    let error = client
        .blob_range(&repository, &image.layer_digest, 2000..3000)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("outside"), "{error}");
    let answer = client
        .blob_range_or_whole(&repository, &image.layer_digest, 1000, 5..9)
        .await
        .unwrap();
    assert!(matches!(answer, RangeAnswer::Part(bytes) if bytes == image.layer[5..9]));
}

#[tokio::test]
async fn heads_say_what_a_tag_names_and_how_large_a_blob_is() {
    let registry = FaultyRegistry::with(Options {
        redirect_blobs: Some(Duration::from_secs(60)),
        ..Options::default()
    })
    .unwrap();
    let image = put_image(&registry, 5000);
    let (client, repository) = (client(), repository(&registry));
    let accept = [OCI_MANIFEST];
    let named = tagged(&registry).manifest_name();
    let said = client
        .manifest_digest(&repository, &named, &accept)
        .await
        .unwrap();
    assert_eq!(said, Some(image.manifest_digest));
    let size = client.blob_size(&repository, &image.layer_digest).await.unwrap();
    assert_eq!(size, 5000);
    assert!(
        registry
            .log()
            .iter()
            .all(|request| request.bytes_sent == 0 || request.head.path == "/v2/")
    );
    let missing = client.manifest_digest(&repository, "none", &accept).await;
    assert!(
        matches!(missing, Err(ClientError::NotFound { .. })),
        "{missing:?}"
    );
    let missing = client.blob_size(&repository, &Digest::of(b"none")).await;
    assert!(
        matches!(missing, Err(ClientError::NotFound { .. })),
        "{missing:?}"
    );
}
