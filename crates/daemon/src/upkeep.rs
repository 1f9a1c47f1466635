//! The worker's upkeep of its cache in the background, never on a reader's way: filled pages are made durable, layers in use are noted
//! as used, and the limit is kept.
//!
//! Layers are synced every few seconds, and so are the records that starts wrote, so that a power cut costs little more than that.
//! When a worker dies, the next one finds the data of its layers and views that it left unsynced. The kernel brings the dead worker's
//! records to the disk, within half a minute.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tracing::debug;
use xebec_cache::store::{LayerKey, Store};
use xebec_views::views::Views;

use crate::durability::Durability;
use crate::quota::Quota;

/// How often layers are synced: the bytes that a power cut costs at most are fetched again in about the same time.
const SYNC: Duration = Duration::from_secs(10);
/// How old the note of a layer's last use may be while it is in use. A layer may so count as used five minutes before its view
/// went. On a host that holds more than it uses in five minutes, that does not change which layer goes first.
const LAST_USE: Duration = Duration::from_secs(300);

/// The work on the cache in the background.
pub(crate) struct Upkeep {
    pub(crate) store: Arc<Store>,
    pub(crate) views: Arc<Views>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) quota: Arc<Quota>,
}

impl Upkeep {
    /// Runs until the worker ends.
    pub(crate) async fn run(self: Arc<Self>) {
        let durability = self.durability.clone();
        let left = move || {
            durability.sync_views_again();
            durability.sync_left();
        };
        let _ = tokio::task::spawn_blocking(left).await;
        let mut tick = tokio::time::interval(SYNC);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let this = self.clone();
            let _ = tokio::task::spawn_blocking(move || this.keep_up()).await;
        }
    }

    /// Does all of it once. Blocks.
    fn keep_up(&self) {
        self.durability.sync_notes();
        for key in self.durability.sync_served() {
            self.durability.distrust_memory(key);
        }
        self.note_use();
        // Those whose readers have gone are forgotten.
        let _ = self.views.departed();
        self.quota.enforce(0);
    }

    /// Marks layers of views with a holder as used now.
    fn note_use(&self) {
        for pair in self.views.held().iter().flat_map(|view| &view.layers) {
            let (store, key) = (&self.store, LayerKey::from(*pair));
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
}
