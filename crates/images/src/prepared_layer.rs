//! A layer with the index by which it is used.

use std::sync::Arc;

use xebec_cache::store::LayerKey;
use xebec_format::layer::LayerIndex;
use xebec_trust::Root;

use crate::budget::Account;

/// A layer with the index by which it is used.
#[derive(Clone)]
pub struct PreparedLayer {
    /// Which layer, which index.
    pub key: LayerKey,
    /// The index.
    pub index: Arc<LayerIndex>,
    /// The root of trust by which it was admitted.
    pub root: Root,
    /// Whether it had to be read whole just now.
    pub read_whole: bool,
    /// The index's content digests where they are at hand, else empty.
    pub contents: Arc<Vec<u8>>,
    /// By which it is counted that the index is held.
    _account: Arc<Account>,
}

impl PreparedLayer {
    pub(crate) fn new(
        key: LayerKey,
        index: impl Into<Arc<LayerIndex>>,
        root: Root,
        read_whole: bool,
        account: &Arc<Account>,
    ) -> Self {
        Self {
            key,
            index: index.into(),
            root,
            read_whole,
            contents: Arc::default(),
            _account: account.clone(),
        }
    }
}
