//! How a registry is set up.

use std::net::IpAddr;
use std::time::Duration;

use super::access::Access;

/// How a registry is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether it speaks TLS, with HTTP/2, under a certificate that [`super::FaultyRegistry::ca_pem`] vouches for.
    pub tls: bool,
    /// Whether it listens on `::1` instead of `127.0.0.1`.
    pub ipv6: bool,
    /// Another address to listen on, which the network namespace must have.
    pub address: Option<IpAddr>,
    /// Further names and addresses in its certificate.
    pub names: Vec<String>,
    /// The login that it asks of its clients.
    pub access: Access,
    /// Whether it has the referrers API.
    pub referrers_api: bool,
    /// Most entries of one page of referrers.
    pub referrers_page: usize,
    /// Whether blobs come by redirect to a second server, and how long such a URL is good.
    pub redirect_blobs: Option<Duration>,
    /// Whether it answers starts in advance, and says so in each answer.
    pub native: bool,
    /// Longest body of an upload; larger ones are answered with 413.
    pub max_upload: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: false,
            ipv6: false,
            address: None,
            names: Vec::new(),
            access: Access::Open,
            referrers_api: true,
            referrers_page: 100,
            redirect_blobs: None,
            native: false,
            max_upload: u64::MAX,
        }
    }
}
