//! The other registry: what is asked of it, and how long it is waited for.

use std::time::Duration;

use xebec_oci::media_type::ACCEPT_IMAGE;
use xebec_oci::{Client, ClientError, Descriptor, FetchedManifest, Repository};
use xebec_store::StoreError;

use crate::put::Refusal;

/// How often a registry that limits requests is waited for, for one answer.
pub(super) const MOST_WAITS: u32 = 8;
/// For how long, if it does not say it.
const USUAL_WAIT: Duration = Duration::from_secs(60);
/// For how long at most.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Why a mirror ended.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The source does not say which repositories it has.
    #[error(
        "{registry} does not list its repositories ({reason}); name those that are to be copied: --repository team/app, or repositories = \
         [\"team/app\"] in the configuration"
    )]
    NoCatalog {
        /// The source.
        registry: String,
        /// Its answer.
        reason: String,
    },
    /// Nothing there is covered.
    #[error("{registry} lists no repository that is to be copied; compare the patterns with what it has")]
    Nothing {
        /// The source.
        registry: String,
    },
    /// The source is away, or limits requests for longer than it can be waited for.
    #[error("the mirror ends here, and the next one goes on: {0}")]
    Source(Box<ClientError>),
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why something was not copied.
pub(super) enum Trouble {
    /// For a reason of this thing's own: the rest goes on.
    Skip(String),
    /// The rest has no better prospects.
    End(MirrorError),
}

impl Trouble {
    /// For how long the registry is to be left alone, if that is the trouble.
    pub(super) fn limit(&self) -> Option<Duration> {
        match self {
            Self::End(MirrorError::Source(error)) => limit(error),
            _ => None,
        }
    }
}

fn limit(error: &ClientError) -> Option<Duration> {
    match error {
        ClientError::RateLimited { cause, .. } => {
            Some(cause.retry_after().unwrap_or(USUAL_WAIT).min(LONGEST_WAIT))
        }
        _ => None,
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Skip(reason) => Self::Skip(reason),
            Refusal::Store(error) => Self::End(error.into()),
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::RateLimited { .. }
            | ClientError::Unreachable { .. }
            | ClientError::UnknownHost { .. } => Self::End(MirrorError::Source(Box::new(error))),
            other => Self::Skip(other.to_string()),
        }
    }
}

/// Asks, and when the registry limits requests, waits for as long as it says and asks again.
pub(super) async fn patient<T, F>(mut ask: impl FnMut() -> F) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let mut waits = 0;
    loop {
        let answer = ask().await;
        let wait = answer
            .as_ref()
            .err()
            .and_then(limit)
            .filter(|_| waits < MOST_WAITS);
        let Some(wait) = wait else {
            return answer;
        };
        waits += 1;
        tracing::warn!("the source limits requests; waiting for {} s", wait.as_secs());
        tokio::time::sleep(wait).await;
    }
}

/// The registry that is copied. Each request has that patience.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) client: Client,
}

impl Source {
    pub(super) async fn tags(&self, there: &Repository) -> Result<Vec<String>, ClientError> {
        patient(|| self.client.tags(there)).await
    }

    pub(super) async fn catalog(&self, registry: &str) -> Result<Vec<String>, ClientError> {
        patient(|| self.client.catalog(registry)).await
    }

    /// Which manifest a tag names, if the registry says it without sending it.
    pub(super) async fn names(
        &self,
        there: &Repository,
        tag: &str,
    ) -> Result<Option<xebec_format::digest::Digest>, ClientError> {
        patient(|| self.client.manifest_digest(there, tag, ACCEPT_IMAGE)).await
    }

    pub(super) async fn manifest(
        &self,
        there: &Repository,
        name: &str,
    ) -> Result<FetchedManifest, ClientError> {
        patient(|| self.client.manifest(there, name, ACCEPT_IMAGE)).await
    }

    pub(super) async fn referrers(
        &self,
        there: &Repository,
        digest: &xebec_format::digest::Digest,
    ) -> Result<Vec<Descriptor>, ClientError> {
        patient(|| self.client.referrers(there, digest, None)).await
    }
}
