//! What became of the cache: layers that went, images that were forgotten.

use serde::{Deserialize, Serialize};
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
