//! The answers of a registry to those who watch it: figures, and whether it is ready.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use tokio::sync::Notify;
use xebec_access::Guard;
use xebec_dedup::Restorer;
use xebec_events::Reports;
use xebec_events::audit::{Audit, AuditSettings, Pulls};
use xebec_events::webhooks::Webhooks;
use xebec_indexing::{Indexer, IndexingSettings};
use xebec_policy::quota::Quotas;
use xebec_store::CollectOptions;
use xebec_testkit::registry::FaultyRegistry;
use xebec_upstream::{UpstreamSettings, Upstreams};

use crate::auth::guard::World;
use crate::auth::server::{Server, ok};
use crate::commands;
use crate::running::Running;
use crate::upkeep::Serving;
use crate::upstream::{layer_path, pull, put, until_kept};

/// A registry with all that is counted, in which anybody may pull and push.
async fn watched(world: &World, upstream: &FaultyRegistry, receiver: &Server) -> Running {
    let settings = UpstreamSettings::new("hub", &upstream.host());
    let webhook = toml::from_str(&format!("url = '{}'", receiver.url)).unwrap();
    let audit = Audit::open(&AuditSettings {
        file: Some(world.directory.path().join("audit.log")),
        pulls: Pulls::None,
    });
    let audit = audit.unwrap();
    let open = "[[rule]]\nrepositories = '**'\nwho = ['anyone']\nactions = ['pull', 'push']";
    let htpasswd = world.directory.path().join("htpasswd");
    let auth = format!("htpasswd = {htpasswd:?}\nchallenge = 'basic'\n{open}");
    let guard = Guard::new(toml::from_str(&auth).unwrap(), world.directory.path(), false).unwrap();
    Running::with(
        |_| {},
        |registry| {
            let arrived = Arc::new(Notify::new());
            registry.upstreams = Upstreams::new(&[settings], &registry.store, &arrived, |_| None).unwrap();
            registry.guard = guard;
            let quota = "prefix = 'team'\nlimit = '1m'";
            registry.restorer = Some(Restorer::new(&xebec_dedup::Settings::default()));
            registry.quotas = Quotas::new(vec![toml::from_str(quota).unwrap()]);
            let webhooks = Webhooks::start(&[webhook], "n").unwrap();
            registry.listeners.push(webhooks.clone());
            registry.reports = Reports {
                audit: Some(audit),
                webhooks: Some(webhooks),
            };
        },
    )
    .await
}

async fn figures(registry: &Running) -> String {
    let answer = registry.get("/metrics").await;
    assert_eq!(answer.status(), StatusCode::OK);
    answer.text().await.unwrap()
}

/// Reads figures until they say all of this.
async fn until_told(registry: &Running, expected: &[String]) -> String {
    let begun = Instant::now();
    loop {
        let text = figures(registry).await;
        let is_missing = |line: &&String| !text.contains(&format!("xebec_registry_{line}\n"));
        let missing: Vec<_> = expected.iter().filter(is_missing).collect();
        if missing.is_empty() {
            return text;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(40),
            "{missing:?} are not in {text}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Names of figures in a text, without the labels that follow them.
fn names(text: &str) -> BTreeSet<&str> {
    let is_other = |character: char| !character.is_ascii_alphanumeric() && character != '_';
    text.split(is_other)
        .filter(|word| word.starts_with("xebec_registry_"))
        .collect()
}

/// The dashboard shows figures that there are, and the documents name all of them.
fn are_shown(text: &str) {
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let samples = samples.join("\n");
    let exported = names(&samples);
    let dashboard = include_str!("../../../../packaging/grafana/xebec-registry.json");
    let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let shown = names(dashboard);
    let panels = parsed["panels"].as_array().unwrap();
    assert!(shown.len() > 20 && panels.len() > 15, "{shown:?}");
    let unknown: Vec<&&str> = shown.difference(&exported).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not among {exported:?}");
    for label in [
        "kind", "status", "reason", "version", "outcome", "upstream", "prefix",
    ] {
        assert!(dashboard.contains(&format!("{{{{{label}}}}}")), "{label}");
        assert!(
            samples.contains(&format!("{label}=\"")),
            "{label} is no label of {text}"
        );
    }
    let documents = include_str!("../../../../docs/registry.md");
    let is_unknown = |name: &&&str| {
        let name = name.trim_start_matches("xebec_registry_");
        let ends = ["_bucket", "_sum", "_count"];
        let name = ends.iter().fold(name, |name, end| name.trim_end_matches(end));
        !documents.contains(&format!("`{name}"))
    };
    let unknown: Vec<&&str> = exported.iter().filter(is_unknown).collect();
    assert!(unknown.is_empty(), "docs/registry.md lacks {unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_happens_is_counted_and_the_dashboard_shows_it() {
    let (world, upstream) = (World::new(), FaultyRegistry::start().unwrap());
    let receiver = Server::start(|_| ok("")).await;
    let registry = watched(&world, &upstream, &receiver).await;
    let image = put(&upstream, "v1", b"theirs");
    let bytes: usize = image.blobs().map(|blob| blob.bytes.len()).sum();
    pull(&registry, &image, "v1").await;
    until_kept(&registry, &image).await;
    // Once more: from here now.
    for path in ["/v2/hub/app/manifests/v1", &layer_path(&image)] {
        assert_eq!(registry.get(path).await.status(), StatusCode::OK);
    }
    registry.get("/v2/hub/app/manifests/none").await;
    let (pushed, _) = registry.push_image("team/app", "v1", b"ours").await;
    let wrong = registry
        .request(reqwest::Method::GET, "/v2/")
        .basic_auth("anna", Some("wrong"));
    assert_eq!(wrong.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let inner = &registry.registry;
    let collected = inner.store.collect(&CollectOptions::default()).await.unwrap();
    inner.metrics.collected(Some(&collected));
    inner.metrics.refused("connections");
    inner.metrics.deduplicated("done");

    let blobs = bytes + "ours".len() + "{}".len();
    let manifests = image.manifest.bytes.len() + pushed.to_string().len();
    let quota_used = "ours".len() + "{}".len() + pushed.to_string().len();
    let expected = [
        "upstream_requests_total{upstream=\"hub\",outcome=\"not_found\"} 1".to_owned(),
        format!("upstream_received_bytes_total{{upstream=\"hub\"}} {bytes}"),
        "upstream_left_alone{upstream=\"hub\"} 0".to_owned(),
        "upstream_hits_total{upstream=\"hub\"} 2".to_owned(),
        format!("quota_used_bytes{{prefix=\"team\"}} {quota_used}"),
        "quota_limit_bytes{prefix=\"team\"} 1048576".to_owned(),
        "database_transactions_total{kind=\"write\",outcome=\"failed\"} 0".to_owned(),
        "webhook_events_total{receiver=\"127.0.0.1\",outcome=\"delivered\"} 3".to_owned(),
        "audit_lines_lost_total 0".to_owned(),
        "logins_total{outcome=\"wrong\"} 1".to_owned(),
        "collections_total{outcome=\"done\"} 1".to_owned(),
        "stored_blobs 4".to_owned(),
        format!("stored_blobs_bytes {blobs}"),
        "stored_manifests 2".to_owned(),
        format!("stored_manifests_bytes {manifests}"),
        "damaged_blobs 0".to_owned(),
        format!("deduplication_stored_bytes{{kind=\"intact\"}} {blobs}"),
        "deduplication_stored_bytes{kind=\"packs\"} 0".to_owned(),
        format!("deduplication_pushed_bytes {blobs}"),
        "deduplication_waiting 4".to_owned(),
        "deduplication_kept 0".to_owned(),
        "deduplicated_total{outcome=\"done\"} 1".to_owned(),
        "restored_total{kind=\"ahead\",outcome=\"hit\"} 0".to_owned(),
        "restored_ahead_bytes 0".to_owned(),
        "indexing_waiting 2".to_owned(),
    ];
    until_told(&registry, &expected).await;
    let (store, upstreams) = (inner.store.clone(), inner.upstreams.clone());
    let indexer = Indexer::new(&IndexingSettings::default(), store, upstreams, Arc::default());
    assert!(
        indexer
            .unwrap()
            .within(inner.surroundings())
            .work_once()
            .await
            .unwrap()
    );
    let indexed = "indexed_total{outcome=\"done\"} 1".to_owned();
    are_shown(&until_told(&registry, &[indexed]).await);
    // However often it is asked, the sums are not read again.
    registry.push_image("team/app", "v2", b"more").await;
    for _ in 0..3 {
        assert!(
            figures(&registry)
                .await
                .contains("xebec_registry_stored_blobs 4\n")
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    upstream.set_down(true);
    registry.get("/v2/hub/app/manifests/v9").await;
    until_told(&registry, &["upstream_left_alone{upstream=\"hub\"} 1".to_owned()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_whose_object_store_is_gone_is_not_ready() {
    let registry = Running::start().await;
    registry.push_image("team/app", "v1", b"ours").await;
    assert_eq!(registry.get("/readyz").await.status(), StatusCode::OK);
    let root = registry.registry.store.config().root.clone();
    std::fs::rename(root.join("objects"), root.join("elsewhere")).unwrap();
    // A finding of a moment ago counts for some seconds.
    assert_eq!(registry.get("/readyz").await.status(), StatusCode::OK);
    tokio::time::sleep(Duration::from_millis(5100)).await;
    let answer = registry.get("/readyz").await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    let text = answer.text().await.unwrap();
    assert!(text.contains("the object store does not answer"), "{text}");
    std::fs::rename(root.join("elsewhere"), root.join("objects")).unwrap();
    tokio::time::sleep(Duration::from_millis(5100)).await;
    assert_eq!(registry.get("/readyz").await.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_write_fields_of_its_own_into_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let (root, log) = (directory.path().join("root"), directory.path().join("log"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let listen = address.to_string();
    let mut serve = commands::program(&["serve", "--root", root.to_str().unwrap(), "--listen", &listen]);
    let to = std::fs::File::create(&log).unwrap();
    let _serving = Serving(serve.stderr(to).spawn().unwrap());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let begun = Instant::now();
    let line = loop {
        let request = client
            .get(format!("http://{address}/v2/"))
            .header("user-agent", "x status=500 user=\"a\"");
        let _ = request.send().await;
        let text = std::fs::read_to_string(&log).unwrap();
        if let Some(line) = text.lines().find(|line| line.contains("answered")) {
            break line.to_owned();
        }
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "nothing was answered: {text}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(line.contains(r#"agent="x status=500 user=\"a\"""#), "{line}");
}
