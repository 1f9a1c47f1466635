//! Content that moves here from another registry is answered like content that was pushed.

use std::sync::Arc;

use reqwest::StatusCode;
use serde_json::Value;
use xebec_settings::pattern::RepositoryPattern;
use xebec_transfer::{Mirror, MirrorSettings, Rules, Tally};

use crate::running::{Running, artifact};

async fn json(registry: &Running, path: &str) -> Value {
    let answer = registry.get(path).await;
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    serde_json::from_str(&answer.text().await.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_are_found_by_the_list_of_the_source_and_served_with_what_refers() {
    let (there, here) = (Running::start().await, Running::start().await);
    let (_, image) = there.push_image("team/app", "v1", b"layer").await;
    there.push_image("team/deep/app", "v1", b"deep layer").await;
    there.push_image("other", "v1", b"other layer").await;
    let config = there.push_blob("team/app", b"{}").await;
    let note = artifact(&config, &image, "application/x.note");
    let pushed = there.push_manifest("team/app", "note", &note).await;
    assert_eq!(pushed.status(), StatusCode::CREATED);
    let mut settings = MirrorSettings::new(&there.address.to_string());
    settings.repositories = vec![RepositoryPattern::parse("team/**").unwrap()];
    settings.to = "copy".to_owned();
    let mirror = Mirror::new(&here.registry.store, &settings, &Rules::default(), |_| None).unwrap();
    let tally = Arc::new(Tally::default());
    mirror.run(&tally).await.unwrap();
    let moved = tally.read(0);
    assert_eq!(
        (moved.repositories, moved.tags, moved.skipped_count),
        (2, 3, 0),
        "{moved:?}"
    );
    let catalog = json(&here, "/v2/_catalog").await;
    assert_eq!(
        catalog["repositories"],
        serde_json::json!(["copy/team/app", "copy/team/deep/app"])
    );
    let referrers = json(&here, &format!("/v2/copy/team/app/referrers/{image}")).await;
    assert_eq!(referrers["manifests"][0]["artifactType"], "application/x.note");
    let fallback = image.to_string().replace(':', "-");
    let listed = json(&here, &format!("/v2/copy/team/app/manifests/{fallback}")).await;
    assert_eq!(listed["manifests"][0]["artifactType"], "application/x.note");
    // An image that came waits for the indexer as one that was pushed.
    assert!(here.registry.store.indexing_waits().await.unwrap() > 0);
}
