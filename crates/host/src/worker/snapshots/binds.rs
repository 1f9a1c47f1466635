//! Views and directories bound once more, for containers whose ids are mapped.

use std::path::Path;

use tracing::warn;
use xebec_kernel::mount;
use xebec_snapshotter::{Binder, ErrorKind, SnapshotError};

use super::lazy::Layers;
use crate::file::is_same;
use crate::paths::Paths;

impl Binder for Layers {
    fn bind(&self, from: &Path, at: &Path) -> Result<(), SnapshotError> {
        if is_same(from, at) {
            return Ok(());
        }
        // Of an earlier view of the same layers.
        self.unbind(at);
        mount::bind_private(from, at).map_err(|error| SnapshotError::new(ErrorKind::Internal, error))
    }

    fn unbind(&self, at: &Path) {
        // Once for each time that it was mounted, one on the other.
        while mount::is_mounted(at).unwrap_or(false) {
            if let Err(error) = mount::unmount_lazily(at) {
                return warn!("{error}");
            }
        }
    }
}

/// Takes away all that is bound for snapshots: views are to go under their users.
pub(in crate::worker) fn unbind_all(paths: &Paths) {
    let top = paths.snapshots();
    let mounts = mount::mounts().unwrap_or_else(|error| {
        warn!("{error}");
        Vec::new()
    });
    for mount in mounts.iter().rev().filter(|mount| mount.target.starts_with(&top)) {
        if let Err(error) = mount::unmount_lazily(&mount.target) {
            warn!("{error}");
            continue;
        }
        // Who still mounts what is below a container shall not find it empty.
        let _ = std::fs::remove_dir(&mount.target);
    }
}
