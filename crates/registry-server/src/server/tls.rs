//! TLS, with certificates that are read again when their files change.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// How often the files are looked at.
const LOOKED_AT_EACH: Duration = Duration::from_secs(10);

/// The certificate that the server shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate and those between it and its authority, in PEM.
    pub certificate: PathBuf,
    /// The certificate's key, in PEM.
    pub key: PathBuf,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as PEM of what it should be.
    #[error("cannot read {what} from {}: {cause}; it must be a PEM file that this user may read", path.display())]
    Read {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        cause: rustls::pki_types::pem::Error,
    },
    /// There is none in the file.
    #[error("{} holds no certificate", .0.display())]
    NoCertificate(PathBuf),
    /// They are not for each other, or of a kind that is not known.
    #[error("the key {} cannot be used with the certificate {}: {cause}", key.display(), certificate.display())]
    Pair {
        /// The file of the key.
        key: PathBuf,
        /// The file of the certificate.
        certificate: PathBuf,
        /// Why.
        cause: rustls::Error,
    },
    /// rustls wants none of its own protocols.
    #[error("cannot set TLS up: {0}")]
    Setup(#[from] rustls::Error),
}

/// The certificate that is shown now.
#[derive(Debug)]
pub(crate) struct Certificates {
    settings: TlsSettings,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<CertifiedKey>>,
}

impl Certificates {
    pub(crate) fn load(settings: TlsSettings) -> Result<Arc<Self>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let current = read(&settings, &provider)?;
        Ok(Arc::new(Self {
            settings,
            provider,
            current: RwLock::new(Arc::new(current)),
        }))
    }

    /// How connections are made safe, each with the certificate of its time.
    pub(crate) fn server(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Reads the files again. If they are not right, the certificate stays.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let new = Arc::new(read(&self.settings, &self.provider)?);
        *self.current.write() = new;
        Ok(())
    }

    /// Reads the files again whenever they change, for ever.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut seen = self.state();
        loop {
            tokio::time::sleep(LOOKED_AT_EACH).await;
            let now = self.state();
            if now == seen {
                continue;
            }
            match self.reload() {
                Ok(()) => {
                    seen = now;
                    tracing::info!(certificate = %self.settings.certificate.display(), "read the certificate again");
                }
                // Key and certificate may be replaced one after the other: the next look sees both.
                Err(error) => tracing::warn!("keeping the certificate as it was: {error}"),
            }
        }
    }

    /// The times and sizes of the files, which change when one of them is replaced.
    fn state(&self) -> [Option<(SystemTime, u64)>; 2] {
        [&self.settings.certificate, &self.settings.key].map(|path| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        })
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.read().clone())
    }
}

fn read(settings: &TlsSettings, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let unread = |what, path: &PathBuf| {
        let path = path.clone();
        move |cause| TlsError::Read { what, path, cause }
    };
    let chain = CertificateDer::pem_file_iter(&settings.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unread("the certificate", &settings.certificate))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(settings.certificate.clone()));
    }
    let key = PrivateKeyDer::from_pem_file(&settings.key).map_err(unread("the key", &settings.key))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|cause| TlsError::Pair {
        key: settings.key.clone(),
        certificate: settings.certificate.clone(),
        cause,
    })
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        Self::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(settings: &TlsSettings, name: &str) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        std::fs::write(&settings.certificate, certificate.pem()).unwrap();
        std::fs::write(&settings.key, key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_new_certificate_is_taken_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let settings = TlsSettings {
            certificate: directory.path().join("tls.crt"),
            key: directory.path().join("tls.key"),
        };
        assert!(matches!(
            Certificates::load(settings.clone()),
            Err(TlsError::Read { .. })
        ));
        write(&settings, "one.example");
        let certificates = Certificates::load(settings.clone()).unwrap();
        let shown = || certificates.current.read().cert[0].to_vec();
        let first = shown();
        std::fs::write(&settings.certificate, "").unwrap();
        assert!(certificates.reload().is_err());
        assert_eq!(shown(), first);
        write(&settings, "two.example");
        certificates.reload().unwrap();
        assert_ne!(shown(), first);
        // Of another pair.
        let other = rcgen::KeyPair::generate().unwrap();
        std::fs::write(&settings.key, other.serialize_pem()).unwrap();
        assert!(matches!(certificates.reload(), Err(TlsError::Pair { .. })));
    }
}
