//! Which layers go first when the cache is too large.

use std::time::SystemTime;

use crate::store::LayerKey;

/// A layer that may go: nothing uses it and it is not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Which layer.
    pub key: LayerKey,
    /// Room that the layer takes on the file system, in bytes: data, index and all other files of its folder.
    pub disk_bytes: u64,
    /// When it was last used.
    pub last_used: SystemTime,
}

/// An order in which layers go.
pub trait Policy: Send + Sync {
    /// Puts those first that are to go first.
    fn rank(&self, residents: &mut [Resident]);
}

/// The longest unused goes first; of equals the larger, which makes more room for one image that must be fetched again.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastRecentlyUsed;

impl Policy for LeastRecentlyUsed {
    fn rank(&self, residents: &mut [Resident]) {
        residents.sort_by_key(|resident| {
            (
                resident.last_used,
                std::cmp::Reverse(resident.disk_bytes),
                resident.key,
            )
        });
    }
}
