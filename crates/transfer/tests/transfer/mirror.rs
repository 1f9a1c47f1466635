//! Repositories of a registry that misbehaves are copied.

use std::sync::Arc;
use std::time::{Duration, Instant};

use xebec_kernel::clock::milliseconds_since_1970;
use xebec_settings::pattern::{RepositoryPattern, TagPattern};
use xebec_store::Digest;
use xebec_testkit::registry::{Fault, FaultyRegistry, Options, When};
use xebec_transfer::{Mirror, MirrorError, MirrorSettings, Moved, Rules, Tally};

use crate::common::{Here, skipped};
use crate::old::{INDEX, MANIFEST, artifact, digest, image, index};

/// Another registry.
struct There(FaultyRegistry);

impl There {
    fn new() -> Self {
        Self(FaultyRegistry::start().unwrap())
    }

    fn blob(&self, name: &str, bytes: &[u8]) -> Digest {
        self.0.put_blob(name, bytes.to_vec());
        digest(bytes)
    }

    fn manifest(&self, name: &str, tag: &str, media_type: &str, bytes: String) -> Digest {
        let put = digest(bytes.as_bytes());
        let tag = if tag.is_empty() {
            put.to_string()
        } else {
            tag.to_owned()
        };
        self.0.put_manifest(name, &tag, media_type, bytes);
        put
    }

    fn image(&self, name: &str, tag: &str, layer: &[u8]) -> Digest {
        let (config, pushed) = (self.blob(name, b"{}"), self.blob(name, layer));
        self.manifest(
            name,
            tag,
            MANIFEST,
            image(&config, &pushed, layer.len()).to_string(),
        )
    }

    fn artifact(&self, name: &str, tag: &str, subject: &Digest, artifact_type: &str) -> Digest {
        let config = self.blob(name, b"{}");
        self.manifest(
            name,
            tag,
            MANIFEST,
            artifact(&config, subject, artifact_type).to_string(),
        )
    }

    /// So many requests had such a path, and asked for content.
    fn gets(&self, part: &str) -> usize {
        let log = self.0.log();
        let is_get = |path: &str, method: &str| method == "GET" && path.contains(part);
        log.iter()
            .filter(|request| is_get(&request.head.path, &request.head.method))
            .count()
    }

    fn settings(&self, repositories: &[&str]) -> MirrorSettings {
        let mut settings = MirrorSettings::new(&self.0.host());
        settings.repositories = repositories
            .iter()
            .map(|text| RepositoryPattern::parse(text).unwrap())
            .collect();
        settings.to = "copy".to_owned();
        settings
    }
}

async fn outcome(here: &Here, settings: &MirrorSettings) -> (Moved, Result<(), MirrorError>) {
    let mirror = Mirror::new(&here.store, settings, &Rules::default(), |_| None).unwrap();
    let tally = Arc::new(Tally::default());
    let outcome = mirror.run(&tally).await;
    (tally.read(0), outcome)
}

async fn run(here: &Here, settings: &MirrorSettings) -> Moved {
    let (moved, outcome) = outcome(here, settings).await;
    outcome.unwrap();
    moved
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_comes_whole_and_nothing_of_it_twice() {
    let there = There::new();
    let amd = there.image("app", "", b"layer of amd64");
    let arm = there.image("app", "", b"layer of arm64");
    let all = there.manifest("app", "v1", INDEX, index(&[&amd, &arm]).to_string());
    there.manifest("app", "latest", INDEX, index(&[&amd, &arm]).to_string());
    let sbom = there.artifact("app", "", &amd, "application/x.sbom");
    let signature = there.artifact("app", "", &sbom, "application/x.signature");
    let cosign = there.image("app", &format!("sha256-{}.sig", all.hex()), b"signed");
    let here = Here::new().await;
    let moved = run(&here, &there.settings(&["app"])).await;
    assert_eq!(moved.skipped, []);
    assert_eq!(
        (moved.repositories, moved.tags, moved.manifests),
        (1, 3, 6),
        "{moved:?}"
    );
    for tag in ["v1", "latest"] {
        assert_eq!(here.tag("copy/app", tag).await, Some(all.clone()));
    }
    assert_eq!(
        here.tag("copy/app", &format!("sha256-{}.sig", all.hex())).await,
        Some(cosign)
    );
    assert_eq!(
        here.referrers("copy/app", &amd).await,
        std::slice::from_ref(&sbom)
    );
    assert_eq!(here.referrers("copy/app", &sbom).await, [signature]);
    assert_eq!(
        here.blob("copy/app", &digest(b"layer of arm64")).await.unwrap(),
        b"layer of arm64"
    );
    assert_eq!(there.gets("/blobs/"), 4, "each blob once");
    there.0.clear_log();
    let again = run(&here, &there.settings(&["app"])).await;
    assert_eq!(
        (again.manifests, again.tags, again.blobs, again.bytes),
        (0, 0, 0, 0)
    );
    assert_eq!(again.tags_here, 3);
    assert_eq!(
        (there.gets("/blobs/"), there.gets("/manifests/")),
        (0, 0),
        "{:?}",
        there.0.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_in_indexes_are_followed_so_deep_and_no_deeper() {
    let there = There::new();
    let mut inner = there.image("app", "", b"layer");
    for _ in 0..15 {
        inner = there.manifest("app", "", INDEX, index(&[&inner]).to_string());
    }
    let deep = there.manifest("app", "deep", INDEX, index(&[&inner]).to_string());
    there.manifest("app", "deeper", INDEX, index(&[&deep]).to_string());
    let here = Here::new().await;
    let mut settings = there.settings(&["app"]);
    settings.tags = vec![TagPattern::parse("deeper").unwrap()];
    let moved = run(&here, &settings).await;
    assert!(skipped(&moved, "tag deeper", "more than 16 indexes"), "{moved:?}");
    assert_eq!(here.tag("copy/app", "deeper").await, None);
    settings.tags = vec![TagPattern::parse("deep").unwrap()];
    assert_eq!(run(&here, &settings).await.skipped, []);
    assert_eq!(here.tag("copy/app", "deep").await, Some(deep));
}

#[tokio::test(flavor = "multi_thread")]
async fn signatures_come_with_the_tags_that_are_wanted() {
    let there = There::new();
    let wanted = there.image("app", "v1", b"one");
    let other = there.image("app", "old", b"two");
    for digest in [&wanted, &other] {
        there.image(
            "app",
            &format!("sha256-{}.sig", digest.hex()),
            digest.hex().as_bytes(),
        );
        there.image("app", &format!("sha256-{}.att", digest.hex()), b"attested");
    }
    let here = Here::new().await;
    let mut settings = there.settings(&["app"]);
    settings.tags = vec![TagPattern::parse("v*").unwrap()];
    assert_eq!(run(&here, &settings).await.tags, 3);
    assert!(
        here.tag("copy/app", &format!("sha256-{}.att", wanted.hex()))
            .await
            .is_some()
    );
    assert!(
        here.tag("copy/app", &format!("sha256-{}.sig", other.hex()))
            .await
            .is_none()
    );
    assert!(here.tag("copy/app", "old").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_refers_to_an_image_comes_from_a_fallback_tag() {
    let options = Options {
        referrers_api: false,
        ..Options::default()
    };
    let there = There(FaultyRegistry::with(options).unwrap());
    let image = there.image("app", "v1", b"layer");
    let signature = there.artifact("app", "", &image, "application/x.signature");
    let list = index(&[&signature]).to_string();
    there.manifest("app", &format!("sha256-{}", image.hex()), INDEX, list);
    let here = Here::new().await;
    let moved = run(&here, &there.settings(&["app"])).await;
    assert_eq!((moved.skipped_count, moved.tags), (0, 1), "{moved:?}");
    assert_eq!(here.referrers("copy/app", &image).await, [signature]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_without_a_list_is_told_of() {
    let there = There::new();
    there.image("team/app", "v1", b"layer");
    let here = Here::new().await;
    let (_, outcome) = outcome(&here, &there.settings(&["team/*"])).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("does not list its repositories"), "{error}");
    assert!(error.contains("--repository"), "{error}");
    // A prefix may be the repository that is meant.
    let mut settings = there.settings(&[]);
    settings.source = format!("{}/team/app", there.0.host());
    run(&here, &settings).await;
    assert!(here.tag("copy/team/app", "v1").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_limits_requests_is_waited_for() {
    let there = There::new();
    let image = there.image("app", "v1", b"layer");
    let limited = Fault::Status {
        code: 429,
        retry_after: Some("1".to_owned()),
    };
    there.0.inject(When::blob().times(1), limited.clone());
    there.0.inject(When::any().path("/tags/list").times(1), limited);
    let here = Here::new().await;
    let start = Instant::now();
    let moved = run(&here, &there.settings(&["app"])).await;
    assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(
        (moved.skipped_count, here.tag("copy/app", "v1").await),
        (0, Some(image))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bytes_and_what_is_gone_are_skipped() {
    let there = There::new();
    let wrong = there.image("app", "wrong", b"wrong layer");
    let gone = there.image("app", "gone", b"gone layer");
    let sound = there.image("app", "sound", b"sound layer");
    let known = |bytes: &[u8]| digest(bytes).to_string().parse().unwrap();
    there
        .0
        .put_blob_as("app", known(b"wrong layer"), b"WRONG LAYER".to_vec());
    there.0.remove_blob("app", &known(b"gone layer"));
    let here = Here::new().await;
    let moved = run(&here, &there.settings(&["app", "none"])).await;
    assert!(skipped(&moved, "tag wrong", "digest"), "{moved:?}");
    assert!(skipped(&moved, "tag gone", "not found"), "{moved:?}");
    assert!(skipped(&moved, "repository", ""), "{moved:?}");
    assert_eq!(moved.skipped_count, 3, "{moved:?}");
    assert_eq!(here.tag("copy/app", "sound").await, Some(sound));
    for digest in [wrong, gone] {
        let name = "copy/app".parse().unwrap();
        assert!(here.store.manifest(&name, &digest).await.unwrap().is_none());
    }
    assert_eq!(here.store.usage("").await.unwrap().uploads, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_cannot_be_brought_leaves_no_upload_of_those_beside_it() {
    let there = There::new();
    there.image("app", "wrong", b"wrong layer");
    let known = |bytes: &[u8]| digest(bytes).to_string().parse().unwrap();
    there
        .0
        .put_blob_as("app", known(b"wrong layer"), b"WRONG LAYER".to_vec());
    // The configuration is still on its way when the layer turns out to be wrong.
    there.0.inject(
        When::blob().path(&digest(b"{}").to_string()),
        Fault::Trickle { bytes_per_second: 10 },
    );
    let here = Here::new().await;
    let moved = run(&here, &there.settings(&["app"])).await;
    assert!(skipped(&moved, "tag wrong", "digest"), "{moved:?}");
    let config = here.blob("copy/app", &digest(b"{}")).await;
    assert_eq!(config, Some(b"{}".to_vec()), "it was given up");
    assert_eq!(here.store.usage("").await.unwrap().uploads, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_another_repository_here_has_is_not_fetched() {
    let there = There::new();
    there.image("one", "v1", b"shared layer");
    there.image("two", "v1", b"shared layer");
    let here = Here::new().await;
    run(&here, &there.settings(&["one"])).await;
    there.0.clear_log();
    let moved = run(&here, &there.settings(&["two"])).await;
    assert_eq!((moved.blobs, moved.blobs_here, there.gets("/blobs/")), (0, 2, 0));
    assert!(here.blob("copy/two", &digest(b"shared layer")).await.is_some());
    // The other registry does not have it in this repository: then this one does not get it here.
    let config = there.blob("three", b"{}");
    let stolen = image(&config, &digest(b"shared layer"), 12).to_string();
    there.manifest("three", "v1", MANIFEST, stolen);
    let moved = run(&here, &there.settings(&["three"])).await;
    assert!(skipped(&moved, "tag v1", "not found"), "{moved:?}");
    assert!(here.blob("copy/three", &digest(b"shared layer")).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_that_vanished_stay_unless_the_mirror_prunes() {
    let there = There::new();
    let image = there.image("app", "v1", b"layer");
    let here = Here::new().await;
    let mut settings = there.settings(&["app"]);
    run(&here, &settings).await;
    let name = "copy/app".parse().unwrap();
    let manifest = here.store.manifest(&name, &image).await.unwrap().unwrap();
    // Tags of which the other registry knows nothing.
    for tag in ["v0", "other"] {
        let new = xebec_store::NewManifest {
            digest: image.clone(),
            media_type: manifest.media_type.clone(),
            content: manifest.content.clone(),
            references: Vec::new(),
            subject: None,
            artifact_type: None,
            annotations: Default::default(),
            immutable: Vec::new(),
            is_pushed: true,
        };
        here.store
            .put_manifest(&name, &new, &[tag.parse().unwrap()])
            .await
            .unwrap();
    }
    run(&here, &settings).await;
    assert!(here.tag("copy/app", "v0").await.is_some());
    settings.prune = true;
    settings.tags = vec![TagPattern::parse("v*").unwrap()];
    assert_eq!(run(&here, &settings).await.tags_removed, 1);
    assert!(here.tag("copy/app", "v0").await.is_none());
    assert!(
        here.tag("copy/app", "other").await.is_some(),
        "no pattern covers it"
    );
    assert_eq!(here.tag("copy/app", "v1").await, Some(image));
}

/// Else rules that keep the newest tags would keep any of those that one run brings.
#[tokio::test(flavor = "multi_thread")]
async fn a_tag_counts_as_set_when_its_image_was_made() {
    let there = There::new();
    let made = |tag: &str, created: &str| {
        let bytes = format!("{{\"created\": \"{created}\", \"of\": \"{tag}\"}}");
        let (config, pushed) = (there.blob("app", bytes.as_bytes()), there.blob("app", b"layer"));
        let mut manifest = image(&config, &pushed, 5);
        manifest["config"]["size"] = bytes.len().into();
        there.manifest("app", tag, MANIFEST, manifest.to_string())
    };
    made("v1", "2024-05-01T00:00:00Z");
    made("v2", "2021-05-01T00:00:00Z");
    made("reproducible", "1970-01-01T00:00:00Z");
    made("ahead", "2999-01-01T00:00:00Z");
    let amd = made("", "2022-05-01T00:00:00Z");
    let arm = made("", "2023-05-01T00:00:00Z");
    there.manifest("app", "both", INDEX, index(&[&arm, &amd]).to_string());
    let here = Here::new().await;
    let updated = async |tag: &str| here.record("copy/app", tag).await.updated;
    let began = milliseconds_since_1970();
    run(&here, &there.settings(&["app"])).await;
    assert_eq!(updated("v1").await, 1_714_521_600_000);
    assert_eq!(updated("v2").await, 1_619_827_200_000);
    assert_eq!(updated("both").await, 1_682_899_200_000);
    for now in ["reproducible", "ahead"] {
        assert!(
            (began..=milliseconds_since_1970()).contains(&updated(now).await),
            "{now}"
        );
    }
    // It was moved since the last run, whatever its image says.
    let began = milliseconds_since_1970();
    made("v1", "2020-05-01T00:00:00Z");
    run(&here, &there.settings(&["app"])).await;
    assert!(updated("v1").await >= began);
    assert_eq!(updated("v2").await, 1_619_827_200_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_away_ends_the_run_and_the_next_one_goes_on() {
    let there = There::new();
    there.image("one", "v1", b"first");
    there.image("two", "v1", b"second");
    let here = Here::new().await;
    run(&here, &there.settings(&["one"])).await;
    there.0.inject(When::any().path("/v2/two/"), Fault::Reset(0));
    let mut settings = there.settings(&["one", "two"]);
    settings.jobs = 1;
    let limited = tokio::time::timeout(Duration::from_secs(60), outcome(&here, &settings)).await;
    let (moved, outcome) = limited.expect("a source that is away is given up");
    assert!(outcome.is_err() || moved.skipped_count > 0, "{moved:?}");
    there.0.clear_faults();
    let moved = run(&here, &settings).await;
    assert_eq!((moved.manifests, moved.manifests_here), (1, 1), "{moved:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages_that_lead_nowhere_else() {
    let there = There::new();
    let image = there.image("app", "v1", b"layer");
    let page = |link: &str| Fault::Page {
        link: format!("<{link}>; rel=\"next\""),
    };
    there.0.inject(
        When::any().path("/tags/list").times(1),
        page("/v2/app/tags/list?n=1000&last=v0"),
    );
    let here = Here::new().await;
    let moved = run(&here, &there.settings(&["app"])).await;
    assert_eq!((moved.tags, there.gets("/tags/list")), (1, 2));
    assert_eq!(here.tag("copy/app", "v1").await, Some(image));
    there.0.inject(
        When::any().path("/tags/list").times(1),
        page("http://127.0.0.1:9/v2/app/tags/list"),
    );
    let moved = run(&here, &there.settings(&["app"])).await;
    assert!(skipped(&moved, "repository", "elsewhere"), "{moved:?}");
}
