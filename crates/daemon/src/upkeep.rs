//! What the worker does for its cache in the background, never on a reader's way: what was filled is made durable,
//! what is in use is noted as used, and the limit is kept.
//!
//! Layers are synced every few seconds, and what starts wrote down, so that a power cut costs little more than that. What a
//! worker that died left unsynced of its layers and views is found when the next one starts; what it wrote down the kernel
//! brings to the disk, within half a minute.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tracing::{debug, error, warn};
use xebec_cache::presence::SyncError;
use xebec_cache::store::LayerKey;
use xebec_fill::correction_count;
use xebec_fill::fill_service::{FillService, ServedLayer};
use xebec_protocol::failure::Failure;

use crate::services::Services;

/// How often layers are synced: what a power cut costs at most is fetched again in about the same time.
const SYNC: Duration = Duration::from_secs(10);
/// How old the note of a layer's last use may be while it is in use: that a layer counts as used five minutes before
/// its view went does not change which goes first on any host that holds more than it uses in five minutes.
const LAST_USE: Duration = Duration::from_secs(300);

/// Runs until the worker ends.
pub(super) async fn run(requests: Arc<Services>) {
    let this = requests.clone();
    let left = move || {
        this.sync_views_again();
        this.sync_left();
    };
    let _ = tokio::task::spawn_blocking(left).await;
    let mut tick = tokio::time::interval(SYNC);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let this = requests.clone();
        let upkeep = tokio::task::spawn_blocking(move || {
            this.sync_notes();
            for key in sync_served(&this.fills) {
                this.distrust_memory(key);
            }
            this.note_use();
            // Those whose readers have gone are forgotten.
            let _ = this.views.departed();
            this.enforce(0);
        });
        let _ = upkeep.await;
    }
}

/// Makes durable what the layers that are served hold. Gives those that the disk did not take.
pub(super) fn sync_served(fills: &FillService) -> Vec<LayerKey> {
    let served = fills.all().into_iter();
    let lost = served.filter(|served| matches!(sync_one(fills, served), Err(SyncError::Lost(_))));
    lost.map(|served| served.layer().key()).collect()
}

/// If the disk does not take what was written, readers raise events again for what it lacks.
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

impl Services {
    /// Brings what starts wrote down to the disk.
    pub(super) fn sync_notes(&self) {
        self.sync_views();
        if let Err(failure) = self.images.sync().and(self.recordings.sync()) {
            error!(
                "{failure}. It may be gone after a power cut, and is found out again then; look after the disk"
            );
        }
    }

    /// Makes durable what a layer holds. The disk may take long, so it takes no turn from requests.
    pub(super) async fn sync_layer(self: &Arc<Self>, served: &Arc<ServedLayer>) -> Result<(), Failure> {
        let layer = served.clone();
        let synced = self.without_turn(move |this| {
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
    fn distrust_memory(&self, key: LayerKey) {
        self.shared.forget(key);
        if let Err(failure) = correction_count::add(self.images.store(), key) {
            warn!("{failure}");
        }
    }

    /// Makes durable what an earlier worker of this boot filled and did not come to sync.
    fn sync_left(&self) {
        for key in self.images.store().list().unwrap_or_default() {
            if let Err(error) = self.sync_if_left(key) {
                warn!("cannot sync {key}: {error}");
            }
            // That worker may have died before it compared what runtime images had brought.
            let layer = self.images.store().look(key);
            if layer.is_ok_and(|layer| layer.is_complete() && layer.has_unverified()) {
                self.fills.tell_complete(key);
            }
        }
    }

    /// Marks layers of views with a holder as used now.
    fn note_use(&self) {
        for pair in self.views.held().iter().flat_map(|view| &view.layers) {
            let (store, key) = (self.images.store(), LayerKey::from(*pair));
            let age = SystemTime::now().duration_since(store.last_used(key));
            // A time in the future is wrong, too.
            if age.is_ok_and(|age| age < LAST_USE) {
                continue;
            }
            if let Err(error) = store.touch(key) {
                debug!("{key}: {error}");
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
