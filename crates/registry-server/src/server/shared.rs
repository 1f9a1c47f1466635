//! The state that all connections share.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use xebec_policy::rate::Buckets;

use super::clients::Clients;
use super::settings::ServerSettings;
use crate::state::Registry;

pub(super) struct Shared {
    pub(super) registry: Arc<Registry>,
    pub(super) settings: ServerSettings,
    /// Requests under way, by client.
    pub(super) requests: Arc<Clients>,
    /// How fast they come, by client, where that has a limit; and since when it is measured.
    pub(super) rate: Option<Buckets<IpAddr>>,
    pub(super) begun: Instant,
    /// Open connections, by client.
    pub(super) connections: Arc<Clients>,
}
