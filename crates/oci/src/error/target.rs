//! Names what a call asked a registry for.

use std::fmt;
use std::ops::Range;

use xebec_format::digest::Digest;

/// The registry of a call, and the content or action that the call asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `host[:port]`.
    pub registry: String,
    /// Path in the registry; `None` when the registry as a whole was asked.
    pub repository: Option<String>,
    /// The content or action that the call asked for.
    pub object: Object,
}

/// The things that a registry can be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// Whether it is a registry at all.
    Api,
    /// A manifest by tag or digest.
    Manifest(String),
    /// A whole blob.
    Blob(Digest),
    /// A byte range of a blob.
    Range(Digest, Range<u64>),
    /// The manifests that refer to a manifest.
    Referrers(Digest),
    /// The list of a repository's tags.
    Tags,
    /// The list of the registry's repositories.
    Catalog,
    /// The upload of a blob.
    BlobUpload(Digest),
    /// The upload of a manifest under a tag or digest.
    ManifestUpload(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.registry)?;
        if let Some(repository) = &self.repository {
            write!(f, "/{repository}")?;
        }
        match &self.object {
            Object::Api => write!(f, ": registry API"),
            Object::Manifest(name) => write!(f, ": manifest {name}"),
            Object::Blob(digest) => write!(f, ": blob {digest}"),
            Object::Range(digest, range) => {
                write!(f, ": bytes {}..{} of blob {digest}", range.start, range.end)
            }
            Object::Referrers(digest) => write!(f, ": referrers of {digest}"),
            Object::Tags => write!(f, ": list of tags"),
            Object::Catalog => write!(f, ": list of repositories"),
            Object::BlobUpload(digest) => write!(f, ": upload of blob {digest}"),
            Object::ManifestUpload(name) => write!(f, ": upload of manifest {name}"),
        }
    }
}
