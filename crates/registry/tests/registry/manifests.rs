//! Manifests, tags and what refers to them.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use xebec_store::{Algorithm, Digest, NewManifest};

use crate::running::{OCI_INDEX, OCI_MANIFEST, Running, artifact, code, image};

#[tokio::test]
async fn an_image_is_pulled_as_it_was_pushed() {
    let registry = Running::start().await;
    let (manifest, digest) = registry.push_image("a/b", "latest", b"layer").await;
    for reference in ["latest".to_owned(), digest.to_string()] {
        let answer = registry.get(&format!("/v2/a/b/manifests/{reference}")).await;
        assert_eq!(answer.headers()["content-type"], OCI_MANIFEST);
        assert_eq!(answer.headers()["docker-content-digest"], digest.to_string());
        assert_eq!(
            answer.headers()["docker-distribution-api-version"],
            "registry/2.0"
        );
        assert_eq!(answer.text().await.unwrap(), manifest.to_string());
    }
    let known = registry
        .request(Method::GET, "/v2/a/b/manifests/latest")
        .header("if-none-match", format!("\"{digest}\""))
        .send()
        .await
        .unwrap();
    assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
}

#[tokio::test]
async fn a_manifest_whose_blobs_are_missing_is_refused_by_name() {
    let registry = Running::start().await;
    let config = registry.push_blob("a", b"{}").await;
    let missing = Digest::of(Algorithm::Sha256, b"missing");
    let answer = registry
        .push_manifest("a", "v1", &image(&config, &missing, 7))
        .await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let text = answer.text().await.unwrap();
    assert!(
        text.contains("MANIFEST_BLOB_UNKNOWN") && text.contains(&missing.to_string()),
        "{text}"
    );
    // Another repository's blobs do not count.
    let answer = registry
        .push_manifest("b", "v1", &image(&config, &config, 2))
        .await;
    assert_eq!(code(answer).await, "MANIFEST_BLOB_UNKNOWN");
}

#[tokio::test]
async fn a_copy_of_a_part_is_taken_where_the_operator_says_so() {
    let registry = Running::with(|_| {}, |registry| registry.settings.sparse = true).await;
    let missing = Digest::of(Algorithm::Sha256, b"missing");
    let answer = registry
        .push_manifest("a", "v1", &image(&missing, &missing, 7))
        .await;
    assert_eq!(answer.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn what_is_no_manifest_is_refused() {
    let registry = Running::start().await;
    let config = registry.push_blob("a", b"{}").await;
    let refused = |manifest: Value| {
        let registry = &registry;
        async move { code(registry.push_manifest("a", "v1", &manifest).await).await }
    };
    assert_eq!(
        refused(json!({"schemaVersion": 1, "fsLayers": []})).await,
        "MANIFEST_INVALID"
    );
    assert_eq!(refused(json!("text")).await, "MANIFEST_INVALID");
    let other = Digest::of(Algorithm::Sha256, b"other");
    let answer = registry
        .push_manifest("a", &other.to_string(), &image(&config, &config, 2))
        .await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert_eq!(code(answer).await, "DIGEST_INVALID");
}

#[tokio::test]
async fn several_tags_are_set_by_one_push() {
    let registry = Running::start().await;
    let config = registry.push_blob("a", b"{}").await;
    let manifest = image(&config, &config, 2);
    let digest = Digest::of(Algorithm::Sha512, manifest.to_string().as_bytes());
    let answer = registry
        .push_manifest("a", &format!("{digest}?tag=one&tag=two"), &manifest)
        .await;
    assert_eq!(answer.status(), StatusCode::CREATED);
    let tags: Vec<_> = answer.headers().get_all("oci-tag").iter().collect();
    assert_eq!(tags, ["one", "two"]);
    let pulled = registry.get("/v2/a/manifests/two").await;
    assert_eq!(pulled.headers()["docker-content-digest"], digest.to_string());
    let wrong = registry
        .push_manifest("a", &format!("{digest}?tag=.."), &manifest)
        .await;
    assert_eq!(code(wrong).await, "TAG_INVALID");
}

#[tokio::test]
async fn a_client_that_knows_no_index_gets_the_usual_platform() {
    let registry = Running::start().await;
    let (manifest, digest) = registry.push_image("a", "one", b"layer").await;
    let index = json!({
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [{
            "mediaType": OCI_MANIFEST,
            "digest": digest.to_string(),
            "size": manifest.to_string().len(),
            "platform": {"os": "linux", "architecture": "amd64"},
        }],
    });
    assert_eq!(
        registry.push_manifest("a", "all", &index).await.status(),
        StatusCode::CREATED
    );
    let accepting = |media_type: &'static str| {
        let request = registry.request(Method::GET, "/v2/a/manifests/all");
        async move { request.header("accept", media_type).send().await.unwrap() }
    };
    assert_eq!(accepting(OCI_INDEX).await.headers()["content-type"], OCI_INDEX);
    assert_eq!(accepting("*/*").await.headers()["content-type"], OCI_INDEX);
    let usual = accepting(OCI_MANIFEST).await;
    assert_eq!(usual.headers()["content-type"], OCI_MANIFEST);
    assert_eq!(usual.headers()["docker-content-digest"], digest.to_string());
    let none = accepting("application/vnd.docker.distribution.manifest.v1+json").await;
    assert_eq!(none.status(), StatusCode::NOT_FOUND);
    assert!(none.text().await.unwrap().contains("MANIFEST_UNKNOWN"));
}

async fn digests(registry: &Running, path: &str) -> Vec<String> {
    let answer = registry.get(path).await;
    assert_eq!(answer.status(), StatusCode::OK, "{path}");
    assert_eq!(answer.headers()["content-type"], OCI_INDEX);
    let index: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    let entries = index["manifests"].as_array().unwrap().iter();
    let mut digests: Vec<_> = entries
        .map(|entry| entry["digest"].as_str().unwrap().to_owned())
        .collect();
    digests.sort();
    digests
}

#[tokio::test]
async fn referrers_are_listed_and_the_fallback_tag_keeps_step() {
    let registry = Running::start().await;
    let (_, subject) = registry.push_image("a", "v1", b"layer").await;
    let config = registry.push_blob("a", b"{}").await;
    let list = format!("/v2/a/referrers/{subject}");
    let tag = format!("/v2/a/manifests/sha256-{}", subject.hex());
    assert_eq!(digests(&registry, &list).await, Vec::<String>::new());
    assert_eq!(registry.get(&tag).await.status(), StatusCode::NOT_FOUND);
    let mut pushed = Vec::new();
    for artifact_type in ["application/x.one", "application/x.two"] {
        let manifest = artifact(&config, &subject, artifact_type);
        let digest = Digest::of(Algorithm::Sha256, manifest.to_string().as_bytes()).to_string();
        let answer = registry.push_manifest("a", &digest, &manifest).await;
        assert_eq!(answer.headers()["oci-subject"], subject.to_string());
        pushed.push(digest);
    }
    let sorted = {
        let mut sorted = pushed.clone();
        sorted.sort();
        sorted
    };
    assert_eq!(digests(&registry, &list).await, sorted);
    assert_eq!(digests(&registry, &tag).await, sorted);
    let filtered = format!("{list}?artifactType=application%2Fx.two");
    assert_eq!(digests(&registry, &filtered).await, [pushed[1].clone()]);
    let answer = registry.get(&filtered).await;
    assert_eq!(answer.headers()["oci-filters-applied"], "artifactType");
    let index: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(index["manifests"][0]["artifactType"], "application/x.two");
    assert_eq!(index["manifests"][0]["annotations"]["of"], "application/x.two");
    let delete = registry.request(Method::DELETE, &format!("/v2/a/manifests/{}", pushed[0]));
    assert_eq!(delete.send().await.unwrap().status(), StatusCode::ACCEPTED);
    assert_eq!(digests(&registry, &list).await, [pushed[1].clone()]);
    assert_eq!(digests(&registry, &tag).await, [pushed[1].clone()]);
}

/// A client that keeps the fallback tag itself reads what it has written, as long as that is all there is.
#[tokio::test]
async fn a_fallback_tag_of_a_client_is_answered_while_it_is_whole() {
    let registry = Running::start().await;
    let (_, subject) = registry.push_image("a", "v1", b"layer").await;
    let config = registry.push_blob("a", b"{}").await;
    let manifest = artifact(&config, &subject, "application/x.one");
    let digest = Digest::of(Algorithm::Sha256, manifest.to_string().as_bytes()).to_string();
    registry.push_manifest("a", &digest, &manifest).await;
    let entry = json!({"mediaType": OCI_MANIFEST, "digest": digest, "size": manifest.to_string().len()});
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry], "annotations": {"own": "yes"}});
    let tag = format!("sha256-{}", subject.hex());
    assert_eq!(
        registry.push_manifest("a", &tag, &index).await.status(),
        StatusCode::CREATED
    );
    let path = format!("/v2/a/manifests/{tag}");
    assert_eq!(registry.get(&path).await.text().await.unwrap(), index.to_string());
    let second = artifact(&config, &subject, "application/x.two");
    let other = Digest::of(Algorithm::Sha256, second.to_string().as_bytes()).to_string();
    registry.push_manifest("a", &other, &second).await;
    assert_eq!(digests(&registry, &path).await.len(), 2);
}

/// The specification keeps half of such a digest.
#[tokio::test]
async fn a_fallback_tag_is_there_for_sha512_too() {
    let registry = Running::start().await;
    let config = registry.push_blob("a", b"{}").await;
    let subject = Digest::of(Algorithm::Sha512, b"a subject");
    let manifest = artifact(&config, &subject, "application/x.one");
    let digest = Digest::of(Algorithm::Sha256, manifest.to_string().as_bytes()).to_string();
    registry.push_manifest("a", &digest, &manifest).await;
    let tag = |digits: &str| format!("/v2/a/manifests/sha512-{digits}");
    assert_eq!(digests(&registry, &tag(&subject.hex()[..64])).await, [digest]);
    let other = registry.get(&tag(&"f".repeat(64))).await;
    assert_eq!(code(other).await, "MANIFEST_UNKNOWN");
}

/// Notes in the store what a push of an artifact would.
async fn put_referrer(registry: &Running, subject: &Digest, number: usize, note: &str) -> String {
    let content = bytes::Bytes::from(format!("{{\"number\": {number}}}"));
    let manifest = NewManifest {
        digest: Digest::of(Algorithm::Sha256, &content),
        media_type: OCI_MANIFEST.to_owned(),
        content,
        references: Vec::new(),
        subject: Some(subject.clone()),
        artifact_type: None,
        annotations: [("note".to_owned(), note.to_owned())].into(),
        immutable: Vec::new(),
        is_pushed: true,
    };
    let store = &registry.registry.store;
    let repository = "a".parse().unwrap();
    store.put_manifest(&repository, &manifest, &[]).await.unwrap();
    manifest.digest.to_string()
}

#[tokio::test]
async fn a_fallback_tag_lists_all_that_has_room_and_says_what_has_none() {
    let registry = Running::start().await;
    let subject = Digest::of(Algorithm::Sha256, b"a subject");
    let mut all = Vec::new();
    for number in 0..1100 {
        all.push(put_referrer(&registry, &subject, number, "short").await);
    }
    all.sort();
    let tag = format!("sha256-{}", subject.hex());
    let path = format!("/v2/a/manifests/{tag}");
    let answer = registry.get(&path).await;
    assert!(!answer.headers().contains_key("warning"));
    assert_eq!(digests(&registry, &path).await, all);
    for number in 1100..1104 {
        put_referrer(&registry, &subject, number, &"long".repeat(250_000)).await;
    }
    let cut = registry.get(&path).await;
    let warning = cut.headers()["warning"].to_str().unwrap().to_owned();
    assert!(warning.contains("referrers API"), "{warning}");
    let length = cut.bytes().await.unwrap().len();
    assert!(length < 4 << 20, "{length}");
    // A client's own list may be complete, as that of the registry cannot be.
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []});
    registry.push_manifest("a", &tag, &index).await;
    assert_eq!(registry.get(&path).await.text().await.unwrap(), index.to_string());
}

#[tokio::test]
async fn a_tag_goes_alone_and_a_manifest_with_its_tags() {
    let registry = Running::start().await;
    let (manifest, digest) = registry.push_image("a", "one", b"layer").await;
    registry.push_manifest("a", "two", &manifest).await;
    let delete = |reference: String| {
        let request = registry.request(Method::DELETE, &format!("/v2/a/manifests/{reference}"));
        async move { request.send().await.unwrap() }
    };
    assert_eq!(delete("one".to_owned()).await.status(), StatusCode::ACCEPTED);
    assert_eq!(code(delete("one".to_owned()).await).await, "MANIFEST_UNKNOWN");
    assert_eq!(registry.get("/v2/a/manifests/two").await.status(), StatusCode::OK);
    assert_eq!(delete(digest.to_string()).await.status(), StatusCode::ACCEPTED);
    assert_eq!(
        code(registry.get("/v2/a/manifests/two").await).await,
        "MANIFEST_UNKNOWN"
    );
}
