//! Requests that the registry itself makes to addresses of its configuration: keys of token issuers, and webhooks. They are bounded in
//! time and size, follow no redirect to another host, and speak plain HTTP with this host only.

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Client, Response, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// The longest that one request takes, its answer included.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that a connection takes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The most redirects that are followed, all on the same host.
const MAX_REDIRECTS: usize = 3;

/// Why a request failed, or cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutgoingError {
    /// Not an address that is asked.
    #[error("{0:?} is not an address like https://HOST/PATH; http:// is for this host itself only")]
    Address(String),
    /// The file of certificate authorities.
    #[error("the file of certificate authorities {path} cannot be used: {cause}")]
    Authorities {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// No answer.
    #[error("{url} gives no answer: {cause}")]
    NoAnswer {
        /// The address that was asked.
        url: String,
        /// Why.
        cause: String,
    },
    /// An answer that is none.
    #[error("{url} answers {status}")]
    Status {
        /// The address that was asked.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// More than was wanted.
    #[error("{url} answers with more than {limit} bytes")]
    TooLarge {
        /// The address that was asked.
        url: String,
        /// The limit.
        limit: usize,
    },
}

/// An address that may be asked: by HTTPS, or by HTTP on this host.
///
/// # Errors
/// [`OutgoingError::Address`].
pub fn address(text: &str) -> Result<Url, OutgoingError> {
    let wrong = || OutgoingError::Address(text.chars().take(200).collect());
    let url = Url::parse(text).map_err(|_| wrong())?;
    let host = url.host_str().ok_or_else(wrong)?;
    let local = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    let allowed = url.scheme() == "https" || (url.scheme() == "http" && local);
    let plain = url.username().is_empty() && url.password().is_none();
    if allowed && plain { Ok(url) } else { Err(wrong()) }
}

/// Which redirects are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirects {
    /// None: what was posted would be lost by them.
    None,
    /// Those to the same host.
    SameHost,
}

/// A client that trusts the system's certificate authorities, and those of the file if there is one.
///
/// # Errors
/// [`OutgoingError::Authorities`].
pub fn client(authorities: Option<&Path>, redirects: Redirects) -> Result<Client, OutgoingError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = authorities {
        add_authorities(&mut roots, path)?;
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_root_certificates(roots).with_no_client_auth())
        .map_err(|error| unusable(authorities, &error))?;
    Client::builder()
        .tls_backend_preconfigured(tls)
        .user_agent(concat!("xebec-registry/", env!("CARGO_PKG_VERSION")))
        .redirect(policy(redirects))
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(TIMEOUT)
        .build()
        .map_err(|error| unusable(authorities, &error))
}

fn policy(redirects: Redirects) -> reqwest::redirect::Policy {
    if redirects == Redirects::None {
        return reqwest::redirect::Policy::none();
    }
    reqwest::redirect::Policy::custom(|attempt| {
        let same = attempt
            .previous()
            .first()
            .is_some_and(|first| same_host(first, attempt.url()));
        if same && attempt.previous().len() <= MAX_REDIRECTS {
            attempt.follow()
        } else {
            attempt.stop()
        }
    })
}

fn unusable(path: Option<&Path>, cause: &dyn std::fmt::Display) -> OutgoingError {
    OutgoingError::Authorities {
        path: path.unwrap_or(Path::new("of the system")).to_owned(),
        cause: cause.to_string(),
    }
}

fn add_authorities(roots: &mut rustls::RootCertStore, path: &Path) -> Result<(), OutgoingError> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unusable(Some(path), &error))?;
    let before = roots.len();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unusable(Some(path), &error))?;
        roots
            .add(certificate)
            .map_err(|error| unusable(Some(path), &error))?;
    }
    if roots.len() == before {
        return Err(unusable(Some(path), &"it has no certificate"));
    }
    Ok(())
}

/// Whether two addresses are at the same host, port and scheme.
pub fn same_host(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host_str() == other.host_str()
        && one.port_or_known_default() == other.port_or_known_default()
}

/// Fetches the contents at an address, up to `limit` bytes.
///
/// # Errors
/// See [`OutgoingError`].
pub async fn get(
    client: &Client,
    url: &Url,
    bearer: Option<&str>,
    limit: usize,
) -> Result<Vec<u8>, OutgoingError> {
    let mut request = client.get(url.clone()).header("accept", "application/json");
    if let Some(token) = bearer {
        request = request.bearer_auth(token);
    }
    let response = request.send().await.map_err(|error| no_answer(url, &error))?;
    if !response.status().is_success() {
        return Err(OutgoingError::Status {
            url: url.to_string(),
            status: response.status().as_u16(),
        });
    }
    body(response, url, limit).await
}

async fn body(mut response: Response, url: &Url, limit: usize) -> Result<Vec<u8>, OutgoingError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| no_answer(url, &error))? {
        if bytes.len() + chunk.len() > limit {
            return Err(OutgoingError::TooLarge {
                url: url.to_string(),
                limit,
            });
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The innermost cause: the outer ones only say that a request failed.
fn no_answer(url: &Url, error: &reqwest::Error) -> OutgoingError {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    OutgoingError::NoAnswer {
        url: url.to_string(),
        cause: cause.to_string(),
    }
}
