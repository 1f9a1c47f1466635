//! TLS to PostgreSQL: whether a connection is encrypted, by which authorities the server is known, and how the driver gets a stream of
//! rustls.
//!
//! Nothing is left to what the server offers. A connection is either encrypted and its server verified, or it is plain, and plain over a
//! network only if the configuration says so.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use postgres::Socket;
use postgres::config::{Host, SslMode};
use postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::end_point::end_point;
use super::transaction::DatabaseError;
use crate::config::{PostgresTls, Protection, TlsWanted};

/// A server that does not answer for so long is away.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The name of PostgreSQL's protocol within TLS; servers from version 17 on look at it.
const PROTOCOL: &[u8] = b"postgresql";

/// How connections to the hosts of an address are protected, by what the address and the configuration say.
pub(super) fn protection(config: &postgres::Config, tls: &PostgresTls) -> Result<Protection, DatabaseError> {
    let refused = |why: &str| Err(DatabaseError::Engine(why.to_owned()));
    let (mode, is_local) = (config.get_ssl_mode(), is_local(config));
    match tls.wanted {
        Some(TlsWanted::Off) if mode == SslMode::Require => refused(
            "its address says sslmode=require, and the configuration tls = \"off\"; leave one of them out",
        ),
        Some(TlsWanted::Off) if tls.ca_file.is_some() => {
            refused("ca_file is for connections that are verified, and tls is \"off\"; leave one of them out")
        }
        Some(TlsWanted::Off) if is_local => Ok(Protection::Local),
        Some(TlsWanted::Off) => Ok(Protection::Plain),
        Some(TlsWanted::Verify) if mode == SslMode::Disable => refused(
            "its address says sslmode=disable, and the configuration tls = \"verify\"; leave one of them out",
        ),
        None if mode == SslMode::Disable && tls.ca_file.is_some() => refused(
            "its address says sslmode=disable, and ca_file is for connections that are verified; leave one of them out",
        ),
        None if mode == SslMode::Disable && !is_local => refused(
            "its address says sslmode=disable, and it is another host: leave sslmode out, or write tls = \"off\" in \
             [storage.postgres] if nobody can listen on the way",
        ),
        None if is_local && mode != SslMode::Require && tls.ca_file.is_none() => Ok(Protection::Local),
        _ => names(config).map(|()| Protection::Verified),
    }
}

/// Whether nobody on a network is on the way: each host is a socket, or this host itself.
fn is_local(config: &postgres::Config) -> bool {
    let is_loopback = |address: &IpAddr| address.to_canonical().is_loopback();
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        return addresses.iter().all(is_loopback);
    }
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => name == "localhost" || name.parse().is_ok_and(|address| is_loopback(&address)),
        Host::Unix(_) => true,
    })
}

/// A server is verified by its name, so each must have one.
fn names(config: &postgres::Config) -> Result<(), DatabaseError> {
    let refused = |why: String| Err(DatabaseError::Engine(why));
    if config.get_hosts().is_empty() {
        return refused(
            "its certificate is for a name, and its address has none; name it by host, beside hostaddr"
                .to_owned(),
        );
    }
    for host in config.get_hosts() {
        match host {
            Host::Unix(path) => {
                return refused(format!(
                    "it has no TLS at a socket ({}); leave tls, ca_file and sslmode out, or name a host",
                    path.display()
                ));
            }
            Host::Tcp(name) if ServerName::try_from(name.as_str()).is_err() => {
                return refused(format!(
                    "no certificate is for the name {name:?}; name the host otherwise"
                ));
            }
            Host::Tcp(_) => {}
        }
    }
    Ok(())
}

/// The connector for encrypted connections to verified servers.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// With the authorities of a file, and no others, or with those of the system.
    pub(super) fn new(ca_file: Option<&Path>) -> Result<Self, DatabaseError> {
        let mut roots = RootCertStore::empty();
        match ca_file {
            Some(path) => add_authorities(&mut roots, path)?,
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder =
            builder.map_err(|error| DatabaseError::Engine(format!("TLS cannot be set up: {error}")))?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

fn add_authorities(roots: &mut RootCertStore, path: &Path) -> Result<(), DatabaseError> {
    let unusable = |why: String| {
        DatabaseError::Engine(format!(
            "the certificate authorities in {} cannot be used: {why}; ca_file is a PEM file that this user may read",
            path.display()
        ))
    };
    let found = CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| unusable(error.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(unusable("there is none".to_owned())),
        false => Ok(()),
    }
}

/// The operator's next step for a connection that did not come about.
pub(super) fn next_step(error: &postgres::Error) -> &'static str {
    let source = std::error::Error::source(error);
    let failed = source.and_then(|source| source.downcast_ref::<io::Error>()?.get_ref());
    match failed.and_then(|failed| failed.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(why)) => of_certificate(why),
        Some(_) => "see that PostgreSQL itself answers there, with TLS 1.2 or later",
        // The driver has no kind for it.
        None if source.is_some_and(|source| source.to_string() == "server does not support TLS") => {
            "turn TLS on there (ssl = on in postgresql.conf), or write tls = \"off\" in [storage.postgres] if nobody can listen on the way"
        }
        None => "see that it runs and takes this user",
    }
}

fn of_certificate(why: &CertificateError) -> &'static str {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "if that is the right server, name the file of the authority that signed its certificate (ca_file in [storage.postgres])"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "if that is the right server, name it as its certificate does, or give it a certificate for this name"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "renew its certificate, or correct the clock of this host"
        }
        _ => "give it a certificate for its name (subjectAltName) that is not an authority's own (CA:FALSE)",
    }
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = Encrypted;
    type TlsConnect = Handshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, InvalidDnsNameError> {
        Ok(Handshake {
            connector: self.0.clone(),
            name: ServerName::try_from(host)?.to_owned(),
        })
    }
}

/// A handshake that is to be made with the server of this name.
pub(super) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let made = tokio::time::timeout(PATIENCE, self.connector.connect(self.name, socket)).await;
            made.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
                .map(Encrypted)
        })
    }
}

/// A connection that is encrypted.
pub(super) struct Encrypted(TlsStream<Socket>);

impl postgres::tls::TlsStream for Encrypted {
    /// Binds a password to this connection: another one between the two, with any certificate, cannot pass it on.
    fn channel_binding(&self) -> ChannelBinding {
        let certificates = self.0.get_ref().1.peer_certificates();
        let shown = certificates.and_then(|certificates| end_point(certificates.first()?));
        shown.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protection_of(
        url: &str,
        wanted: Option<TlsWanted>,
        ca_file: Option<&str>,
    ) -> Result<Protection, String> {
        let tls = PostgresTls {
            wanted,
            ca_file: ca_file.map(Into::into),
        };
        protection(&url.parse().unwrap(), &tls).map_err(|error| error.to_string())
    }

    #[test]
    fn another_host_is_verified_unless_the_configuration_says_otherwise() {
        for local in [
            "host=/run/postgresql",
            "host=localhost",
            "postgres://u@127.0.0.2/x",
            "postgres://u@[::1]/x",
            "host=db.example hostaddr=127.0.0.1",
            "host=/run/postgresql,localhost sslmode=disable",
        ] {
            assert_eq!(protection_of(local, None, None), Ok(Protection::Local), "{local}");
            let off = protection_of(local, Some(TlsWanted::Off), None);
            assert_eq!(off, Ok(Protection::Local), "{local}");
        }
        for other in [
            "host=db.example",
            "postgres://u@192.0.2.1/x",
            "host=localhost,db.example",
            "host=localhost hostaddr=192.0.2.1",
            "host=db.example sslmode=prefer",
            "host=localhost sslmode=require",
        ] {
            assert_eq!(
                protection_of(other, None, None),
                Ok(Protection::Verified),
                "{other}"
            );
            let verified = protection_of(other, Some(TlsWanted::Verify), None);
            assert_eq!(verified, Ok(Protection::Verified), "{other}");
        }
        let off = |url| protection_of(url, Some(TlsWanted::Off), None);
        assert_eq!(off("host=db.example"), Ok(Protection::Plain));
        assert_eq!(off("host=db.example sslmode=disable"), Ok(Protection::Plain));
        let named = protection_of("host=localhost", None, Some("ca.pem"));
        assert_eq!(named, Ok(Protection::Verified));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let (off, verify) = (Some(TlsWanted::Off), Some(TlsWanted::Verify));
        for (url, wanted, ca_file, part) in [
            ("host=a sslmode=require", off, None, "sslmode=require"),
            ("host=a", off, Some("ca.pem"), "ca_file"),
            ("host=a sslmode=disable", verify, None, "sslmode=disable"),
            ("host=localhost sslmode=disable", None, Some("ca.pem"), "ca_file"),
            ("host=a sslmode=disable", None, None, "tls = \"off\""),
            ("host=/run/postgresql", verify, None, "/run/postgresql"),
            ("host=/run/postgresql,a", None, None, "/run/postgresql"),
            ("hostaddr=192.0.2.1", None, None, "beside hostaddr"),
            ("host='a b'", None, None, "a b"),
        ] {
            let error = protection_of(url, wanted, ca_file).unwrap_err();
            assert!(error.contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn a_file_without_authorities_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.pem");
        let error = |file: &Path| match Tls::new(Some(file)) {
            Ok(_) => panic!("{} is taken", file.display()),
            Err(error) => error.to_string(),
        };
        assert!(error(&file).contains("ca.pem"), "{}", error(&file));
        std::fs::write(&file, "no certificate").unwrap();
        assert!(error(&file).contains("there is none"), "{}", error(&file));
    }
}
