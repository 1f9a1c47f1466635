//! What all connections share.

use std::sync::Arc;

use super::clients::Clients;
use super::settings::ServerSettings;
use crate::state::Registry;

pub(super) struct Shared {
    pub(super) registry: Arc<Registry>,
    pub(super) settings: ServerSettings,
    /// Requests under way, by client.
    pub(super) requests: Arc<Clients>,
    /// Open connections, by client.
    pub(super) connections: Arc<Clients>,
}
