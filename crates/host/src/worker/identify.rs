//! Which layer a file of the guarded mount belongs to, and which layers anybody can be reading: the questions behind an
//! event whose file no view is known to use.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use tracing::error;
use xebec_cache::layer::FileIdentity;
use xebec_cache::store::LayerKey;
use xebec_kernel::lease::Lease;

use crate::failure::Failure;
use crate::worker::fills::FillService;
use crate::worker::served::ServedLayer;

impl FillService {
    /// The layer whose data file this is, if it is one's.
    pub(super) fn lookup(&self, identity: FileIdentity) -> Option<Arc<ServedLayer>> {
        let served = {
            let layers = self
                .layers
                .read()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            layers.get(&identity).cloned()
        };
        served.or_else(|| self.adopt(identity))
    }

    /// A data file that no view is known to use: a view whose record was lost, or somebody who reads the guarded
    /// directory by hand. It is served all the same.
    fn adopt(&self, identity: FileIdentity) -> Option<Arc<ServedLayer>> {
        let keys = self.store.list().unwrap_or_default();
        let is_it = |key: &LayerKey| {
            let path = self.store.directory().join(key.folder()).join("data");
            file_identity(&path) == Some(identity)
        };
        let key = keys.into_iter().find(is_it)?;
        self.serve(key, None).inspect_err(|error| error!("{error}")).ok()
    }

    /// Whether a file is one that a layer's folder has beside its data.
    pub(super) fn is_side_file(&self, identity: FileIdentity) -> bool {
        let keys = self.store.list().unwrap_or_default();
        let folders = keys.into_iter().map(|key| self.store.folder(key));
        let files = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
        files
            .filter(|entry| entry.file_name() != "data")
            .any(|entry| file_identity(&entry.path()) == Some(identity))
    }

    /// Layers that are not served, not complete, and still open somewhere: by a view that was unmounted under its
    /// readers, or whose record was lost.
    ///
    /// # Errors
    /// When it cannot be told.
    pub fn read_unserved(&self) -> Result<Vec<LayerKey>, Failure> {
        let mut read = Vec::new();
        for key in self.store.list()? {
            if self.find(key).is_none() && self.is_open(key)? {
                read.push(key);
            }
        }
        Ok(read)
    }

    /// Whether anybody has the data of an incomplete layer open: a view, a reader, or this process, which serves it.
    ///
    /// # Errors
    /// When it cannot be told.
    pub(super) fn is_open(&self, key: LayerKey) -> Result<bool, Failure> {
        if self.store.is_complete(key) {
            return Ok(false);
        }
        let path = self.store.folder(key).join("data");
        let told = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .and_then(|data| Ok(Lease::take(data.as_fd())?.is_none()));
        match told {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            told => told.map_err(|error| Failure::host(format!("look who reads {}", path.display()), error)),
        }
    }

    /// Every layer that an event of an unknown file can be of.
    pub(super) fn candidates(&self) -> Result<Vec<Arc<ServedLayer>>, Failure> {
        for key in self.read_unserved()? {
            self.serve(key, None)?;
        }
        Ok(self.all())
    }
}

fn file_identity(path: &Path) -> Option<FileIdentity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
    })
}
