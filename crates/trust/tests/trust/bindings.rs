//! Image indexes that bind: what is kept, what is found again, and what is refused.

use proptest::prelude::*;
use serde_json::{Value, json};
use xebec_format::digest::Digest;
use xebec_trust::{
    ARTIFACT_TYPE, BindError, Binding, BoundArtifact, IMAGE_INDEX_MEDIA_TYPE, IMAGE_MANIFEST_ANNOTATION,
    Original, Platform, RepositoryName, Roots, bind, bound_artifact,
};

const OCI: &str = "application/vnd.oci.image.manifest.v1+json";
const DOCKER: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

fn linux(architecture: &str) -> Platform {
    Platform {
        architecture: architecture.to_owned(),
        os: "linux".to_owned(),
        variant: None,
    }
}

fn bound(manifest: Digest, artifact: &str) -> BoundArtifact {
    BoundArtifact {
        manifest,
        artifact: Digest::of(artifact.as_bytes()),
        artifact_size: artifact.len() as u64,
    }
}

/// The artifact bound to a manifest, for tests that do not look at the rest.
fn artifact(index: &[u8], manifest: Digest) -> Option<Digest> {
    bound_artifact(index, manifest)
        .unwrap()
        .map(|(bound, _)| bound.artifact)
}

#[test]
fn one_manifest_becomes_an_image_index() {
    let image = b"{\"an\":\"image manifest\"}";
    let manifest = Digest::of(image);
    let original = Original::Manifest {
        media_type: DOCKER,
        bytes: image,
        platform: linux("arm64"),
    };
    let index = bind(&original, &[bound(manifest, "artifact")]).unwrap();
    let want = json!({
        "schemaVersion": 2,
        "mediaType": IMAGE_INDEX_MEDIA_TYPE,
        "manifests": [
            { "mediaType": DOCKER, "digest": manifest, "size": image.len(),
              "platform": { "os": "linux", "architecture": "arm64" } },
            { "mediaType": OCI, "digest": Digest::of(b"artifact"), "size": 8, "artifactType": ARTIFACT_TYPE,
              "annotations": { IMAGE_MANIFEST_ANNOTATION: manifest },
              "platform": { "os": "unknown", "architecture": "unknown" } },
        ],
    });
    assert_eq!(serde_json::from_slice::<Value>(&index).unwrap(), want);

    let (found, binding) = bound_artifact(&index, manifest).unwrap().unwrap();
    assert_eq!(found, bound(manifest, "artifact"));
    let want = Binding::ImageIndex {
        image_index: Digest::of(&index),
        manifest,
        artifact: found.artifact,
    };
    assert_eq!(binding, want);
    assert_eq!(artifact(&index, Digest::of(b"another")), None);
    // The artifact itself is an entry of the index, but no image that something is bound to.
    assert_eq!(artifact(&index, found.artifact), None);
}

#[test]
fn a_binding_counts_only_on_its_own_way() {
    let image = b"image";
    let manifest = Digest::of(image);
    let original = Original::Manifest {
        media_type: OCI,
        bytes: image,
        platform: linux("amd64"),
    };
    let index = bind(&original, &[bound(manifest, "artifact")]).unwrap();
    let (_, binding) = bound_artifact(&index, manifest).unwrap().unwrap();
    let counts = |path: &[Digest]| Roots::none().bound(&binding, path).is_bound();
    assert!(counts(&[Digest::of(&index), manifest]));
    assert!(
        !counts(&[manifest]),
        "the manifest was named, not the image index"
    );
    assert!(!counts(&[Digest::of(&index)]));
    assert!(!counts(&[Digest::of(b"another index"), manifest]));
    assert!(!counts(&[]));

    let toc = Binding::TableOfContents { manifest };
    assert!(Roots::none().bound(&toc, &[manifest]).is_bound());
    assert!(
        !Roots::none()
            .bound(&toc, &[Digest::of(b"another image")])
            .is_bound()
    );
}

#[test]
fn everything_else_in_an_image_index_is_kept() {
    let (amd, arm) = (Digest::of(b"amd"), Digest::of(b"arm"));
    let original = json!({
        "schemaVersion": 2,
        "mediaType": DOCKER_LIST,
        "manifests": [
            { "mediaType": DOCKER, "digest": amd, "size": 3,
              "platform": { "os": "linux", "architecture": "amd64", "os.features": ["x"] }, "urls": ["u"] },
            { "mediaType": DOCKER, "digest": arm, "size": 3, "annotations": { "k": "v" },
              "platform": { "os": "linux", "architecture": "arm", "variant": "v7" } },
            // A number of which a reader that is content with nearly the same makes another each time.
            { "mediaType": OCI, "digest": "sha512:00", "size": 1, "odd": 2.222_222_220_222_222_2e30 },
        ],
        "annotations": { "org": "kept" },
    });
    let bytes = original.to_string().into_bytes();
    let index = bind(
        &Original::ImageIndex(&bytes),
        &[bound(amd, "a1"), bound(arm, "a2")],
    )
    .unwrap();
    let value: Value = serde_json::from_slice(&index).unwrap();
    assert_eq!(value["mediaType"], IMAGE_INDEX_MEDIA_TYPE);
    assert_eq!(value["annotations"], original["annotations"]);
    let entries = value["manifests"].as_array().unwrap();
    assert_eq!(&entries[..3], original["manifests"].as_array().unwrap());
    assert_eq!(entries.len(), 5);
    assert_eq!(artifact(&index, amd), Some(Digest::of(b"a1")));
    assert_eq!(artifact(&index, arm), Some(Digest::of(b"a2")));

    // Binding anew replaces the binding of the same manifest only; binding the same again changes nothing.
    let again = bind(&Original::ImageIndex(&index), &[bound(amd, "a3")]).unwrap();
    assert_eq!(artifact(&again, amd), Some(Digest::of(b"a3")));
    assert_eq!(artifact(&again, arm), Some(Digest::of(b"a2")));
    assert_eq!(
        bind(&Original::ImageIndex(&again), &[bound(amd, "a3")]).unwrap(),
        again
    );
}

#[test]
fn what_cannot_be_bound_is_refused() {
    let manifest = Digest::of(b"image");
    let with = |more: Value| {
        let mut index = json!({ "schemaVersion": 2, "manifests": [] });
        index
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        index.to_string().into_bytes()
    };
    let refused = |bytes: &[u8]| bound_artifact(bytes, manifest).unwrap_err();
    assert!(matches!(refused(b"[]"), BindError::Json(_)));
    assert!(matches!(
        refused(&with(json!({ "schemaVersion": 1 }))),
        BindError::Field(_)
    ));
    assert!(matches!(
        refused(&with(json!({ "mediaType": OCI }))),
        BindError::Field(_)
    ));
    assert!(matches!(
        refused(&with(json!({ "layers": [] }))),
        BindError::Field(_)
    ));
    assert!(matches!(
        refused(&vec![b' '; 4 * 1024 * 1024 + 1]),
        BindError::TooLarge(_)
    ));

    // An image index that is made must be small enough to be read again.
    let filled = |bytes: usize| {
        let manifests = json!([{ "mediaType": OCI, "digest": manifest, "size": 5 }]);
        let filler = json!({ "filler": "x".repeat(bytes) });
        let index = with(json!({ "manifests": manifests, "annotations": filler }));
        bind(&Original::ImageIndex(&index), &[bound(manifest, "artifact")])
    };
    let spent = filled(0).unwrap().len();
    let room = 4 * 1024 * 1024 - spent;
    assert_eq!(filled(room).unwrap().len(), 4 * 1024 * 1024);
    assert!(matches!(filled(room + 1), Err(BindError::TooLarge(_))));

    let image = json!({ "mediaType": OCI, "digest": manifest, "size": 5 });
    let entry = |digest: &str| {
        json!({ "mediaType": OCI, "digest": digest, "size": 1, "artifactType": ARTIFACT_TYPE,
                "annotations": { IMAGE_MANIFEST_ANNOTATION: manifest } })
    };
    let (one, two) = (Digest::of(b"1").to_string(), Digest::of(b"2").to_string());
    let two_claims = with(json!({ "manifests": [image, entry(&one), entry(&two)] }));
    assert!(matches!(refused(&two_claims), BindError::Ambiguous { .. }));
    let twice_the_same = with(json!({ "manifests": [image, entry(&one), entry(&one)] }));
    assert_eq!(artifact(&twice_the_same, manifest), Some(Digest::of(b"1")));
    assert!(matches!(
        refused(&with(json!({ "manifests": [image, entry("sha512:0")] }))),
        BindError::Field(_)
    ));
    // Bound to an image that the index does not name.
    assert_eq!(
        artifact(&with(json!({ "manifests": [entry(&one)] })), manifest),
        None
    );
    let error = bind(&Original::ImageIndex(&with(json!({}))), &[bound(manifest, "a")]).unwrap_err();
    assert!(matches!(error, BindError::NoSuchManifest(missing) if missing == manifest));
    // Another artifact that happens to carry the annotation is no index.
    let mut other = entry(&one);
    other["artifactType"] = json!("application/spdx+json");
    assert_eq!(
        artifact(&with(json!({ "manifests": [image, other] })), manifest),
        None
    );
}

proptest! {
    /// Binding any artifacts to any of the images, in any order, in one go or one by one, ends in a map.
    #[test]
    fn binds_like_a_map(steps in prop::collection::vec((0u8..4, 0u8..6), 0..12), batch in any::<bool>()) {
        let digest = |number: u8| Digest::of(&[number]);
        let images: Vec<Value> = (0..4)
            .map(|number| json!({ "mediaType": OCI, "digest": digest(number), "size": 1 }))
            .collect();
        let mut index = json!({ "schemaVersion": 2, "manifests": images }).to_string().into_bytes();
        let mut model = std::collections::BTreeMap::new();
        let bound: Vec<BoundArtifact> =
            steps.iter().map(|(image, name)| bound(digest(*image), &format!("artifact {name}"))).collect();
        for one in &bound {
            model.insert(one.manifest, one.artifact);
        }
        if batch {
            index = bind(&Original::ImageIndex(&index), &bound).unwrap();
        } else {
            for one in bound {
                index = bind(&Original::ImageIndex(&index), &[one]).unwrap();
            }
        }
        for image in 0..4 {
            prop_assert_eq!(artifact(&index, digest(image)), model.get(&digest(image)).copied());
        }
    }

    #[test]
    fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = bound_artifact(&bytes, Digest::of(b""));
        let _ = bind(&Original::ImageIndex(&bytes), &[]);
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let _ = RepositoryName::from_docker_reference(text);
        }
    }
}
