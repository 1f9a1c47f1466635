//! Syncs filled pages and notes to the disk, after the start that waited for them.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tracing::{debug, error, warn};
use xebec_cache::presence::SyncError;
use xebec_cache::store::LayerKey;
use xebec_fill::correction_count;
use xebec_fill::fill_service::{FillService, ServedLayer};
use xebec_images::images::Images;
use xebec_protocol::failure::Failure;
use xebec_recordings::recordings::Recordings;
use xebec_views::sharing::SharedContents;
use xebec_views::view;
use xebec_views::views::Views;

use crate::background::run_without_turn;

/// If the disk does not take the pages that were written, readers raise events again for those that it lacks.
fn sync_one(fills: &FillService, served: &Arc<ServedLayer>) -> Result<(), SyncError> {
    let key = served.layer().key();
    let synced = served.sync();
    match &synced {
        Ok(true) => debug!("{key} is synced"),
        Ok(false) => {}
        Err(SyncError::Lost(error)) => {
            error!(
                "the disk does not take what was written of {key}: {error}. What it lacks is fetched again; restart containers \
                 that were started on it when it was there, and look after the disk"
            );
            fills.listen_again(served);
        }
        // On a full disk it is so for every layer, each time.
        Err(SyncError::Unnoted(error)) => {
            if let Some(unsaid) = fills.unnoted.say() {
                warn!(
                    unsaid,
                    "cannot note what is on disk of {key}: {error}. It is there, and would be fetched again after a power cut"
                );
            }
        }
    }
    synced.map(|_| ())
}

/// Brings data of layers, recordings and views to the disk, after it was written.
pub(crate) struct Durability {
    images: Images,
    recordings: Recordings,
    fills: Arc<FillService>,
    views: Arc<Views>,
    shared: Arc<SharedContents>,
    /// Views that were mounted, by name, with their metadata, which is not on the disk yet.
    unsynced_views: Mutex<Vec<(String, PathBuf)>>,
}

impl Durability {
    /// Of the state on this host and the layers that are served.
    pub(crate) fn new(
        recordings: Recordings,
        fills: Arc<FillService>,
        views: Arc<Views>,
        shared: Arc<SharedContents>,
    ) -> Arc<Self> {
        Arc::new(Self {
            images: recordings.images().clone(),
            recordings,
            fills,
            views,
            shared,
            unsynced_views: Mutex::default(),
        })
    }

    /// A view was mounted whose metadata is not on the disk yet.
    pub(crate) fn note_view(&self, name: String, metadata: PathBuf) {
        self.unsynced_views().push((name, metadata));
    }

    /// Makes the pages of the served layers durable. Gives those that the disk did not take.
    pub(crate) fn sync_served(&self) -> Vec<LayerKey> {
        let served = self.fills.all().into_iter();
        let lost = served.filter(|served| matches!(sync_one(&self.fills, served), Err(SyncError::Lost(_))));
        lost.map(|served| served.layer().key()).collect()
    }

    /// Has all views synced again: the worker before this one may not have come to it.
    pub(crate) fn sync_views_again(&self) {
        let metadata = |name: String| {
            let path = view::metadata(self.images.paths(), &name);
            (name, path)
        };
        let views = self.views.list().into_iter();
        self.unsynced_views()
            .extend(views.map(|view| metadata(view.name)));
    }

    fn unsynced_views(&self) -> MutexGuard<'_, Vec<(String, PathBuf)>> {
        self.unsynced_views.lock()
    }

    /// Brings the metadata of the views that were mounted since to the disk. Blocks.
    fn sync_views(&self) {
        let views = std::mem::take(&mut *self.unsynced_views());
        for (name, metadata) in views {
            if let Err(failure) = view::sync(&metadata) {
                error!("{failure}; containers on the view may read wrong bytes");
                self.views.spoil(&name);
            }
        }
    }

    /// Brings the records that starts wrote to the disk.
    pub(crate) fn sync_notes(&self) {
        self.sync_views();
        if let Err(failure) = self.images.sync().and(self.recordings.sync()) {
            error!(
                "{failure}. It may be gone after a power cut, and is found out again then; look after the disk"
            );
        }
    }

    /// Makes a layer's pages durable. The disk may take long, so it takes no turn from requests.
    pub(crate) async fn sync_layer(self: &Arc<Self>, served: &Arc<ServedLayer>) -> Result<(), Failure> {
        let layer = served.clone();
        let this = self.clone();
        let synced = run_without_turn(move || {
            sync_one(&this.fills, &layer).inspect_err(|error| {
                if matches!(error, SyncError::Lost(_)) {
                    this.distrust_memory(layer.layer().key());
                }
            })
        });
        let failed = |error| Failure::host(format!("sync {}", served.layer().key()), error);
        synced.await?.map_err(failed)
    }

    /// After the disk lost writes: views that are mounted may come to have holes in memory, so later ones are others, and
    /// nobody reads the layer's files in place of their own.
    pub(crate) fn distrust_memory(&self, key: LayerKey) {
        self.shared.forget(key);
        if let Err(failure) = correction_count::add(self.images.store(), key) {
            warn!("{failure}");
        }
    }

    /// Makes the pages durable that an earlier worker of this boot filled and did not come to sync.
    pub(crate) fn sync_left(&self) {
        for key in self.images.store().list().unwrap_or_default() {
            if let Err(error) = self.sync_if_left(key) {
                warn!("cannot sync {key}: {error}");
            }
            // That worker may have died before it compared the pages that runtime images had brought.
            let layer = self.images.store().look(key);
            if layer.is_ok_and(|layer| layer.is_complete() && layer.has_unverified()) {
                self.fills.tell_complete(key);
            }
        }
    }

    fn sync_if_left(&self, key: LayerKey) -> Result<(), xebec_cache::store::StoreError> {
        if self.images.store().look(key)?.presence().is_durable() {
            return Ok(());
        }
        // Served until it is durable: see `FillService::retain`.
        self.fills.serve(key, None).map(|_| ())
    }
}
