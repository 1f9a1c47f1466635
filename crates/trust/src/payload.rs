//! The "simple signing" payload: the JSON that is signed (containers/image, `docs/containers-signature.5.md`;
//! cosign's `specs/SIGNATURE_SPEC.md`).

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;

use super::scope::{NameError, RepositoryName};

/// Largest payload that is read, in bytes. Cosign's own have about 250; annotations add some.
pub const MAX_PAYLOAD: usize = 64 * 1024;

/// The value of `critical.type` in signatures by cosign.
const SIGNATURE_TYPE: &str = "cosign container image signature";

/// A payload that says: this manifest belongs in this repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The manifest that is signed.
    pub manifest: Digest,
    /// The repository that it was signed for.
    pub identity: RepositoryName,
}

/// Why bytes are no payload of a signature.
#[derive(Debug, thiserror::Error)]
pub enum PayloadError {
    /// Larger than [`MAX_PAYLOAD`].
    #[error("a payload of {0} bytes is more than the {MAX_PAYLOAD} allowed")]
    TooLarge(usize),
    /// Not JSON of the expected shape. Unknown fields in `critical` are an error, as the specification
    /// demands.
    #[error("the payload is no simple-signing JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Signed, but as something else.
    #[error("the payload is a {0:?}, not a {SIGNATURE_TYPE:?}")]
    Type(String),
    /// For no repository.
    #[error("the payload names no repository: {0}")]
    Identity(#[from] NameError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    critical: Critical,
    #[serde(default)]
    optional: Option<serde_json::Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Critical {
    identity: IdentityClaim,
    image: ImageClaim,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityClaim {
    #[serde(rename = "docker-reference")]
    docker_reference: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageClaim {
    #[serde(rename = "docker-manifest-digest")]
    docker_manifest_digest: Digest,
}

impl Payload {
    /// Reads a payload.
    ///
    /// # Errors
    /// See [`PayloadError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, PayloadError> {
        if bytes.len() > MAX_PAYLOAD {
            return Err(PayloadError::TooLarge(bytes.len()));
        }
        let Document { critical, .. } = serde_json::from_slice(bytes)?;
        if critical.kind != SIGNATURE_TYPE {
            return Err(PayloadError::Type(critical.kind));
        }
        Ok(Self {
            manifest: critical.image.docker_manifest_digest,
            identity: RepositoryName::from_docker_reference(&critical.identity.docker_reference)?,
        })
    }

    /// The JSON, byte for byte as cosign writes it.
    ///
    /// # Errors
    /// Never; the encoder's signature has an error.
    pub fn to_json(&self) -> Result<Vec<u8>, PayloadError> {
        let document = Document {
            critical: Critical {
                identity: IdentityClaim {
                    docker_reference: self.identity.to_string(),
                },
                image: ImageClaim {
                    docker_manifest_digest: self.manifest,
                },
                kind: SIGNATURE_TYPE.to_owned(),
            },
            optional: None,
        };
        Ok(serde_json::to_vec(&document)?)
    }
}
