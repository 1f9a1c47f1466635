//! Manifests and indexes, as registries send them.

use proptest::prelude::*;
use serde_json::json;
use xebec_format::digest::Digest;
use xebec_oci::manifest::*;
use xebec_oci::{Platform, media_type};

fn entry(media_type: &str, platform: Option<&str>) -> Descriptor {
    let mut entry = Descriptor::of(media_type, format!("{media_type}{platform:?}").as_bytes());
    entry.platform = platform.map(|text| text.parse().unwrap());
    entry
}

fn image_json() -> serde_json::Value {
    json!({
        "schemaVersion": 2,
        "config": Descriptor::of(media_type::OCI_CONFIG, b"{}"),
        "layers": [Descriptor::of("application/vnd.oci.image.layer.v1.tar+gzip", b"x")],
        "annotations": null,
    })
}

fn parse(value: &serde_json::Value, content_type: Option<&str>) -> Result<Manifest, ManifestError> {
    Manifest::parse(value.to_string().as_bytes(), content_type)
}

#[test]
fn selects_by_platform_and_skips_attestations() {
    let index = Index::of(vec![
        entry(media_type::OCI_MANIFEST, Some("unknown/unknown")),
        entry(media_type::OCI_MANIFEST, Some("linux/386")),
        entry(media_type::OCI_MANIFEST, Some("linux/amd64")),
        entry(media_type::OCI_MANIFEST, Some("linux/arm64/v8")),
        entry("application/vnd.example+json", Some("linux/s390x")),
    ]);
    let pick = |text: &str| index.select(&text.parse().unwrap()).map(|d| d.digest);
    assert_eq!(pick("linux/amd64"), Some(index.manifests[2].digest));
    assert_eq!(pick("linux/arm64"), Some(index.manifests[3].digest));
    assert_eq!(pick("linux/s390x"), None);
    let alone = Index::of(vec![entry(media_type::DOCKER_MANIFEST, None)]);
    assert!(alone.select(&Platform::host()).is_some());
    let two = Index::of(vec![entry(media_type::DOCKER_MANIFEST, None); 2]);
    assert!(two.select(&Platform::host()).is_none());
}

#[test]
fn shape_and_names_decide() {
    let image = image_json();
    assert!(matches!(parse(&image, None), Ok(Manifest::Image(_))));
    assert!(matches!(
        parse(&image, Some("application/json; charset=utf-8")),
        Ok(Manifest::Image(_))
    ));
    assert!(matches!(
        parse(&image, Some("text/html")),
        Err(ManifestError::MediaType(_))
    ));
    let index = json!({"schemaVersion": 2, "manifests": null, "mediaType": media_type::OCI_INDEX});
    assert!(matches!(parse(&index, None), Ok(Manifest::Index(_))));
    let mut both = image.clone();
    both["manifests"] = json!([]);
    assert!(matches!(parse(&both, None), Err(ManifestError::Ambiguous)));
    let schema1 = json!({"schemaVersion": 1, "fsLayers": [], "history": []});
    assert!(matches!(parse(&schema1, None), Err(ManifestError::Schema1)));
    assert!(matches!(
        parse(&json!({"schemaVersion": 3}), None),
        Err(ManifestError::SchemaVersion(3))
    ));
}

#[test]
fn limits_hold() {
    let mut image = image_json();
    image["layers"] = json!(vec![Descriptor::of("x", b""); MAX_LAYERS + 1]);
    assert!(matches!(parse(&image, None), Err(ManifestError::Layers(_))));
    let large = vec![b' '; MAX_MANIFEST_SIZE as usize + 1];
    assert!(matches!(
        Manifest::parse(&large, None),
        Err(ManifestError::TooLarge(_))
    ));
    image["layers"] = json!([{"mediaType": "x", "digest": Digest::of(b""), "size": -1}]);
    assert!(matches!(parse(&image, None), Err(ManifestError::Json(_))));
}

#[test]
fn embedded_content_is_verified() {
    let mut descriptor = Descriptor::of(media_type::OCI_EMPTY, b"{}");
    assert_eq!(descriptor.embedded(), None);
    assert!(!json!(descriptor).to_string().contains("data"));
    descriptor.data = Some("e30=".to_owned());
    assert_eq!(json!(descriptor)["data"], "e30=");
    assert_eq!(descriptor.embedded(), Some(b"{}".to_vec()));
    assert_eq!(Descriptor::embedding(media_type::OCI_EMPTY, b"{}"), descriptor);
    descriptor.size = 3;
    assert_eq!(descriptor.embedded(), None);
    descriptor.size = 2;
    descriptor.data = Some("e31=".to_owned());
    assert_eq!(descriptor.embedded(), None);
}

proptest! {
    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Manifest::parse(&bytes, None);
    }
}
