//! The images of one installation: its cache, its records of images, its registry clients.

use std::sync::Arc;

use xebec_cache::store::Store;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::Reply;
use xebec_trust::Policy;

use crate::budget::Budget;
use crate::clients::Clients;
use crate::deferred_sync::DeferredSync;
use crate::index_cache::IndexCache;
use crate::record::Records;

/// Where progress and notices go. Called from any thread.
pub type Report = Arc<dyn Fn(Reply) + Send + Sync>;

/// The images of one installation.
#[derive(Clone)]
pub struct Images {
    pub(crate) paths: Paths,
    pub(crate) store: Arc<Store>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) records: Records,
    pub(crate) decoded: Arc<IndexCache>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) unsynced: DeferredSync,
}

impl Images {
    /// The images of the installation at `paths`.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub fn open(paths: &Paths) -> Result<Self, Failure> {
        Ok(Self {
            paths: paths.clone(),
            store: Arc::new(Store::open(&paths.layers())?),
            clients: Arc::new(Clients::new(paths)),
            records: Records::new(paths.images()),
            decoded: Arc::default(),
            budget: Arc::default(),
            unsynced: DeferredSync::default(),
        })
    }

    /// Where things are.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The blob cache.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The same, but registries are asked with logins of pulls that are under way.
    pub fn trying_logins(&self) -> Self {
        Self {
            clients: Arc::new(self.clients.trying()),
            ..self.clone()
        }
    }

    /// The registry clients.
    pub fn clients(&self) -> &Arc<Clients> {
        &self.clients
    }

    /// The records of images.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The policy, read anew: a key taken out of `trust.toml` stops counting at once.
    ///
    /// # Errors
    /// When `trust.toml` cannot be used.
    pub fn policy(&self) -> Result<Policy, Failure> {
        Policy::load(&self.paths.trust()).map_err(|error| Failure::new(FailureKind::Trust, error))
    }
}
