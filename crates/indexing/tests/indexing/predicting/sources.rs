//! From which earlier version a new one is predicted, and what becomes of one from which nothing can be.

use super::*;

/// The image from whose recording the only runtime image of an image is predicted.
async fn origin(registry: &Here, image: &Image) -> String {
    let found = recordings(&registry.store, "a", image).await;
    let [(_, annotations, _)] = found.as_slice() else {
        panic!("{found:?}");
    };
    annotations[PREDICTED_FROM].clone()
}

/// Pushes and records the first version.
async fn recorded(registry: &Here, read: &[(&str, u64)]) -> Image {
    let [first, _] = versions();
    let old = image(&first, "--old", "amd64");
    registry.push("a", "v1", &old).await;
    registry.finish(&IndexingSettings::default()).await;
    record(registry, "a", &old, &[("/bin/app --old", read)]).await;
    old
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_versions_is_predicted_from_the_one_that_was_recorded() {
    let registry = Here::new().await;
    let old = recorded(&registry, READ).await;
    let [_, second] = versions();
    // More than are looked at. They share more layers with one another than with the first.
    for number in 2..=20 {
        let new = image(&second, &format!("--new{number}"), "amd64");
        registry.push("a", &format!("v{number}"), &new).await;
        registry.finish(&IndexingSettings::default()).await;
        let origin = origin(&registry, &new).await;
        assert_eq!(origin, old.manifest.digest.to_string(), "version {number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_by_an_index_that_is_not_here_does_not_stand_in_the_way() {
    let registry = Here::new().await;
    let settings = IndexingSettings::default();
    let old = recorded(&registry, READ).await;
    let [_, second] = versions();
    let new = image(&second, "--new", "amd64");
    registry.push("a", "v2", &new).await;
    registry.finish(&settings).await;
    let nowhere = Some(Digest::of(b"nowhere"));
    let read: Read<'_> = &[("/bin/app --new", &[("bin/app", 7)])];
    record_by(&registry, "a", &new, read, nowhere).await;
    let newer = image(&second, "--newer", "amd64");
    registry.push("a", "v3", &newer).await;
    registry.finish(&settings).await;
    assert_eq!(origin(&registry, &newer).await, old.manifest.digest.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_be_predicted_is_settled_and_no_problem_of_the_image() {
    let registry = Here::new().await;
    let settings = IndexingSettings::default();
    // No window is needed to decode this page.
    recorded(&registry, &[("bin/app", 7)]).await;
    let [_, second] = versions();
    let new = image(&second, "--new", "amd64");
    registry.push("a", "v2", &new).await;
    registry.finish(&settings).await;
    assert_eq!(recordings(&registry.store, "a", &new).await.len(), 1);
    // Somebody pushed an index whose windows nobody pushed.
    let other = image(&second, "--other", "amd64");
    let mut artifact = registry.listed("a", &new).await.remove(0);
    let lower = artifact.layers.get_mut(&other.layers[0].digest).unwrap();
    let mut index = LayerIndex::decode(&registry.blob("a", lower.index.digest).await).unwrap();
    index.windows.as_mut().unwrap().digest = Digest::of(b"nowhere");
    let index = index.encode();
    registry.push_blob("a", &index).await;
    lower.index.digest = Digest::of(&index);
    lower.index.size = index.len() as u64;
    lower.windows = None;
    let subject = Descriptor::of(&other.manifest.media_type, &other.manifest.bytes);
    let order: Vec<Digest> = other.layers.iter().map(|layer| layer.digest).collect();
    let artifact = serde_json::to_value(artifact.encode(subject, &order)).unwrap();
    registry.push("a", "v3", &other).await;
    registry.push_json("a", "own-index", &artifact).await;
    registry.finish(&settings).await;
    assert!(recordings(&registry.store, "a", &other).await.is_empty());
    assert_eq!(registry.store.indexing_waits().await.unwrap(), 0);
    assert!(registry.store.indexing_problems(1).await.unwrap().is_empty());
}
