//! Signatures as cosign keeps them: an OCI image at the tag `sha256-<hex>.sig` beside the signed manifest. Each of
//! its layers is a payload; the signature over it is an annotation of the layer (cosign,
//! `specs/SIGNATURE_SPEC.md`).
//!
//! Xebec signs the manifest of the index artifact: it names the indexes of all layers by digest. So
//! `cosign verify --key` accepts what [`sign`] makes, and [`verify`] accepts what `cosign sign --key` makes.

use base64ct::{Base64, Encoding};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use xebec_format::digest::Digest;

use super::key::PrivateKey;
use super::payload::{MAX_PAYLOAD, Payload, PayloadError};
use super::policy::{Policy, TrustedKey};
use super::roots::Signing;
use super::scope::RepositoryName;

/// Media type of a layer that is a payload.
pub const SIGNATURE_LAYER_MEDIA_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of such a layer that holds the signature, in base64.
pub const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// Largest manifest of signatures that is read, in bytes. Registries take manifests up to 4 MiB, but this one
/// is read before a container starts and one signature takes about 350 bytes (certificates of keyless ones 10
/// KiB).
pub const MAX_SIGNATURE_MANIFEST: usize = 1024 * 1024;
/// Most signatures on one artifact. With 64 keys, that is at most 4,096 verifications, under a second.
pub const MAX_SIGNATURES: usize = 64;
/// Longest signature in base64. ECDSA on P-256 takes at most 96 characters; other keys' are not ours to
/// reject.
const MAX_SIGNATURE_TEXT: usize = 8 * 1024;

const MANIFEST_MEDIA_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_MEDIA_TYPE: &str = "application/vnd.oci.image.config.v1+json";

/// The tag at which the signatures of the manifest `signed` are.
pub fn signature_tag(signed: Digest) -> String {
    format!("sha256-{}.sig", signed.hex())
}

/// One signature in a [`SignatureManifest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureEntry {
    /// The blob that is signed.
    pub payload: Digest,
    /// Its size in bytes.
    pub payload_size: u64,
    /// The signature in base64, not yet decoded.
    signature: String,
}

/// The manifest of all signatures of one artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignatureManifest {
    signatures: Vec<SignatureEntry>,
}

/// Why bytes are no manifest of signatures.
#[derive(Debug, thiserror::Error)]
pub enum SignatureManifestError {
    /// Larger than [`MAX_SIGNATURE_MANIFEST`].
    #[error("a signature manifest of {0} bytes is more than the {MAX_SIGNATURE_MANIFEST} allowed")]
    TooLarge(usize),
    /// Not the JSON of an OCI manifest.
    #[error("the signature manifest is no OCI manifest: {0}")]
    Json(#[from] serde_json::Error),
    /// A field says something else than it must.
    #[error("the signature manifest has {0}")]
    Field(String),
}

/// The manifest with layers kept as they are, so that other people's signatures survive adding one.
#[derive(Serialize, Deserialize)]
struct RawManifest {
    #[serde(rename = "schemaVersion")]
    schema_version: u32,
    #[serde(rename = "mediaType", default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    config: Value,
    layers: Vec<RawLayer>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct RawLayer {
    #[serde(rename = "mediaType")]
    media_type: String,
    size: u64,
    digest: Digest,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    annotations: Map<String, Value>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl RawManifest {
    fn parse(bytes: &[u8]) -> Result<Self, SignatureManifestError> {
        if bytes.len() > MAX_SIGNATURE_MANIFEST {
            return Err(SignatureManifestError::TooLarge(bytes.len()));
        }
        let manifest: Self = serde_json::from_slice(bytes)?;
        let field = |text: String| Err(SignatureManifestError::Field(text));
        if manifest.schema_version != 2 {
            return field(format!("schemaVersion {}, not 2", manifest.schema_version));
        }
        if manifest.rest.contains_key("manifests") {
            return field("layers and manifests, so it could be read as two things".to_owned());
        }
        if let Some(other) = manifest
            .media_type
            .as_deref()
            .filter(|media_type| *media_type != MANIFEST_MEDIA_TYPE)
        {
            return field(format!("media type {other:?}"));
        }
        if manifest.layers.len() > MAX_SIGNATURES {
            return field(format!(
                "{} layers, more than the {MAX_SIGNATURES} allowed",
                manifest.layers.len()
            ));
        }
        Ok(manifest)
    }
}

impl SignatureManifest {
    /// Reads a manifest. Layers that are no signatures are passed over.
    ///
    /// # Errors
    /// See [`SignatureManifestError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, SignatureManifestError> {
        let manifest = RawManifest::parse(bytes)?;
        let layers = manifest
            .layers
            .into_iter()
            .filter(|layer| layer.media_type == SIGNATURE_LAYER_MEDIA_TYPE);
        let signatures = layers.filter_map(|layer| {
            let signature = layer.annotations.get(SIGNATURE_ANNOTATION)?.as_str()?;
            (signature.len() <= MAX_SIGNATURE_TEXT && layer.size <= MAX_PAYLOAD as u64).then(|| {
                SignatureEntry {
                    payload: layer.digest,
                    payload_size: layer.size,
                    signature: signature.to_owned(),
                }
            })
        });
        Ok(Self {
            signatures: signatures.collect(),
        })
    }

    /// The signatures; the caller fetches their payloads (each once, if several share one).
    pub fn signatures(&self) -> &[SignatureEntry] {
        &self.signatures
    }
}

/// Why no signature on an artifact counts.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// There is nothing to verify with.
    #[error("trust.toml has no key for {0}")]
    NoKey(RepositoryName),
    /// There is nothing to verify.
    #[error("there is no signature on {0}")]
    NoSignature(Digest),
    /// None of the signatures counts; the reasons, one for each.
    #[error("no signature on {artifact} counts for {image}: {}", reasons.join("; "))]
    Rejected {
        /// The artifact whose signatures were checked.
        artifact: Digest,
        /// The repository of the image.
        image: RepositoryName,
        /// Why, for each signature.
        reasons: Vec<String>,
    },
}

/// Verifies signatures on `artifact`, the manifest that holds the indexes of an image in `repository`.
///
/// `payloads` are the blobs that the manifest names, in any order; they are told by their digests.
///
/// # Errors
/// [`VerifyError`] if no key that counts for the repository made one of the signatures, for this artifact and
/// (unless the key says otherwise) for this repository.
pub fn verify(
    policy: &Policy,
    repository: &RepositoryName,
    artifact: Digest,
    manifest: &SignatureManifest,
    payloads: &[impl AsRef<[u8]>],
) -> Result<Signing, VerifyError> {
    let keys: Vec<&TrustedKey> = policy.keys_for(repository).collect();
    if keys.is_empty() {
        return Err(VerifyError::NoKey(repository.clone()));
    }
    if manifest.signatures.is_empty() {
        return Err(VerifyError::NoSignature(artifact));
    }
    let blobs: Vec<(Digest, &[u8])> = payloads
        .iter()
        .map(AsRef::as_ref)
        .map(|blob| (Digest::of(blob), blob))
        .collect();
    let mut reasons = Vec::new();
    for entry in &manifest.signatures {
        let blob = blobs.iter().find(|(digest, _)| *digest == entry.payload);
        let verified = match blob {
            Some((_, payload)) => verify_one(&keys, repository, artifact, entry, payload),
            None => Err(format!("its payload {} is not there", entry.payload)),
        };
        match verified {
            Ok(signing) => return Ok(signing),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(VerifyError::Rejected {
        artifact,
        image: repository.clone(),
        reasons,
    })
}

fn verify_one(
    keys: &[&TrustedKey],
    image: &RepositoryName,
    artifact: Digest,
    entry: &SignatureEntry,
    payload: &[u8],
) -> Result<Signing, String> {
    let signature =
        Base64::decode_vec(&entry.signature).map_err(|_| "the signature is not base64".to_owned())?;
    let Some(key) = keys.iter().find(|key| key.public.accepts(payload, &signature)) else {
        let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        return Err(format!("it is by none of the keys {}", names.join(", ")));
    };
    let claim = Payload::parse(payload).map_err(|error| error.to_string())?;
    if claim.manifest != artifact {
        return Err(format!(
            "key {:?} signed {}, something else",
            key.name, claim.manifest
        ));
    }
    if !key.accepts_identity(claim.identity.as_str(), image) {
        return Err(format!(
            "key {:?} signed it for {}; if such copies are to count, set identity = \"any\" for the key in trust.toml",
            key.name, claim.identity
        ));
    }
    Ok(Signing {
        key: key.public.id(),
        identity: claim.identity.to_string(),
        artifact,
    })
}

/// The blobs and the manifest that publish a signature: push both blobs first, then the manifest at the tag.
///
/// Registries have no compare-and-swap: of two users who sign at the same moment, one may have to sign
/// again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignaturePush {
    /// The tag of the manifest.
    pub tag: String,
    /// The manifest.
    pub manifest: Vec<u8>,
    /// A blob: the configuration that makes the manifest an image for every client.
    pub config: Vec<u8>,
    /// A blob: the payload.
    pub payload: Vec<u8>,
}

/// Why a signature could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The manifest at the signatures' tag is not understood, and is not overwritten.
    #[error("the tag {tag} exists and cannot be added to: {source}; remove it, then sign again")]
    Existing {
        /// The tag.
        tag: String,
        /// Why.
        source: SignatureManifestError,
    },
    /// There is no room for one more.
    #[error("there are {MAX_SIGNATURES} signatures at {0} already; remove some, then sign again")]
    Full(String),
    /// Never in practice; the encoders have errors.
    #[error("cannot encode the signature: {0}")]
    Encode(#[from] PayloadError),
}

/// Signs the manifest `artifact` in `repository`, beside the signatures in `existing` (the manifest at
/// [`signature_tag`], if there is one).
///
/// # Errors
/// See [`SignError`]. Nothing that others signed is ever dropped.
pub fn sign(
    key: &PrivateKey,
    repository: &RepositoryName,
    artifact: Digest,
    existing: Option<&[u8]>,
) -> Result<SignaturePush, SignError> {
    let tag = signature_tag(artifact);
    let mut manifest = match existing {
        Some(bytes) => RawManifest::parse(bytes).map_err(|source| SignError::Existing {
            tag: tag.clone(),
            source,
        })?,
        None => RawManifest {
            schema_version: 2,
            media_type: None,
            config: Value::Null,
            layers: Vec::new(),
            rest: Map::new(),
        },
    };
    let identity = repository.clone();
    let payload = Payload {
        manifest: artifact,
        identity,
    }
    .to_json()?;
    let layer = signature_layer(&payload, &key.sign(&payload));
    // Signing is deterministic, so signing twice changes nothing.
    if !manifest.layers.contains(&layer) {
        manifest.layers.push(layer);
    }
    if manifest.layers.len() > MAX_SIGNATURES {
        return Err(SignError::Full(tag));
    }
    let config = image_config(&manifest.layers);
    manifest.media_type = Some(MANIFEST_MEDIA_TYPE.to_owned());
    manifest.config =
        json!({ "mediaType": CONFIG_MEDIA_TYPE, "size": config.len(), "digest": Digest::of(&config) });
    let manifest = serde_json::to_vec(&manifest).map_err(PayloadError::from)?;
    Ok(SignaturePush {
        tag,
        manifest,
        config,
        payload,
    })
}

fn signature_layer(payload: &[u8], signature: &[u8]) -> RawLayer {
    let mut annotations = Map::new();
    annotations.insert(
        SIGNATURE_ANNOTATION.to_owned(),
        Base64::encode_string(signature).into(),
    );
    RawLayer {
        media_type: SIGNATURE_LAYER_MEDIA_TYPE.to_owned(),
        size: payload.len() as u64,
        digest: Digest::of(payload),
        annotations,
        rest: Map::new(),
    }
}

/// An image configuration whose diff IDs are the payloads', which are not compressed.
fn image_config(layers: &[RawLayer]) -> Vec<u8> {
    const NEVER: &str = "0001-01-01T00:00:00Z";
    let diff_ids: Vec<Digest> = layers.iter().map(|layer| layer.digest).collect();
    let history = vec![json!({ "created": NEVER }); layers.len()];
    json!({
        "architecture": "",
        "config": {},
        "created": NEVER,
        "history": history,
        "os": "",
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    })
    .to_string()
    .into_bytes()
}
