//! Whether a layer can be lazy, and if not, why and what to do.

use xebec_format::layer::LayerIndex;
use xebec_index::indexer::Laziness;

/// Layers below this size take a request each way or another: reading one whole takes as long as finding its index. Whether an image
/// may start at all under `--require-lazy` does not depend on it.
pub const SMALL_LAYER: u64 = 1 << 20;

/// Whether a layer is so small that reading it whole is not worth speaking of.
pub fn is_small(size: u64) -> bool {
    size < SMALL_LAYER
}

/// Why a layer cannot be lazy although it is indexed, and what to do; `None` when it can.
pub fn why_not(index: &LayerIndex) -> Option<String> {
    match Laziness::of(index) {
        Laziness::Lazy => None,
        Laziness::NotLazy { reason } => Some(reason),
    }
}
