//! Layers go: those that nothing uses, and what a process that died has left.

use xebec_kernel::process::is_alive;

use super::{Store, StoreError, TEMPORARY};
use crate::error::failed;
use crate::key::LayerKey;

/// Folders whose name starts so are on their way out; [`Store::clean`] removes them too.
const REMOVED: &str = ".old-";

impl Store {
    /// Removes a layer that nothing uses: nobody may have its data file open.
    ///
    /// The folder loses its name first, so a process that dies on the way leaves no half layer.
    ///
    /// # Errors
    /// I/O errors; [`Store::clean`] then removes what is left.
    pub fn remove(&self, key: LayerKey) -> Result<(), StoreError> {
        let directory = self.folder(key);
        let removed = self.temporary(REMOVED, &key.layer);
        self.disk
            .rename(&directory, &removed)
            .map_err(failed("rename to remove", &directory))?;
        let parent = self.directory.join(key.layer.hex());
        self.disk
            .sync_directory(&parent)
            .map_err(failed("sync", &parent))?;
        self.disk
            .remove_all(&removed)
            .map_err(failed("remove", &removed))?;
        // Fails while other indexes of the layer are there, as it should.
        let _ = self.disk.remove_directory(&parent);
        Ok(())
    }

    /// Removes what processes left that died before they were done, and folders that a power cut left without an
    /// index. Folders of living ones stay: commands fill layers beside the daemon.
    pub fn clean(&self) {
        for name in self.disk.list(&self.directory).unwrap_or_default() {
            let stripped = [TEMPORARY, REMOVED]
                .iter()
                .find_map(|prefix| name.strip_prefix(prefix));
            let Some(rest) = stripped else { continue };
            let owner = rest.split('-').nth(1).and_then(|pid| pid.parse::<u32>().ok());
            // Of this process's own none is under way yet: it cleans before it begins.
            if !owner.is_some_and(|pid| pid != std::process::id() && is_alive(pid)) {
                let _ = self.disk.remove_all(&self.directory.join(name));
            }
        }
        for layer in self.digests_in(&self.directory).unwrap_or_default() {
            let parent = self.directory.join(layer.hex());
            for index in self.digests_in(&parent).unwrap_or_default() {
                let key = LayerKey { layer, index };
                if !self.contains(key) {
                    let _ = self.disk.remove_all(&self.folder(key));
                }
            }
            // Fails while the layer has indexes, as it should.
            let _ = self.disk.remove_directory(&parent);
        }
    }
}
