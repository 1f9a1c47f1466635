//! The blobs of indexes, the artifact that lists them, and its signature, put into the store.

use std::io;

use bytes::Bytes;
use futures_util::Stream;
use xebec_artifact::artifact::{Artifact, EMPTY_CONFIG};
use xebec_artifact::made::MadeIndex;
use xebec_format::digest::Digest;
use xebec_oci::media_type::OCI_MANIFEST;
use xebec_store::{AppendError, NewManifest, RepositoryName, Store, Tag};
use xebec_upstream::manifest::Facts;

use crate::image::Image;
use crate::layer::LayerError;
use crate::settings::Signer;

/// A digest as the store knows it.
#[allow(
    clippy::expect_used,
    reason = "these digests are sha256 digests, which the store knows"
)]
pub(crate) fn here(digest: Digest) -> xebec_store::Digest {
    digest.to_string().parse().expect("a sha256 digest")
}

/// Keeps bytes as a blob of the repository.
pub(crate) async fn keep(store: &Store, repository: &RepositoryName, bytes: Bytes) -> Result<(), LayerError> {
    let digest = Digest::of(&bytes);
    let parts = futures_util::stream::iter([Ok::<_, io::Error>(bytes)]);
    keep_parts(store, repository, digest, parts).await
}

/// Keeps bytes that come in parts as a blob of the repository.
pub(crate) async fn keep_parts(
    store: &Store,
    repository: &RepositoryName,
    digest: Digest,
    parts: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
) -> Result<(), LayerError> {
    let digest = here(digest);
    if store.adopt_blob(repository, &digest).await?.is_some() {
        return Ok(());
    }
    let id = store.begin_upload(repository).await?;
    match store.append(repository, &id, None, parts).await {
        Ok(_) => {}
        Err(AppendError::Store(error)) => return Err(error.into()),
        Err(error) => return Err(LayerError::Now(error.to_string())),
    }
    store.finish_upload(repository, &id, &digest).await?;
    Ok(())
}

/// Keeps an index with its sections.
pub(crate) async fn keep_index(
    store: &Store,
    repository: &RepositoryName,
    made: MadeIndex,
) -> Result<(), LayerError> {
    let has = [
        made.index.windows.is_some(),
        made.index.frame.is_some(),
        made.index.contents.is_some(),
    ];
    let sections = [made.windows, made.frame, made.contents];
    keep(store, repository, made.encoded.into()).await?;
    for (section, _) in sections.into_iter().zip(has).filter(|(_, has)| *has) {
        keep(store, repository, section.into()).await?;
    }
    Ok(())
}

/// Lists the indexes in an artifact that refers to the image. Returns its digest.
pub(crate) async fn publish(
    store: &Store,
    repository: &RepositoryName,
    image: &Image,
    artifact: &Artifact,
) -> Result<Digest, LayerError> {
    keep(store, repository, Bytes::from_static(EMPTY_CONFIG)).await?;
    let manifest = artifact.encode(image.descriptor.clone(), &image.order());
    let content = serde_json::to_vec(&manifest).map_err(|error| LayerError::Never(error.to_string()))?;
    let digest = Digest::of(&content);
    put(store, repository, content, &[]).await?;
    Ok(digest)
}

/// Records the manifest of an artifact.
pub(crate) async fn put(
    store: &Store,
    repository: &RepositoryName,
    content: Vec<u8>,
    tags: &[Tag],
) -> Result<(), LayerError> {
    let facts =
        Facts::read(&content, Some(OCI_MANIFEST)).map_err(|error| LayerError::Never(error.to_string()))?;
    let manifest = NewManifest {
        digest: here(Digest::of(&content)),
        media_type: facts.media_type,
        content: content.into(),
        references: facts.references,
        subject: facts.subject,
        artifact_type: facts.artifact_type,
        annotations: facts.annotations,
        immutable: Vec::new(),
        is_pushed: false,
    };
    store.put_manifest(repository, &manifest, tags).await?;
    Ok(())
}

/// Signs an artifact, beside the signatures that are there.
pub(crate) async fn sign(
    store: &Store,
    repository: &RepositoryName,
    signer: &Signer,
    artifact: Digest,
) -> Result<(), LayerError> {
    let never = |error: &dyn std::fmt::Display| LayerError::Never(format!("sign the artifact: {error}"));
    let name =
        xebec_trust::RepositoryName::new(&signer.name, repository.as_str()).map_err(|error| never(&error))?;
    let tag: Tag = xebec_trust::signature_tag(artifact)
        .parse()
        .map_err(|error: xebec_store::InvalidName| never(&error))?;
    let existing = store.tagged_manifest(repository, &tag).await?;
    let existing = existing.as_ref().map(|manifest| &*manifest.content);
    let signed = xebec_trust::sign(&signer.key, &name, artifact, existing).map_err(|error| never(&error))?;
    keep(store, repository, signed.config.into()).await?;
    keep(store, repository, signed.payload.into()).await?;
    put(store, repository, signed.manifest, &[tag]).await
}
