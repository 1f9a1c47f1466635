//! Whether views are being built. While one is, nobody removes metadata of views, and the daemon does not end.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Whether views are being built.
#[derive(Default)]
pub(crate) struct Building(RwLock<()>);

impl Building {
    /// A view is being built until the guard goes: it is written, and not mounted yet.
    pub(crate) fn begin(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read()
    }

    /// Waits until no view is being built. No other is begun until the guard goes.
    pub(crate) fn stop(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write()
    }

    /// The same, if no view is being built now.
    pub(crate) fn stop_if_none(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.0.try_write()
    }
}
