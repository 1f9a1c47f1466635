//! Manifests, by tag or digest.

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use xebec_format::digest::Digest;

use super::Client;
use super::in_advance::answers::{Content, Wanted};
use crate::auth::Scope;
use crate::error::{ClientError, Fault, Object};
use crate::manifest::{MAX_MANIFEST_SIZE, Manifest, ManifestError};
use crate::media_type::without_parameters;
use crate::reference::Repository;
use crate::transport::Ask;
use crate::transport::registry::Endpoint;

/// The header in which registries say a manifest's digest.
pub(super) const DIGEST_HEADER: &str = "docker-content-digest";

/// A manifest as the registry sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedManifest {
    /// Digest of `bytes`, computed here.
    pub digest: Digest,
    /// The media type that the registry gave, without parameters.
    pub media_type: Option<String>,
    /// The bytes that the digest covers.
    pub bytes: Bytes,
}

impl FetchedManifest {
    /// Reads the bytes.
    ///
    /// # Errors
    /// If they are not a manifest or index.
    pub fn parse(&self) -> Result<Manifest, ManifestError> {
        Manifest::parse(&self.bytes, self.media_type.as_deref())
    }
}

impl Client {
    /// The manifest `name` (a tag or a digest) of `repository`, in one of the types of `accept`. Asked for by
    /// digest, it is what the digest says.
    ///
    /// # Errors
    /// [`ClientError`] names what was asked for and why it could not be fetched.
    pub async fn manifest(
        &self,
        repository: &Repository,
        name: &str,
        accept: &[&str],
    ) -> Result<FetchedManifest, ClientError> {
        let wanted: Option<Digest> = if name.contains(':') {
            let parsed = name
                .parse()
                .map_err(|error| ClientError::Config(format!("manifest name: {error}")))?;
            Some(parsed)
        } else {
            None
        };
        let checked = |came: Content| {
            came.within(MAX_MANIFEST_SIZE)?;
            let manifest = compared(came.bytes, came.media_type, wanted)?;
            // What a tag leads to can be compared with nothing; it must at least be something that can be used.
            match manifest.parse() {
                Err(error) if wanted.is_none() => Err(Fault::Protocol(error.to_string())),
                _ => Ok(manifest),
            }
        };
        let in_advance = self.in_advance(repository, Wanted::Manifest(name), checked);
        if let Some(manifest) = in_advance.await {
            return Ok(manifest);
        }
        let target = self.target(repository, Object::Manifest(name.to_owned()));
        let path = format!("{}/manifests/{name}", repository.name());
        let mut ask = Ask::get(path, Scope::pull(repository.name()));
        if !accept.is_empty() {
            ask = ask.header(ACCEPT, &accept.join(", "));
        }
        let mut failover = self.failover(target, wanted.is_some());
        loop {
            let endpoint = failover.endpoint();
            match failover.limit(self.manifest_once(&endpoint, &ask, wanted)).await {
                Ok(manifest) => {
                    failover.succeeded();
                    return Ok(manifest);
                }
                Err(fault) => failover.failed(fault).await?,
            }
        }
    }

    async fn manifest_once(
        &self,
        endpoint: &Endpoint,
        ask: &Ask,
        wanted: Option<Digest>,
    ) -> Result<FetchedManifest, Fault> {
        let answer = self.transport.send(endpoint, ask, &self.counters).await?;
        if answer.status() != 200 {
            return Err(answer.into_fault().await);
        }
        let media_type = answer
            .header(CONTENT_TYPE.as_str())
            .map(|text| without_parameters(text).to_owned());
        // A digest of another algorithm says nothing that could be compared.
        let announced = answer
            .header(DIGEST_HEADER)
            .and_then(|text| text.trim().parse::<Digest>().ok());
        let bytes = answer.body(MAX_MANIFEST_SIZE).await?;
        compared(bytes, media_type, wanted.or(announced))
    }
}

/// A manifest whose digest is what was wanted, if one was.
fn compared(
    bytes: Bytes,
    media_type: Option<String>,
    expected: Option<Digest>,
) -> Result<FetchedManifest, Fault> {
    let got = Digest::of(&bytes);
    match expected {
        Some(expected) if expected != got => Err(Fault::WrongDigest { expected, got }),
        _ => Ok(FetchedManifest {
            digest: got,
            media_type,
            bytes,
        }),
    }
}
