//! The server: it listens, and answers by the [`crate::api`] within its limits until it is told to end.

mod activity;
pub(crate) mod clients;
mod connection;
mod moving;
mod request;
mod settings;
mod shared;
mod tls;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use xebec_policy::rate::Buckets;

pub use clients::{Network, NetworkError, forwarded};
pub use settings::{Limits, ServerSettings};
pub use tls::{TlsError, TlsSettings};

use shared::Shared;
use tls::Certificates;

use crate::state::Registry;

/// Connections that the kernel has accepted and the server has not.
const BACKLOG: u32 = 1024;
/// After a failure to accept, which is nearly always a lack of descriptors, it is tried again after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// Why the server does not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address that cannot be listened at.
    #[error(
        "cannot listen at {address}: {cause}; name an address of this host and a free port, as in 127.0.0.1:5000 or :5000"
    )]
    Listen {
        /// The address, as it was given.
        address: String,
        /// Why not.
        cause: io::Error,
    },
    /// No certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A server that listens, and does not answer yet.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
    certificates: Option<Arc<Certificates>>,
}

impl Server {
    /// Listens at all addresses of the settings.
    ///
    /// # Errors
    /// If the server cannot listen at an address, or the certificate cannot be used.
    pub async fn listen(registry: Arc<Registry>, settings: ServerSettings) -> Result<Self, ServeError> {
        let limits = &settings.limits;
        registry
            .watchers
            .limit(limits.connections, limits.requests_per_client);
        let certificates = settings.tls.clone().map(Certificates::load).transpose()?;
        let mut listeners = Vec::new();
        for address in &settings.listen {
            let listener = listen_at(address).await;
            listeners.push(listener.map_err(|cause| ServeError::Listen {
                address: address.clone(),
                cause,
            })?);
        }
        Ok(Self {
            shared: Arc::new(Shared {
                registry,
                rate: settings.limits.rate.map(Buckets::new),
                settings,
                begun: Instant::now(),
                requests: Arc::default(),
                connections: Arc::default(),
            }),
            listeners,
            certificates,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.listeners.iter().map(TcpListener::local_addr);
        addresses.filter_map(Result::ok).collect()
    }

    /// Whether it speaks TLS.
    pub fn is_safe(&self) -> bool {
        self.certificates.is_some()
    }

    /// The handle by which the certificate is read again while the server serves.
    pub fn reloader(&self) -> Reloader {
        Reloader(self.certificates.clone())
    }

    /// Answers until `ended` comes true, then finishes what is under way.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub async fn serve(self, ended: impl Future<Output = ()>) -> Result<(), ServeError> {
        let tls = match &self.certificates {
            Some(certificates) => {
                tokio::spawn(certificates.clone().watch());
                Some(TlsAcceptor::from(certificates.server()?))
            }
            None => None,
        };
        let (end, ending) = watch::channel(false);
        let mut accepting = JoinSet::new();
        for listener in self.listeners {
            accepting.spawn(accept(self.shared.clone(), listener, tls.clone(), ending.clone()));
        }
        ended.await;
        self.shared.registry.end();
        let _ = end.send(true);
        let drained = async { while accepting.join_next().await.is_some() {} };
        if tokio::time::timeout(self.shared.settings.drain, drained)
            .await
            .is_err()
        {
            tracing::warn!("requests are still under way after the time for them; they are broken off");
        }
        Ok(())
    }
}

/// Reads the certificate of a server again.
#[derive(Debug)]
pub struct Reloader(Option<Arc<Certificates>>);

impl Reloader {
    /// Reads it, if there is one.
    ///
    /// # Errors
    /// If the new files are not right; the certificate is then as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.0
            .as_ref()
            .map_or(Ok(()), |certificates| certificates.reload())
    }
}

/// `:5000` is every address of this host.
async fn listen_at(address: &str) -> io::Result<TcpListener> {
    let full = match address.strip_prefix(':') {
        Some(port) => format!("[::]:{port}"),
        None => address.to_owned(),
    };
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "it names no address");
    for address in tokio::net::lookup_host(&full).await? {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until the server ends, then waits for those that are open.
async fn accept(
    shared: Arc<Shared>,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    mut ending: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => admit(&shared, &mut connections, stream, peer, &tls, &ending),
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            _ = ending.changed() => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Serves a connection, unless there are too many.
fn admit(
    shared: &Arc<Shared>,
    connections: &mut JoinSet<()>,
    stream: TcpStream,
    peer: SocketAddr,
    tls: &Option<TlsAcceptor>,
    ending: &watch::Receiver<bool>,
) {
    let (limits, metrics) = (&shared.settings.limits, &shared.registry.metrics);
    if connections.len() >= limits.connections {
        metrics.refused("connections");
        return;
    }
    // All connections of a proxy's clients come from the proxy.
    let is_proxy = shared
        .settings
        .proxies
        .iter()
        .any(|proxy| proxy.contains(peer.ip()));
    let most = if is_proxy {
        usize::MAX
    } else {
        limits.connections_per_client
    };
    let Some(admitted) = shared.connections.admit(peer.ip(), most) else {
        metrics.refused("connections_of_one_client");
        return;
    };
    let held = metrics.begin_connection();
    let (shared, tls, ending) = (shared.clone(), tls.clone(), ending.clone());
    connections.spawn(async move {
        connection::serve(shared, stream, peer, tls, ending).await;
        drop((held, admitted));
    });
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("addresses", &self.addresses())
            .finish()
    }
}
