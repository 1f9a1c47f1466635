//! Room on a full disk: whoever knows what may go is asked to evict, once, before a write fails.

use std::sync::{Arc, OnceLock};

/// Makes room on the cache's file system.
pub trait MakeRoom: Send + Sync {
    /// Frees at least `bytes` if it can; false when nothing could be freed. May be called from several threads at
    /// once, which may hold layers that are being filled.
    fn make_room(&self, bytes: u64) -> bool;
}

/// Where a store's writers find who makes room, if anybody does.
#[derive(Default)]
pub struct Room {
    maker: OnceLock<Arc<dyn MakeRoom>>,
}

impl Room {
    /// Names who makes room; the first to be named stays.
    pub fn set(&self, maker: Arc<dyn MakeRoom>) {
        let _ = self.maker.set(maker);
    }

    /// Asks for room. False when nobody can make any.
    pub fn make(&self, bytes: u64) -> bool {
        self.maker.get().is_some_and(|maker| maker.make_room(bytes))
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").finish_non_exhaustive()
    }
}
