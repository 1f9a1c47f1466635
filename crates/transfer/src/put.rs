//! Manifests and tags into the store, by the rules that hold for pushes.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use xebec_store::{
    Digest, NewManifest, PutManifest, Reference, ReferenceKind, RepositoryName, Result, Store, StoreError,
    Tag,
};
use xebec_upstream::Immutable;
use xebec_upstream::manifest::Facts;

/// The rules for pushes to the registry.
#[derive(Clone)]
pub struct Rules {
    /// Whether a manifest may name what its repository lacks.
    pub sparse: bool,
    /// Tags that may not be moved.
    pub immutable: Immutable,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            sparse: false,
            immutable: Arc::new(|_, _| false),
        }
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Rules")
            .field("sparse", &self.sparse)
            .finish_non_exhaustive()
    }
}

/// Why the store did not take something.
pub(crate) enum Refusal {
    /// For a reason of this thing's own: the rest goes on.
    Skip(String),
    /// The store itself fails.
    Store(StoreError),
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::DigestMismatch { .. }
            | StoreError::MissingReferences { .. }
            | StoreError::ImmutableTag { .. }
            | StoreError::ManifestTooLarge { .. }
            | StoreError::Lost(_)
            | StoreError::Unsupported(_) => Self::Skip(error.to_string()),
            other => Self::Store(other),
        }
    }
}

/// A tag, and when it was set, in milliseconds since 1970; now, if that is not known.
pub(crate) type Dated = (Tag, Option<u64>);

/// A manifest to put, and the tags that are to name it.
pub(crate) struct DatedManifest<'a> {
    pub(crate) digest: &'a Digest,
    pub(crate) content: Bytes,
    /// The facts that the content gives.
    pub(crate) facts: Facts,
    pub(crate) tags: &'a [Dated],
}

/// Puts a manifest, and has tags name it.
pub(crate) async fn manifest(
    store: &Store,
    rules: &Rules,
    repository: &RepositoryName,
    manifest: DatedManifest<'_>,
) -> Result<PutManifest, Refusal> {
    let DatedManifest {
        digest,
        content,
        facts,
        tags,
    } = manifest;
    let mut references = facts.references;
    if rules.sparse {
        for reference in &mut references {
            reference.required = false;
        }
    }
    let new = NewManifest {
        digest: digest.clone(),
        media_type: facts.media_type,
        content,
        references,
        subject: facts.subject,
        artifact_type: facts.artifact_type,
        annotations: facts.annotations,
        is_pushed: true,
        immutable: tags
            .iter()
            .map(|(tag, _)| tag)
            .filter(|tag| (rules.immutable)(repository, tag))
            .cloned()
            .collect(),
    };
    Ok(store.put_manifest_dated(repository, &new, tags).await?)
}

/// The blobs among what a manifest names.
pub(crate) fn blobs(references: &[Reference]) -> impl Iterator<Item = &Reference> {
    references
        .iter()
        .filter(|reference| reference.kind != ReferenceKind::Manifest)
}

/// The manifests among what a manifest names.
pub(crate) fn children(references: &[Reference]) -> impl Iterator<Item = &Digest> {
    let of_kind = |reference: &&Reference| reference.kind == ReferenceKind::Manifest;
    references
        .iter()
        .filter(of_kind)
        .map(|reference| &reference.digest)
}
