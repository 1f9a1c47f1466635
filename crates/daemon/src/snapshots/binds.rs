//! Views and directories bound once more, for containers whose ids are mapped.

use std::path::Path;

use tracing::warn;
use xebec_kernel::file::is_same;
use xebec_kernel::mount::{self, Top};
use xebec_snapshotter::{Binder, ErrorKind, SnapshotError};

use super::lazy::Layers;
use crate::snapshot_binds::is_view_or_uppers;

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
        while let Ok(Some(top)) = Top::at(at) {
            if !is_view_or_uppers(&top, at) {
                return warn!(
                    "Xebec did not mount what is at {}, and leaves it alone",
                    at.display()
                );
            }
            if let Err(error) = top.detach() {
                return warn!("{error}");
            }
        }
    }
}
