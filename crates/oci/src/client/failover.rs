//! The failover of one call: which endpoint is asked next, and when to give up.
//!
//! Mirrors are asked in order and passed over when they fail; the registry itself comes last and its fault
//! decides what the call says. After it, the call waits and starts over, within its budget.

use tokio::time::Instant;

use super::Client;
use crate::client::call_options::CallOptions;
use crate::client::outage::{self, Outage};
use crate::error::{ClientError, Fault, Target};
use crate::transport::attempts::Attempts;
use crate::transport::registry::{Endpoint, Servers};

/// A call that progresses in steps no larger than this counts as not progressing.
const LEAST_PROGRESS: u64 = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Failover {
    client: Client,
    target: Target,
    by_digest: bool,
    /// Mirrors that are still to be asked in this round, nearest last.
    mirrors: Vec<Endpoint>,
    current: Endpoint,
    attempts: Attempts,
    /// Bytes received since the last fault.
    gained: u64,
}

impl Client {
    /// The failover of a call that reads; mirrors are asked for what `target` names by digest.
    pub(super) fn failover(&self, target: Target, by_digest: bool) -> Failover {
        let servers = &self.transport.servers;
        let (current, mirrors) = round(servers, &target.registry, by_digest, false, &self.options);
        let attempts = self.transport.attempts(&self.counters, self.options.patience);
        Failover {
            client: self.clone(),
            target,
            by_digest,
            mirrors,
            current,
            attempts,
            gained: 0,
        }
    }

    /// The failover of a call to the registry itself.
    pub(super) fn failover_at_origin(&self, target: Target) -> Failover {
        let current = self.transport.servers.origin(&target.registry);
        let attempts = self.transport.attempts(&self.counters, self.options.patience);
        let (mirrors, by_digest) = (Vec::new(), false);
        Failover {
            client: self.clone(),
            target,
            by_digest,
            mirrors,
            current,
            attempts,
            gained: 0,
        }
    }
}

/// The first endpoint of a round, and the others in reverse. Mirrors that rest are asked in rounds that follow one in
/// which nobody had an answer.
fn round(
    servers: &Servers,
    registry: &str,
    by_digest: bool,
    with_resting: bool,
    options: &CallOptions,
) -> (Endpoint, Vec<Endpoint>) {
    let mut endpoints = servers.readable(registry, by_digest, with_resting);
    endpoints.sort_by_key(|endpoint| options.avoided.contains(&endpoint.server.authority));
    endpoints.reverse();
    let first = endpoints.pop().unwrap_or_else(|| servers.origin(registry));
    (first, endpoints)
}

impl Failover {
    /// The endpoint to ask now.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.current.clone()
    }

    /// The content or action that the call asks for.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Bounds one try by the time that the call has left.
    pub(crate) async fn limit<T>(&self, once: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let deadline: Instant = self.attempts.deadline();
        tokio::time::timeout_at(deadline, once)
            .await
            .unwrap_or(Err(Fault::Timeout("complete answer", self.attempts.time())))
    }

    /// Notes that `bytes` more arrived.
    pub(crate) fn gained(&mut self, bytes: u64) {
        self.gained += bytes;
        self.went_on();
        self.client
            .counters
            .content(&self.current.server.authority, bytes);
    }

    /// Notes that the call got what it asked for: calls that wait for the same registry to come back need not wait
    /// any longer.
    pub(crate) fn succeeded(&self) {
        let gate = &self.current.server.gate;
        gate.succeeded();
        if self.current.mirror_of.is_some() {
            // Rounds end at the registry itself, so that is where calls wait.
            self.client
                .transport
                .servers
                .registry(&self.target.registry)
                .gate
                .succeeded();
        }
    }

    /// After a fault: turns to the next endpoint, or waits and starts over.
    ///
    /// # Errors
    /// The call's error, when it is time to give up.
    pub(crate) async fn failed(&mut self, fault: Fault) -> Result<(), ClientError> {
        if std::mem::take(&mut self.gained) >= LEAST_PROGRESS {
            self.attempts.progressed();
        }
        pass_over(&self.current, &fault);
        if let Some(next) = self.mirrors.pop() {
            self.current = next;
            return Ok(());
        }
        let waited = self
            .attempts
            .after(fault, &self.current.server.gate, &self.target);
        waited.await.map_err(|error| self.explained(error))?;
        if self.current.mirror_of.is_some() || self.by_digest {
            let servers = &self.client.transport.servers;
            let registry = &self.target.registry;
            (self.current, self.mirrors) =
                round(servers, registry, self.by_digest, true, &self.client.options);
        }
        Ok(())
    }
}

impl Failover {
    /// Tells the listener that the call goes on, if it was told that the call waits.
    fn went_on(&mut self) {
        if self.attempts.take_told() {
            outage::tell(|| Outage::Over {
                registry: self.target.registry.clone(),
            });
        }
    }

    /// The error, with what the client knows of its cause.
    fn explained(&self, error: ClientError) -> ClientError {
        let transport = &self.client.transport;
        let repository = self.target.repository.as_deref().unwrap_or_default();
        let sent = || Box::new(transport.auth.sent(&self.current.server, repository));
        match error {
            ClientError::Unauthorized { target, cause, .. } => ClientError::Unauthorized {
                target,
                cause,
                login: sent(),
            },
            ClientError::Denied { target, message, .. } => ClientError::Denied {
                target,
                message,
                login: sent(),
            },
            ClientError::Unreachable {
                target,
                attempts,
                cause,
                ..
            } => ClientError::Unreachable {
                target,
                attempts,
                cause,
                settings: transport.config.settings_file.clone(),
            },
            error => error,
        }
    }
}

impl Drop for Failover {
    fn drop(&mut self) {
        self.went_on();
    }
}

/// Notes a mirror's fault: one that cannot be reached is left alone for a while.
pub(super) fn pass_over(endpoint: &Endpoint, fault: &Fault) {
    if endpoint.mirror_of.is_none() {
        return;
    }
    tracing::debug!(mirror = endpoint.server.authority, %fault, "mirror passed over");
    let unusable = matches!(
        fault,
        Fault::Connect(_)
            | Fault::NobodyThere(_)
            | Fault::UnknownHost(_)
            | Fault::Tls(_)
            | Fault::Broken(_)
            | Fault::Timeout(..)
            | Fault::Stalled { .. }
    );
    if unusable
        || matches!(
            fault,
            Fault::Status {
                code: 429 | 500..,
                ..
            }
        )
    {
        endpoint.server.rest();
    }
}
