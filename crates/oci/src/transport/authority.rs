//! `host[:port]`, by which a registry is known.

use reqwest::Url;

/// `host[:port]` of a URL, the port left out where it is the scheme's own.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}
