//! A view that is held.

use std::path::PathBuf;
use std::sync::Arc;

use xebec_fill::served::ServedLayer;
use xebec_views::view_tree::ViewTree;

/// A view that is held.
pub(crate) struct HeldView {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The layers that it reads, each once.
    pub(crate) layers: Vec<Arc<ServedLayer>>,
    pub(crate) tree: ViewTree,
    /// Whether it was mounted before, so that others may have read it.
    pub(crate) was_mounted: bool,
    /// How long it took to build it, in milliseconds; 0 if it was mounted.
    pub(crate) built_ms: f64,
}
