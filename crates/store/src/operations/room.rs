//! The reserve of free room: below it nothing is taken, so that what makes room again still works. A database on a full disk cannot even
//! note that something was deleted.

use rustix::fs::statvfs;
use xebec_objects::ObjectsConfig;

use crate::error::{Result, StoreError};
use crate::store::Store;
use xebec_database::DatabaseConfig;

/// Bytes of a blob after which the room is looked at again.
pub(super) const LOOKED_AT: u64 = 1 << 20;

impl Store {
    /// How many bytes the disk of the root directory takes before the reserve is touched.
    pub async fn room(&self) -> u64 {
        self.free().await.saturating_sub(self.inner.config.reserve)
    }

    /// How many bytes are free there; without end, if the system does not say.
    async fn free(&self) -> u64 {
        let root = self.inner.config.root.clone();
        // A disk of the network may take its time.
        let looked = tokio::task::spawn_blocking(move || statvfs(&root)).await;
        match looked {
            Ok(Ok(stat)) => stat.f_bavail.saturating_mul(stat.f_frsize),
            _ => u64::MAX,
        }
    }

    /// Whether objects are on the disk of the root directory.
    pub fn has_objects_in_root(&self) -> bool {
        matches!(self.inner.config.objects, ObjectsConfig::Directory)
    }

    /// Refuses what would touch the reserve. Where neither records nor objects are on this disk, nothing would.
    pub(crate) async fn check_room(&self) -> Result<()> {
        let config = &self.inner.config;
        let is_here = self.has_objects_in_root() || matches!(config.database, DatabaseConfig::Embedded);
        if config.reserve == 0 || !is_here {
            return Ok(());
        }
        let (free, reserve) = (self.free().await, config.reserve);
        match free >= reserve {
            true => Ok(()),
            false => Err(StoreError::Full { free, reserve }),
        }
    }
}
