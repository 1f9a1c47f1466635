//! What eviction needs beyond the cache itself.

use std::sync::{Mutex, RwLock};

/// What eviction needs beyond the cache itself.
#[derive(Default)]
pub(crate) struct EvictionLocks {
    /// One collection at a time.
    pub(crate) collecting: Mutex<()>,
    /// Held for reading while a view is written but not yet mounted.
    pub(crate) building: RwLock<()>,
    /// Whether it was said already that the limit cannot be kept.
    pub(crate) is_over: Mutex<bool>,
}
