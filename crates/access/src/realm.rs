//! Where clients are told to log in at this registry itself, by what the configuration and their request say.

use hyper::header::HOST;
use hyper::http::request::Parts;

use crate::challenge::Challenge;
use crate::settings::{AuthSettings, ChallengeSettings};

/// The longest host that is repeated in an answer, in bytes: a name of 253, and a port.
const MAX_HOST: usize = 260;

/// How clients log in at this registry. `gives_tokens` is whether it has a token endpoint, `tls` whether it speaks TLS itself.
pub(super) fn own(settings: &AuthSettings, gives_tokens: bool, tls: bool, parts: &Parts) -> Challenge {
    let host = host_of(parts);
    let basic = settings.challenge == ChallengeSettings::Basic || !gives_tokens;
    if basic || (host.is_empty() && settings.public_url.is_none()) {
        return by_password(settings);
    }
    let base = match &settings.public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => format!("{}://{host}", scheme_of(tls, parts)),
    };
    Challenge::Bearer {
        realm: format!("{base}/token"),
        service: settings.service.clone().unwrap_or(host),
    }
}

/// The challenge to log in with a name and a password.
pub(super) fn by_password(settings: &AuthSettings) -> Challenge {
    let service = settings.service.clone();
    Challenge::Basic {
        realm: service.unwrap_or_else(|| "xebec-registry".to_owned()),
    }
}

/// A proxy that ends TLS says so by a header. A client that sends the header without a proxy is sent to HTTPS, and harms only itself.
fn scheme_of(tls: bool, parts: &Parts) -> &'static str {
    let proto = parts.headers.get("x-forwarded-proto");
    let forwarded = proto.is_some_and(|proto| proto.as_bytes() == b"https");
    if tls || forwarded { "https" } else { "http" }
}

/// The host that the client asked, if it is one that may stand in a header.
fn host_of(parts: &Parts) -> String {
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let header = || parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = authority.or_else(header).unwrap_or_default();
    let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']' | '_');
    if host.len() <= MAX_HOST && host.chars().all(sound) {
        host.to_owned()
    } else {
        String::new()
    }
}
