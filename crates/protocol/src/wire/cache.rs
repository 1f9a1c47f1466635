//! What is in the cache, and what became of it: layers that went, images that were forgotten.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use xebec_cache::policy::Resident;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;

/// What was evicted, or would be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Collected {
    /// Whether this is only what would be.
    pub dry_run: bool,
    /// What the cache was to be brought down to, in bytes, if anything.
    pub limit: Option<u64>,
    /// What it took before, in bytes, after leftovers were removed.
    pub used_before: u64,
    /// What it takes now.
    pub used_after: u64,
    /// What metadata of views took that nothing used.
    pub leftover_bytes: u64,
    /// What is still too much, because the rest is in use or pinned.
    pub missing_bytes: u64,
    /// The layers, in the order in which they went.
    pub layers: Vec<CollectedLayer>,
}

/// A layer that went, or part of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CollectedLayer {
    /// The layer blob.
    pub layer: Digest,
    /// Its index.
    pub index: Digest,
    /// How much was freed, in bytes.
    pub bytes: u64,
    /// Pages that were punched; all of the layer went, its index too, when absent.
    pub punched_pages: Option<u64>,
    /// Why it stayed after all.
    pub kept: Option<String>,
}

/// An image that was forgotten, or lost a name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Forgotten {
    /// As it was named.
    pub reference: String,
    /// Its manifest.
    pub manifest: Digest,
    /// Names that it still has; it is forgotten when there are none.
    pub left: Vec<String>,
    /// Layers that were removed.
    pub removed_layers: u64,
    /// What they took, in bytes.
    pub removed_bytes: u64,
    /// Layers that stayed although no other image refers to them, and why.
    pub kept: Vec<String>,
}

/// A layer in the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CachedLayerInfo {
    /// The layer blob.
    pub layer: Digest,
    /// Its index.
    pub index: Digest,
    /// Pages of the data space.
    pub pages: u64,
    /// Pages that are present.
    pub present_pages: u64,
    /// What it takes on the file system, in bytes: data, index and what else is kept with them.
    pub disk_bytes: u64,
    /// Whether this host proved the index.
    pub proven: bool,
    /// When it was last used, in seconds since 1970.
    pub last_used: u64,
    /// The pinned image that it is of, if there is one.
    pub pinned_by: Option<String>,
    /// Its user, if it has one.
    pub in_use_by: Option<String>,
}

impl CachedLayerInfo {
    /// The layer's key in the store.
    pub fn key(&self) -> LayerKey {
        LayerKey {
            layer: self.layer,
            index: self.index,
        }
    }

    /// Whether it may go.
    pub fn is_evictable(&self) -> bool {
        self.pinned_by.is_none() && self.in_use_by.is_none()
    }

    /// What a policy needs to know of it.
    pub fn resident(&self) -> Resident {
        Resident {
            key: self.key(),
            disk_bytes: self.disk_bytes,
            last_used: UNIX_EPOCH + Duration::from_secs(self.last_used),
        }
    }
}

/// What the cache takes, and what of it may go.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CacheReport {
    /// How much it may take, in bytes; no limit of its own when absent.
    pub limit: Option<u64>,
    /// What it takes, in bytes: layers, records of images, metadata of views, and what is just arriving.
    pub used_bytes: u64,
    /// What of it may go, in bytes: layers that nobody uses and that are not pinned.
    pub evictable_bytes: u64,
    /// The layers.
    pub layers: Vec<CachedLayerInfo>,
}
