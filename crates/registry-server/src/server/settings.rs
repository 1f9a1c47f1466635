//! The settings of a server: where it listens, and how much it lets clients do.

use std::time::Duration;

use xebec_policy::rate::Rate;

use super::clients::Network;
use super::tls::TlsSettings;

/// Where a server listens, and its limits.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Addresses: `127.0.0.1:5000`, or `:5000` for all of this host.
    pub listen: Vec<String>,
    /// How connections are made safe; none for plain HTTP.
    pub tls: Option<TlsSettings>,
    /// How much clients may have under way.
    pub limits: Limits,
    /// Proxies in front of this server, whose word on where a request comes from is believed.
    pub proxies: Vec<Network>,
    /// How long requests that are under way may take when the server ends.
    pub drain: Duration,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            listen: vec!["127.0.0.1:5000".to_owned()],
            tls: None,
            limits: Limits::default(),
            proxies: Vec::new(),
            drain: Duration::from_secs(600),
        }
    }
}

/// How much clients may have under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of all clients.
    pub connections: usize,
    /// Connections of one client.
    pub connections_per_client: usize,
    /// Requests of one client.
    pub requests_per_client: usize,
    /// How fast one client's requests may come; none for no limit.
    pub rate: Option<Rate>,
    /// Bytes of a request's head.
    pub header_size: usize,
    /// Time for a request's head, and for the handshake of TLS.
    pub header_time: Duration,
    /// A body that stands still for so long is given up. How long it takes in all does not matter.
    pub idle: Duration,
    /// A connection without a request is kept for so long.
    pub keep_alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 8192,
            connections_per_client: 1024,
            requests_per_client: 512,
            rate: None,
            header_size: 64 << 10,
            header_time: Duration::from_secs(20),
            idle: Duration::from_secs(60),
            keep_alive: Duration::from_secs(90),
        }
    }
}
