//! A registry that misbehaves on purpose.
//!
//! [`FaultyRegistry`] speaks enough of the OCI distribution protocol for a client to pull, push and attach:
//! manifests, blobs with ranges, uploads in one piece or several, mounts, referrers, tokens, passwords, and
//! blobs by redirect to a second server. It runs on a thread of its own, on loopback, and stops when dropped,
//! so that tests with and without an async runtime can use it. A script of [`When`] and [`Fault`] says what
//! goes wrong; a log says what was asked and how many bytes went out.

mod access;
mod answer;
mod body;
mod connection;
mod distort;
mod fault;
mod log;
mod options;
mod reply;
mod serve;
mod start;
mod state;
mod store;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use xebec_format::digest::Digest;

pub use access::Access;
pub use fault::{Fault, When};
pub use log::{LoggedRequest, Place, RequestHead};
pub use options::Options;

use log::Entry;
use start::SentPieces;
use state::State;

/// A running registry.
pub struct FaultyRegistry {
    state: Arc<State>,
    ca_pem: Option<String>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultyRegistry {
    /// Starts one without TLS that is open to everyone.
    ///
    /// # Errors
    /// If there is no free socket or thread.
    pub fn start() -> anyhow::Result<Self> {
        Self::with(Options::default())
    }

    /// Starts one.
    ///
    /// # Errors
    /// If there is no free socket or thread.
    pub fn with(options: Options) -> anyhow::Result<Self> {
        let address: IpAddr = match options.address {
            Some(address) => address,
            None if options.ipv6 => Ipv6Addr::LOCALHOST.into(),
            None => Ipv4Addr::LOCALHOST.into(),
        };
        let listen = || -> anyhow::Result<std::net::TcpListener> {
            let listener = std::net::TcpListener::bind((address, 0))
                .with_context(|| format!("listening on {address}"))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let (registry, cdn) = (listen()?, listen()?);
        let (tls, ca_pem) = if options.tls {
            let (config, pem) = serve::tls(&options)?;
            (Some(config), Some(pem))
        } else {
            (None, None)
        };
        let state = Arc::new(State {
            options,
            registry: registry.local_addr()?,
            cdn: cdn.local_addr()?,
            inner: Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let shared = state.clone();
        let thread = std::thread::Builder::new()
            .name("faulty-registry".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        _ = serve::listen(shared.clone(), registry, tls.clone(), Place::Registry) => {}
                        _ = serve::listen(shared, cdn, tls, Place::Cdn) => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(Self {
            state,
            ca_pem,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// `127.0.0.1:port` or `[::1]:port`, as references name it.
    pub fn host(&self) -> String {
        self.state.registry.to_string()
    }

    /// `127.0.0.1:port` of the server that blobs are redirected to.
    pub fn cdn_host(&self) -> String {
        self.state.cdn.to_string()
    }

    /// The certificate to trust, if it speaks TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// Puts a blob there, without any request.
    pub fn put_blob(&self, repository: &str, bytes: impl Into<Bytes>) -> Digest {
        let bytes = bytes.into();
        let digest = Digest::of(&bytes);
        self.state
            .inner
            .lock()
            .store
            .repository(repository)
            .blobs
            .insert(digest, bytes);
        digest
    }

    /// Puts a blob there under a digest that is not its own.
    pub fn put_blob_as(&self, repository: &str, digest: Digest, bytes: impl Into<Bytes>) {
        self.state
            .inner
            .lock()
            .store
            .repository(repository)
            .blobs
            .insert(digest, bytes.into());
    }

    /// Puts a manifest there under `name`, a tag or a digest.
    pub fn put_manifest(
        &self,
        repository: &str,
        name: &str,
        media_type: &str,
        bytes: impl Into<Bytes>,
    ) -> Digest {
        self.state
            .inner
            .lock()
            .store
            .repository(repository)
            .put_manifest(name, media_type, bytes.into())
    }

    /// The manifest under `name`.
    pub fn manifest(&self, repository: &str, name: &str) -> Option<Bytes> {
        let mut inner = self.state.inner.lock();
        inner
            .store
            .repository(repository)
            .manifest(name)
            .map(|(_, manifest)| manifest.bytes.clone())
    }

    /// A blob.
    pub fn blob(&self, repository: &str, digest: &Digest) -> Option<Bytes> {
        self.state
            .inner
            .lock()
            .store
            .repository(repository)
            .blobs
            .get(digest)
            .cloned()
    }

    /// Removes a blob.
    pub fn remove_blob(&self, repository: &str, digest: &Digest) {
        self.state
            .inner
            .lock()
            .store
            .repository(repository)
            .blobs
            .remove(digest);
    }

    /// Lets `fault` befall the requests that `when` describes. Earlier rules come first.
    pub fn inject(&self, when: When, fault: Fault) {
        self.state.inner.lock().script.add(when, fault);
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.state.inner.lock().script.clear();
    }

    /// Has it send these pieces of a blob, offsets and lengths, when a start of an image of the repository is answered in advance
    /// ([`Options::native`]).
    pub fn send_pieces(&self, repository: &str, digest: Digest, pieces: &[(u64, u64)]) {
        self.state.inner.lock().start.pieces.push(SentPieces {
            repository: repository.to_owned(),
            blob: digest,
            pieces: pieces.to_vec(),
        });
    }

    /// Has it send wrong bytes in answers in advance of this kind: `manifest`, `referrers`, `blob` or `pieces`.
    pub fn lie_in_advance(&self, kind: &str) {
        self.state.inner.lock().start.lies.push(kind.to_owned());
    }

    /// Has it leave out answers in advance of this kind.
    pub fn leave_out_in_advance(&self, kind: &str) {
        self.state.inner.lock().start.without.push(kind.to_owned());
    }

    /// Whether its answers have the header that says that it answers starts in advance. As a proxy may do, that does not change what it
    /// answers.
    pub fn hide_native(&self, hide: bool) {
        self.state.inner.lock().hides_native = hide;
    }

    /// While down, every connection is reset.
    pub fn set_down(&self, down: bool) {
        self.state.inner.lock().down = down;
    }

    /// Makes every token given out so far useless.
    pub fn expire_tokens(&self) {
        self.state.inner.lock().tokens.expire();
    }

    /// Makes every redirect given out so far useless: its URL is answered with 403.
    pub fn expire_redirects(&self) {
        self.state.inner.lock().signature += 1;
    }

    /// How many tokens were given out.
    pub fn tokens_given(&self) -> u64 {
        self.state.inner.lock().tokens.count()
    }

    /// The requests since the start or the last [`Self::clear_log`], in order.
    pub fn log(&self) -> Vec<LoggedRequest> {
        self.state.inner.lock().log.iter().map(Entry::read).collect()
    }

    /// How many requests have a path that contains `part`.
    pub fn count(&self, part: &str) -> usize {
        self.log()
            .iter()
            .filter(|request| request.head.path.contains(part))
            .count()
    }

    /// Forgets the requests so far.
    pub fn clear_log(&self) {
        self.state.inner.lock().log.clear();
    }
}

impl Drop for FaultyRegistry {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
