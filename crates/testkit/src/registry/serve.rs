//! Connections: listening, TLS, HTTP/1.1 and HTTP/2.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::answer;
use super::body::{Line, Socket};
use super::connection::Connection;
use super::log::Place;
use super::options::Options;
use super::state::State;

/// A TLS setup for loopback and what else is asked for, and the PEM of the authority that signed its certificate.
pub(super) fn tls(options: &Options) -> anyhow::Result<(Arc<ServerConfig>, String)> {
    let authority_key = rcgen::KeyPair::generate()?;
    let mut authority = rcgen::CertificateParams::new(Vec::new())?;
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority
        .distinguished_name
        .push(rcgen::DnType::CommonName, "faulty registry test authority");
    let authority_certificate = authority.self_signed(&authority_key)?;
    let issuer = rcgen::Issuer::new(authority, authority_key);

    let mut names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec();
    names.extend(options.address.map(|address| address.to_string()));
    names.extend(options.names.iter().cloned());
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new(names)?.signed_by(&key, &issuer)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .context("using the test certificate")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok((Arc::new(config), authority_certificate.pem()))
}

/// Answers connections until dropped.
pub(super) async fn listen(
    state: Arc<State>,
    listener: std::net::TcpListener,
    tls: Option<Arc<ServerConfig>>,
    place: Place,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let connection = {
            let mut inner = state.inner.lock();
            if inner.down {
                let _ = stream.set_zero_linger();
                continue;
            }
            inner.connections += 1;
            inner.connections - 1
        };
        let line = Arc::new(Line::default());
        let socket = Socket::new(stream, line.clone());
        let connection = Connection {
            state: state.clone(),
            place,
            number: connection,
            line,
        };
        let tls = tls.clone().map(TlsAcceptor::from);
        tokio::spawn(async move {
            match tls {
                None => serve(connection, socket).await,
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(socket).await {
                        serve(connection, stream).await;
                    }
                }
            }
        });
    }
}

/// Answers the requests of a connection.
async fn serve(connection: Connection, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let line = connection.line.clone();
    let service = service_fn(move |request| {
        let this = connection.clone();
        async move {
            match answer::answer(&this, request).await {
                Some(response) => Ok::<_, Broken>(response),
                None => {
                    this.line.reset.store(true, Ordering::Relaxed);
                    Err(Broken)
                }
            }
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    // Clients break connections too; that is no failure of the server.
    let _ = builder.serve_connection(TokioIo::new(io), service).await;
    drop(line);
}

/// The connection is to end without an answer.
#[derive(Debug)]
pub(super) struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no answer on purpose")
    }
}

impl std::error::Error for Broken {}

impl From<Infallible> for Broken {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
