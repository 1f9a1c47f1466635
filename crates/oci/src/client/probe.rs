//! The abilities of a registry, as `xebec doctor` finds them out.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Client;
use crate::auth::{Challenge, Scope};
use crate::error::{ClientError, Fault};
use crate::reference::Reference;
use crate::transport::Ask;
use crate::transport::registry::Endpoint;
use xebec_format::platform::Platform;

/// The kind of proof that a registry wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuthKind {
    /// None.
    Open,
    /// A name and a password.
    Basic,
    /// A token, from the server of this URL.
    Bearer(String),
}

/// The findings about a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeReport {
    /// `host[:port]`.
    pub registry: String,
    /// `https` or `http`.
    pub scheme: String,
    /// HTTP version, for example `HTTP/2.0`.
    pub http_version: String,
    /// Time to the head of the first answer, connecting included.
    pub first_answer: Duration,
    /// Time to the head of the second, on the same connection: the round-trip time.
    pub next_answer: Duration,
    /// The kind of proof that it wants.
    pub auth: AuthKind,
    /// Whether docker's config has credentials for it.
    pub has_credentials: bool,
    /// Whether it is content with what it got.
    pub accepted: bool,
    /// Whether a range request is answered with that range; only if an image was named.
    pub ranges: Option<bool>,
    /// Whether the referrers API is there; only if an image was named.
    pub referrers_api: Option<bool>,
}

impl Client {
    /// Finds out what `registry` can do; with `image`, also whether its blobs can be read by range.
    ///
    /// # Errors
    /// If it cannot be reached, or the image cannot be fetched.
    pub async fn probe(&self, registry: &str, image: Option<&Reference>) -> Result<ProbeReport, ClientError> {
        let endpoint = self.transport.servers.origin(registry);
        let mut failover = self.failover_at_origin(Self::registry_target(registry));
        let mut report = loop {
            match failover.limit(self.probe_once(registry, &endpoint)).await {
                Ok(report) => break report,
                Err(fault) => failover.failed(fault).await?,
            }
        };
        if let Some(image) = image {
            let resolved = self.resolve(image, &Platform::host()).await?;
            let largest = resolved.manifest.layers.iter().max_by_key(|layer| layer.size);
            if let Some(layer) = largest.filter(|layer| layer.size > 2) {
                self.blob_range_or_whole(&resolved.repository, &layer.digest, layer.size, 1..2)
                    .await?;
                report.ranges = self.ranges_honoured(registry);
            }
            let asked = self.referrers_by_api(&resolved.repository, &resolved.manifest_digest, None);
            let (_, listed) = asked.await?;
            report.referrers_api = Some(listed.is_ok());
            report.accepted = true;
        }
        Ok(report)
    }

    /// Asks `registry` whether it takes the login that this client has ([`crate::ClientConfig::login`]). Gives whether it asked for
    /// one at all.
    ///
    /// # Errors
    /// [`ClientError::Unauthorized`] if it refuses the login; if it cannot be reached or is no registry.
    pub async fn check_login(&self, registry: &str) -> Result<bool, ClientError> {
        let endpoint = self.transport.servers.origin(registry);
        let mut failover = self.failover_at_origin(Self::registry_target(registry));
        loop {
            match failover.limit(self.check_login_once(&endpoint)).await {
                Ok(asks) => return Ok(asks),
                Err(fault) => failover.failed(fault).await?,
            }
        }
    }

    async fn check_login_once(&self, endpoint: &Endpoint) -> Result<bool, Fault> {
        let ask = Ask::get(String::new(), Scope::pull(""));
        let answer = self.transport.send(endpoint, &ask, &self.counters).await?;
        match answer.status().as_u16() {
            200 => Ok(self.transport.auth.challenge(&endpoint.server).is_some()),
            _ => Err(answer.into_fault().await),
        }
    }

    async fn probe_once(&self, registry: &str, endpoint: &Endpoint) -> Result<ProbeReport, Fault> {
        let ask = Ask::get(String::new(), Scope::pull(""));
        let time = async || {
            let start = Instant::now();
            let answer = self.transport.send(endpoint, &ask, &self.counters).await?;
            Ok::<_, Fault>((answer, start.elapsed()))
        };
        let (first, first_answer) = time().await?;
        first.discard().await;
        let (answer, next_answer) = time().await?;
        let status = answer.status().as_u16();
        if !matches!(status, 200 | 401 | 403) {
            return Err(answer.into_fault().await);
        }
        let auth = match self.transport.auth.challenge(&endpoint.server) {
            None => AuthKind::Open,
            Some(Challenge::Basic) => AuthKind::Basic,
            Some(Challenge::Bearer { realm, .. }) => AuthKind::Bearer(realm),
        };
        let credential = self.transport.store.look_up(&endpoint.server.authority, "").await;
        let credential = match credential {
            Err(error) if error.is_of_a_file() => None,
            found => found.map_err(|error| Fault::Credentials(error.to_string()))?,
        };
        Ok(ProbeReport {
            registry: registry.to_owned(),
            scheme: answer.url().scheme().to_owned(),
            http_version: format!("{:?}", answer.version()),
            first_answer,
            next_answer,
            auth,
            has_credentials: credential.is_some(),
            accepted: status == 200,
            ranges: None,
            referrers_api: None,
        })
    }
}
