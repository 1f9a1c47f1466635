//! Layers of images that containerd removed leave the cache, since an image is removed to get its room.
//!
//! [`plan`] decides which layers go, and [`RemovedImages::let_go`] evicts them. Other requests go on in between, so before each eviction
//! the daemon checks once more whether the layer is wanted, at a point when no request can begin to rely on it
//! ([`Eviction::evict_unless`]). `lazy.rs` and the snapshotter's `pulls.rs` see to it that no pull relies on an admission of an
//! image that goes. `removed_images/protocol.rs` tests all of them against each other.

mod plan;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod protocol;

use std::collections::HashSet;
use std::sync::Arc;

use tracing::{debug, info, warn};
use xebec_cache::evict::{Action, Step};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_images::images::Images;
use xebec_images::inventory;
use xebec_recordings::recording_store::KeptRecordings;
use xebec_snapshotter::lazy::Shown;
use xebec_views::views::Views;

use crate::eviction::Eviction;
use crate::quota::Quota;
use plan::{Leaving, Plan, Seen, plan};

/// Evicts the layers of images that containerd removed.
pub(crate) struct RemovedImages {
    pub(crate) images: Images,
    pub(crate) kept: KeptRecordings,
    pub(crate) views: Arc<Views>,
    pub(crate) quota: Arc<Quota>,
    pub(crate) eviction: Arc<Eviction>,
}

impl RemovedImages {
    /// Lets go the layers that no snapshot shows any more. Says whether all of it went.
    pub(super) fn let_go(&self, shown: &Shown, found: Option<&HashSet<Digest>>) -> bool {
        let _one = self.quota.collect_alone();
        let views = self.views.held();
        let seen = Seen {
            shown,
            found,
            is_viewed: &|manifest| views.iter().any(|view| view.manifest == manifest),
        };
        let plan = plan(self.images.records().list(), &seen);
        let mut is_done = plan.is_all;
        for image in &plan.leaving {
            is_done &= self.let_image_go(image, &plan);
        }
        is_done
    }

    /// The layers go first: while one of them stays, its record tells for which clients.
    fn let_image_go(&self, image: &Leaving, plan: &Plan) -> bool {
        let manifest = image.record.manifest_digest;
        if image.is_whole {
            self.views.take_down_unused(|view| view.manifest == manifest);
        }
        let (mut bytes, mut have_all_gone) = (0, true);
        for layer in image.layers() {
            match self.let_layer_go(layer, plan) {
                Ok(freed) => bytes += freed,
                Err(reason) => {
                    have_all_gone = false;
                    debug!("{layer} stays, though containerd has removed it: {reason}");
                }
            }
        }
        if image.is_whole && have_all_gone {
            let forgotten = self.kept.forget(manifest).and_then(|()| {
                let records = self.images.records();
                records.remove_if(manifest, |record| !plan.is_wanted_again(record))
            });
            if let Err(failure) = forgotten {
                warn!("{failure}");
                return false;
            }
        }
        // One without a lazy layer takes nothing here.
        if bytes > 0 {
            let name = image.record.references.first().cloned();
            let name = name.unwrap_or_else(|| manifest.to_string());
            info!("{name}: containerd has removed it; {bytes} bytes of its layers were evicted");
        }
        have_all_gone
    }

    /// The bytes that a layer took, if nobody wants it.
    fn let_layer_go(&self, key: LayerKey, plan: &Plan) -> Result<u64, String> {
        if plan.wanted.contains(&key) || !self.images.store().contains(key) {
            return Ok(0);
        }
        let bytes = inventory::disk_bytes(&self.images.store().folder(key));
        let action = Action::Remove;
        let step = Step { key, action, bytes };
        // An image whose record names the layer since then relies on it.
        self.eviction.evict_unless(&step, || {
            let records = self.images.records().list();
            records.iter().any(|record| plan.is_relied_on(record, key))
        })?;
        Ok(bytes)
    }
}
