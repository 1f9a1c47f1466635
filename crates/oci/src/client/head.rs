//! Facts that a registry gives about content without sending it: the manifest that a tag names, the size of a blob. Registries that
//! limit pulls do not count these requests.

use reqwest::Method;
use reqwest::header::{ACCEPT, CONTENT_LENGTH};
use xebec_format::digest::Digest;

use super::Client;
use super::manifest::DIGEST_HEADER;
use crate::auth::Scope;
use crate::error::{ClientError, Fault, Object};
use crate::reference::Repository;
use crate::transport::http::Answer;
use crate::transport::registry::Endpoint;
use crate::transport::{Ask, Place};

impl Client {
    /// The digest of the manifest `name` (a tag or a digest) of `repository`; `None` if the registry does not say it.
    ///
    /// # Errors
    /// [`ClientError`] names what was asked for and why it could not be fetched.
    pub async fn manifest_digest(
        &self,
        repository: &Repository,
        name: &str,
        accept: &[&str],
    ) -> Result<Option<Digest>, ClientError> {
        let path = Place::Path(format!("{}/manifests/{name}", repository.name()));
        let ask = Ask::new(Method::HEAD, path, Scope::pull(repository.name()));
        let ask = ask.header(ACCEPT, &accept.join(", "));
        let said = |answer: &Answer| {
            Ok(answer
                .header(DIGEST_HEADER)
                .and_then(|text| text.trim().parse().ok()))
        };
        let by_digest = name.contains(':');
        self.head(
            repository,
            Object::Manifest(name.to_owned()),
            &ask,
            by_digest,
            said,
        )
        .await
    }

    /// How many bytes a blob of `repository` has.
    ///
    /// # Errors
    /// [`ClientError`] names what was asked for and why it could not be fetched.
    pub async fn blob_size(&self, repository: &Repository, blob: &Digest) -> Result<u64, ClientError> {
        let path = Place::Path(format!("{}/blobs/{blob}", repository.name()));
        let ask = Ask::new(Method::HEAD, path, Scope::pull(repository.name()));
        let said = |answer: &Answer| {
            // There is no body, so its length is what the header says.
            let length = answer.header(CONTENT_LENGTH.as_str());
            let length = length.and_then(|text| text.parse().ok());
            length
                .ok_or_else(|| Fault::Protocol("the registry does not say how large the blob is".to_owned()))
        };
        self.head(repository, Object::Blob(*blob), &ask, true, said).await
    }

    async fn head<T>(
        &self,
        repository: &Repository,
        object: Object,
        ask: &Ask,
        by_digest: bool,
        said: impl Fn(&Answer) -> Result<T, Fault>,
    ) -> Result<T, ClientError> {
        let mut failover = self.failover(self.target(repository, object), by_digest);
        loop {
            let endpoint = failover.endpoint();
            match failover.limit(self.head_once(&endpoint, ask, &said)).await {
                Ok(said) => {
                    failover.succeeded();
                    return Ok(said);
                }
                Err(fault) => failover.failed(fault).await?,
            }
        }
    }

    async fn head_once<T>(
        &self,
        endpoint: &Endpoint,
        ask: &Ask,
        said: &impl Fn(&Answer) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let answer = self.transport.send(endpoint, ask, &self.counters).await?;
        match answer.status().as_u16() {
            200 => said(&answer),
            _ => Err(answer.into_fault().await),
        }
    }
}
