//! The state that the servers of a registry share.

use std::net::SocketAddr;

use parking_lot::Mutex;

use super::access::Tokens;
use super::fault::Script;
use super::log::{Entry, Place};
use super::options::Options;
use super::start::StartScript;
use super::store::Store;

/// The state that the servers share.
#[derive(Debug)]
pub(crate) struct State {
    pub(super) options: Options,
    pub(super) registry: SocketAddr,
    pub(super) cdn: SocketAddr,
    pub(super) inner: Mutex<Inner>,
}

impl State {
    /// Scheme and authority of a server.
    pub(super) fn base(&self, place: Place) -> String {
        let address = match place {
            Place::Registry => self.registry,
            Place::Cdn => self.cdn,
        };
        format!("{}://{address}", if self.options.tls { "https" } else { "http" })
    }
}

/// The state that requests change.
#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) script: Script,
    pub(super) tokens: Tokens,
    pub(super) log: Vec<Entry>,
    /// URLs of the second server are good if they carry this number.
    pub(super) signature: u64,
    pub(super) connections: u64,
    pub(super) down: bool,
    pub(super) start: StartScript,
    /// Whether the header is left out that [`Options::native`] adds.
    pub(super) hides_native: bool,
}
