//! Signatures of index artifacts, fetched from and pushed to where cosign keeps them.

use bytes::Bytes;
use tracing::{debug, warn};
use xebec_artifact::artifact::BlobRef;
use xebec_format::digest::Digest;
use xebec_oci::media_type::{ACCEPT_IMAGE, OCI_MANIFEST};
use xebec_oci::{BlobSource, Client, ClientError, Repository};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_trust::{MAX_PAYLOAD, Policy, PrivateKey, RepositoryName, SignatureManifest, Signing};

use crate::registry_failure::registry_failure;

/// The signature of `artifact` by a key that counts for the repository, if there is one.
pub async fn find(
    client: &Client,
    repository: &Repository,
    name: &RepositoryName,
    policy: &Policy,
    artifact: Digest,
) -> Option<Signing> {
    let tag = xebec_trust::signature_tag(artifact);
    let manifest = match client.manifest(repository, &tag, ACCEPT_IMAGE).await {
        Ok(manifest) => manifest,
        Err(error) => {
            debug!(%artifact, %error, "no signatures");
            return None;
        }
    };
    let manifest = SignatureManifest::parse(&manifest.bytes)
        .inspect_err(|error| warn!("signatures of {artifact}: {error}"))
        .ok()?;
    let mut payloads: Vec<Bytes> = Vec::new();
    for entry in manifest.signatures() {
        let blob = BlobRef {
            digest: entry.payload,
            size: entry.payload_size,
        };
        let descriptor = blob.descriptor(xebec_trust::SIGNATURE_LAYER_MEDIA_TYPE);
        payloads.extend(
            client
                .blob(repository, &descriptor, MAX_PAYLOAD as u64)
                .await
                .ok(),
        );
    }
    xebec_trust::verify(policy, name, artifact, &manifest, &payloads)
        .inspect_err(|error| warn!("{error}"))
        .ok()
}

/// Signs `artifact` and pushes the signature beside those that are there.
///
/// # Errors
/// When the key or what is at the signatures' tag cannot be used, or the registry refuses.
pub async fn push(
    client: &Client,
    repository: &Repository,
    key: &PrivateKey,
    artifact: Digest,
) -> Result<(), Failure> {
    let unusable = |error: &dyn std::fmt::Display| Failure::new(FailureKind::Trust, error);
    let tag = xebec_trust::signature_tag(artifact);
    let name =
        RepositoryName::new(repository.registry(), repository.name()).map_err(|error| unusable(&error))?;
    let existing = match client.manifest(repository, &tag, ACCEPT_IMAGE).await {
        Ok(manifest) => Some(manifest.bytes),
        Err(ClientError::NotFound { .. }) => None,
        Err(error) => return Err(registry_failure(&error)),
    };
    let signed =
        xebec_trust::sign(key, &name, artifact, existing.as_deref()).map_err(|error| unusable(&error))?;
    for blob in [signed.config, signed.payload] {
        client
            .push_blob(repository, BlobSource::Bytes(blob.into()), None)
            .await
            .map_err(|error| registry_failure(&error))?;
    }
    client
        .push_manifest(repository, &tag, OCI_MANIFEST, signed.manifest.into())
        .await
        .map(|_| ())
        .map_err(|error| registry_failure(&error))
}
