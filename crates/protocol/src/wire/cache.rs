//! Reports about the cache: its layers, layers that were evicted, and images that were forgotten.

use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use xebec_cache::policy::Resident;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;

/// The result of an eviction, or of a dry run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Collected {
    /// Whether it was a dry run, which evicts nothing.
    pub dry_run: bool,
    /// The size that the cache was to be brought down to, in bytes, if any.
    pub limit: Option<u64>,
    /// Its size before, in bytes, after leftovers were removed.
    pub used_before: u64,
    /// Its size now, in bytes.
    pub used_after: u64,
    /// The size of metadata of views that nothing used, in bytes.
    pub leftover_bytes: u64,
    /// The excess that remains, in bytes, because the rest is in use or pinned.
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
    /// The reason, if it stayed after all.
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
    /// The size of these layers, in bytes.
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
    /// Its size on the file system, in bytes: data, index and the other files that are kept with them.
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

    /// The facts about it that a policy needs.
    pub fn resident(&self) -> Resident {
        Resident {
            key: self.key(),
            disk_bytes: self.disk_bytes,
            last_used: UNIX_EPOCH + Duration::from_secs(self.last_used),
        }
    }
}

/// The size of the cache, and the part of it that may go.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CacheReport {
    /// How much it may take, in bytes; no limit of its own when absent.
    pub limit: Option<u64>,
    /// Its size, in bytes: layers, records of images, metadata of views, and bytes that are just arriving.
    pub used_bytes: u64,
    /// The size of the part that may go, in bytes: layers that nobody uses and that are not pinned.
    pub evictable_bytes: u64,
    /// The layers.
    pub layers: Vec<CachedLayerInfo>,
}
