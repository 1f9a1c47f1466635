//! The facts about a pushed manifest that a registry needs: its references, its subject, its kind. Pure.
//!
//! The bytes stay as they are. Unlike the reader of images (`xebec_oci::manifest`), a registry takes artifacts of any kind and
//! digests of both algorithms, and it need not know what layers are made of.

use std::collections::BTreeMap;

use serde::Deserialize;
use xebec_store::{Digest, Reference, ReferenceKind};

/// The OCI image manifest, also of artifacts.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The OCI image index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Docker's image manifest, schema 2.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's list of manifests.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// The most entries of a manifest or index: each is a row of the database.
pub const MAX_ENTRIES: usize = 10_000;
/// The longest media type, artifact type, or name of an annotation that is kept to be searched.
const MAX_TYPE: usize = 255;

/// The facts that a manifest states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The media type of the manifest.
    pub media_type: String,
    /// The blobs and manifests that it names. Layers that may not be distributed need not be in the repository.
    pub references: Vec<Reference>,
    /// The manifest that it refers to.
    pub subject: Option<Digest>,
    /// By which kind it is found among what refers to its subject.
    pub artifact_type: Option<String>,
    /// Free-form facts.
    pub annotations: BTreeMap<String, String>,
}

/// Why bytes are no manifest that the registry takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON, or not of the right shape.
    #[error("the manifest cannot be read as JSON of its type: {0}")]
    Json(String),
    /// Docker schema 1.
    #[error("Docker schema 1 is not supported; push the image again with a current client")]
    Schema1,
    /// Another version.
    #[error("the manifest's schemaVersion is {0}; this registry knows 2")]
    SchemaVersion(u64),
    /// A type that is not known.
    #[error(
        "the type {0:?} is not supported; push an OCI image manifest or index, or Docker's manifest or list of schema 2 (artifacts of \
         any kind are OCI image manifests with an artifactType)"
    )]
    MediaType(String),
    /// The header and the manifest differ.
    #[error("Content-Type says {header:?} and the manifest's mediaType {own:?}; they must be the same")]
    TypesDiffer {
        /// The media type in the request's header.
        header: String,
        /// The media type in the manifest.
        own: String,
    },
    /// It could be read as both.
    #[error(
        "the manifest has the fields of both an image and an index, which readers take differently; leave one out"
    )]
    Ambiguous,
    /// More than [`MAX_ENTRIES`].
    #[error("the manifest has {0} entries; this registry takes {MAX_ENTRIES}")]
    TooMany(usize),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: u64,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    artifact_type: Option<String>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
    #[serde(default)]
    subject: Option<Descriptor>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    fs_layers: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    #[serde(rename = "size")]
    _size: u64,
}

impl Facts {
    /// Reads a manifest that was sent as `content_type`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn read(content: &[u8], content_type: Option<&str>) -> Result<Self, ManifestError> {
        let document: Document =
            serde_json::from_slice(content).map_err(|error| ManifestError::Json(error.to_string()))?;
        if document.schema_version == 1 || document.fs_layers.is_some() {
            return Err(ManifestError::Schema1);
        }
        if document.schema_version != 2 {
            return Err(ManifestError::SchemaVersion(document.schema_version));
        }
        if document.manifests.is_some() && (document.layers.is_some() || document.config.is_some()) {
            return Err(ManifestError::Ambiguous);
        }
        let media_type = media_type(&document, content_type)?;
        match media_type.as_str() {
            OCI_MANIFEST | DOCKER_MANIFEST => image(document, media_type),
            OCI_INDEX | DOCKER_LIST => index(document, media_type),
            _ => Err(ManifestError::MediaType(media_type)),
        }
    }

    /// Whether it lists manifests.
    pub fn is_index(&self) -> bool {
        is_index(&self.media_type)
    }
}

/// Whether manifests of that type list others.
pub fn is_index(media_type: &str) -> bool {
    matches!(media_type, OCI_INDEX | DOCKER_LIST)
}

/// The type by the header and the manifest's own word, which must not differ.
fn media_type(document: &Document, content_type: Option<&str>) -> Result<String, ManifestError> {
    let header = content_type
        .map(|text| {
            text.split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .to_ascii_lowercase()
        })
        .filter(|text| {
            !matches!(
                text.as_str(),
                "" | "application/json" | "application/octet-stream"
            )
        });
    match (header, &document.media_type) {
        (Some(header), Some(own)) if header != *own => Err(ManifestError::TypesDiffer {
            header,
            own: own.clone(),
        }),
        (Some(media_type), _) => Ok(media_type),
        (None, Some(own)) => Ok(own.clone()),
        (None, None) if document.manifests.is_some() => Ok(OCI_INDEX.to_owned()),
        (None, None) => Ok(OCI_MANIFEST.to_owned()),
    }
}

fn image(document: Document, media_type: String) -> Result<Facts, ManifestError> {
    let config = document
        .config
        .ok_or_else(|| ManifestError::Json("the field config is missing".to_owned()))?;
    let layers = document.layers.unwrap_or_default();
    bounded(layers.len() + 1)?;
    let mut references = vec![reference(ReferenceKind::Config, &config)?];
    for layer in &layers {
        references.push(Reference {
            required: !is_nondistributable(&layer.media_type),
            ..reference(ReferenceKind::Layer, layer)?
        });
    }
    let artifact_type = document
        .artifact_type
        .filter(|text| !text.is_empty())
        .or(Some(config.media_type))
        .filter(|text| text.len() <= MAX_TYPE);
    Ok(Facts {
        media_type,
        references,
        subject: subject(document.subject.as_ref())?,
        artifact_type,
        annotations: document.annotations.unwrap_or_default(),
    })
}

fn index(document: Document, media_type: String) -> Result<Facts, ManifestError> {
    let entries = document
        .manifests
        .ok_or_else(|| ManifestError::Json("the field manifests is missing".to_owned()))?;
    bounded(entries.len())?;
    let references = entries
        .iter()
        .map(|entry| reference(ReferenceKind::Manifest, entry));
    Ok(Facts {
        media_type,
        references: references.collect::<Result<_, _>>()?,
        subject: subject(document.subject.as_ref())?,
        artifact_type: document
            .artifact_type
            .filter(|text| !text.is_empty() && text.len() <= MAX_TYPE),
        annotations: document.annotations.unwrap_or_default(),
    })
}

fn bounded(entries: usize) -> Result<(), ManifestError> {
    match entries <= MAX_ENTRIES {
        true => Ok(()),
        false => Err(ManifestError::TooMany(entries)),
    }
}

fn digest(descriptor: &Descriptor) -> Result<Digest, ManifestError> {
    descriptor
        .digest
        .parse()
        .map_err(|error: xebec_store::InvalidDigest| ManifestError::Json(error.to_string()))
}

fn reference(kind: ReferenceKind, descriptor: &Descriptor) -> Result<Reference, ManifestError> {
    Ok(Reference {
        kind,
        digest: digest(descriptor)?,
        required: true,
    })
}

fn subject(descriptor: Option<&Descriptor>) -> Result<Option<Digest>, ManifestError> {
    descriptor.map(digest).transpose()
}

/// Layers that registries may not distribute, which clients therefore need not push.
fn is_nondistributable(media_type: &str) -> bool {
    media_type.starts_with("application/vnd.oci.image.layer.nondistributable.")
        || media_type.starts_with("application/vnd.docker.image.rootfs.foreign.")
}

/// The entry of an index for clients that know no indexes: the one for `linux/amd64`, as the CNCF registry had it.
pub fn usual_platform(content: &[u8]) -> Option<Digest> {
    #[derive(Deserialize)]
    struct Index {
        manifests: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        digest: String,
        #[serde(default)]
        platform: Option<Platform>,
    }
    #[derive(Deserialize)]
    struct Platform {
        os: String,
        architecture: String,
    }
    let index: Index = serde_json::from_slice(content).ok()?;
    let is_usual = |entry: &&Entry| {
        let platform = entry.platform.as_ref();
        platform.is_some_and(|platform| platform.os == "linux" && platform.architecture == "amd64")
    };
    index.manifests.iter().find(is_usual)?.digest.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn descriptor(media_type: &str, fill: char) -> Value {
        let digest = format!("sha256:{}", String::from(fill).repeat(64));
        json!({"mediaType": media_type, "digest": digest, "size": 2})
    }

    fn image() -> Value {
        json!({
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", 'a'),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar+gzip", 'b')],
        })
    }

    fn read(value: &Value, content_type: Option<&str>) -> Result<Facts, ManifestError> {
        Facts::read(value.to_string().as_bytes(), content_type)
    }

    #[test]
    fn an_image_names_its_blobs() {
        let facts = read(&image(), Some(OCI_MANIFEST)).unwrap();
        assert_eq!(facts.references.len(), 2);
        assert_eq!(facts.media_type, OCI_MANIFEST);
        assert_eq!(
            facts.artifact_type.as_deref(),
            Some("application/vnd.oci.image.config.v1+json")
        );
        assert_eq!(facts.subject, None);
    }

    #[test]
    fn an_artifact_has_a_type_and_a_subject() {
        let mut artifact = image();
        artifact["artifactType"] = json!("application/vnd.example");
        artifact["subject"] = descriptor(OCI_MANIFEST, 'c');
        artifact["annotations"] = json!({"a": "b"});
        let facts = read(&artifact, Some(OCI_MANIFEST)).unwrap();
        assert_eq!(facts.artifact_type.as_deref(), Some("application/vnd.example"));
        assert_eq!(facts.subject.unwrap().hex(), "c".repeat(64));
        assert_eq!(facts.annotations["a"], "b");
    }

    #[test]
    fn layers_that_may_not_be_distributed_need_not_be_there() {
        let mut foreign = image();
        let media_type = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip";
        foreign["layers"] = json!([descriptor(media_type, 'd'), descriptor("x/y", 'b')]);
        let facts = read(&foreign, None).unwrap();
        let required: Vec<bool> = facts
            .references
            .iter()
            .map(|reference| reference.required)
            .collect();
        assert_eq!(required, [true, false, true]);
    }

    #[test]
    fn an_index_names_manifests() {
        let index = json!({"schemaVersion": 2, "manifests": [descriptor(OCI_MANIFEST, 'a')]});
        let facts = read(&index, None).unwrap();
        assert!(facts.is_index());
        assert_eq!(facts.references[0].kind, ReferenceKind::Manifest);
        assert_eq!(facts.artifact_type, None);
        let empty = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": []});
        assert!(read(&empty, Some(OCI_INDEX)).unwrap().references.is_empty());
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_the_reason() {
        let error = |value: &Value, content_type| read(value, content_type).unwrap_err();
        assert!(matches!(Facts::read(b"{", None), Err(ManifestError::Json(_))));
        assert!(matches!(Facts::read(b"", None), Err(ManifestError::Json(_))));
        assert_eq!(
            error(&json!({"schemaVersion": 1, "fsLayers": []}), None),
            ManifestError::Schema1
        );
        assert_eq!(
            error(&json!({"schemaVersion": 3}), None),
            ManifestError::SchemaVersion(3)
        );
        assert!(matches!(
            error(&image(), Some("text/html")),
            ManifestError::TypesDiffer { .. }
        ));
        assert!(matches!(
            error(&image(), Some(OCI_INDEX)),
            ManifestError::TypesDiffer { .. }
        ));
        let mut other = image();
        other["mediaType"] = json!("application/vnd.example");
        assert!(matches!(error(&other, None), ManifestError::MediaType(_)));
        let mut both = image();
        both["manifests"] = json!([]);
        assert_eq!(error(&both, None), ManifestError::Ambiguous);
        let mut wrong = image();
        wrong["layers"][0]["digest"] = json!("sha256:../../etc");
        assert!(matches!(error(&wrong, None), ManifestError::Json(_)));
        let many = vec![descriptor(OCI_MANIFEST, 'a'); MAX_ENTRIES + 1];
        let many = json!({"schemaVersion": 2, "manifests": many});
        assert_eq!(error(&many, None), ManifestError::TooMany(MAX_ENTRIES + 1));
    }

    #[test]
    fn clients_without_indexes_get_the_usual_platform() {
        let mut arm = descriptor(OCI_MANIFEST, 'a');
        arm["platform"] = json!({"os": "linux", "architecture": "arm64"});
        let mut usual = descriptor(OCI_MANIFEST, 'b');
        usual["platform"] = json!({"os": "linux", "architecture": "amd64"});
        let index = json!({"manifests": [arm, usual]}).to_string();
        assert_eq!(usual_platform(index.as_bytes()).unwrap().hex(), "b".repeat(64));
        assert_eq!(usual_platform(b"{\"manifests\": []}"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(content: Vec<u8>, content_type in proptest::option::of(".{0,40}")) {
            let _ = Facts::read(&content, content_type.as_deref());
            let _ = usual_platform(&content);
        }
    }
}
