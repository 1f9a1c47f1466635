//! The roots of trust that count at one lookup, and the evidence that they come from.
//!
//! [`Roots`] can only be filled from evidence: a signature that [`verify`](super::verify) accepted, a binding
//! whose document lies on the way from the user's name to the manifest, a listing by the very repository, or
//! this host's own proof.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;

use super::key::KeyId;
use super::scope::RepositoryName;

/// That a trusted key signed the artifact which holds an index; made by [`verify`](super::verify) alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signing {
    pub(super) key: KeyId,
    pub(super) identity: String,
    pub(super) artifact: Digest,
}

impl Signing {
    /// Which key, independent of the name that `trust.toml` gives it.
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// The repository that the signature was made for, normalized (`docker-reference` of the payload).
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The artifact manifest that was signed.
    pub fn artifact(&self) -> Digest {
        self.artifact
    }
}

/// That a document which the user's name covers also covers an index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Binding {
    /// An image index names the image manifest and the index artifact (`xebec index --bind`).
    ImageIndex {
        /// The image index.
        image_index: Digest,
        /// The image manifest in it.
        manifest: Digest,
        /// The index artifact that it binds to the manifest.
        artifact: Digest,
    },
    /// The layer carries its own table of contents (eStargz, zstd:chunked), and its digest is annotated in
    /// the image manifest.
    TableOfContents {
        /// The image manifest with the annotation.
        manifest: Digest,
    },
}

impl Binding {
    /// Whether the binding counts for an image that was reached over the documents in `path`.
    fn counts_on(&self, path: &[Digest]) -> bool {
        match self {
            Self::ImageIndex {
                image_index,
                manifest,
                ..
            } => path.contains(image_index) && path.contains(manifest),
            Self::TableOfContents { manifest } => path.contains(manifest),
        }
    }
}

/// The fact that a repository listed an artifact as a referrer of one of its images. Worth as much as that repository, so it counts
/// for no other. The image does not matter: a user who may attach an artifact to one image of it may attach to all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listing {
    /// The repository that was asked, normalized.
    repository: String,
}

impl Listing {
    /// That `repository` listed the artifact.
    pub fn new(repository: &RepositoryName) -> Self {
        Self {
            repository: repository.to_string(),
        }
    }

    fn counts_for(&self, repository: &RepositoryName) -> bool {
        self.repository == repository.as_str()
    }
}

/// The evidence for one index of one layer, for one image reached by one name.
///
/// Made anew for each lookup by [`Record::roots`](super::Record::roots); never stored.
///
/// Where a `path` is asked for, it holds the digests of all documents from the user's name to the image
/// manifest, both included: an image index if there is one, then the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Roots {
    registry: bool,
    proven: bool,
    signed: BTreeSet<Signing>,
    bound: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    disproved: Option<String>,
}

impl Roots {
    /// Nothing vouches.
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a listing, if it counts for images of `repository`.
    #[must_use]
    pub fn listed(mut self, listing: &Listing, repository: &RepositoryName) -> Self {
        self.registry |= listing.counts_for(repository);
        self
    }

    /// Adds that this host read the whole layer and the index agreed. An index that this host has itself made
    /// from the whole, digest-checked layer is proven by that.
    #[must_use]
    pub fn proven(mut self) -> Self {
        self.proven = true;
        self
    }

    /// Adds a verified signature. Whether its key counts for the image at hand is for the policy to say.
    #[must_use]
    pub fn signed(mut self, signing: Signing) -> Self {
        self.signed.insert(signing);
        self
    }

    /// Adds a binding, if it counts for an image that was reached over `path`.
    #[must_use]
    pub fn bound(mut self, binding: &Binding, path: &[Digest]) -> Self {
        self.bound |= binding.counts_on(path);
        self
    }

    /// Adds that this host found the index to be wrong, and why. Outweighs every root.
    #[must_use]
    pub fn disproved(mut self, why: impl Into<String>) -> Self {
        self.disproved = Some(why.into());
        self
    }

    /// Whether the registry listed the index.
    pub fn is_in_registry(&self) -> bool {
        self.registry
    }

    /// Whether this host has proven the index.
    pub fn is_proven(&self) -> bool {
        self.proven
    }

    /// Whether the name itself covers the index.
    pub fn is_bound(&self) -> bool {
        self.bound
    }

    /// The signatures, of keys that may no longer be trusted or be valid for other repositories.
    pub fn signings(&self) -> impl Iterator<Item = &Signing> {
        self.signed.iter()
    }

    /// Why this host holds the index to be wrong, if it does.
    pub fn why_disproved(&self) -> Option<&str> {
        self.disproved.as_deref()
    }
}
