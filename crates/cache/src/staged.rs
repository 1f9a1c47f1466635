//! A layer's folder while it is being made: under a temporary name, until everything in it is on disk.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::layer::LayerIndex;

use crate::disk::{Access, DiskFile};
use crate::error::{StoreError, failed};
use crate::key::{DATA, LayerKey};
use crate::presence::Presence;
use crate::store::{Store, TEMPORARY};

/// A layer's folder under its temporary name; dropped without [`StagedLayer::publish`] it disappears.
#[derive(Debug)]
pub struct StagedLayer<'a> {
    store: &'a Store,
    directory: PathBuf,
    data: Arc<dyn DiskFile>,
    published: bool,
}

impl Store {
    /// A new folder for a layer, under a temporary name.
    ///
    /// # Errors
    /// I/O errors.
    pub fn stage(&self, layer: &Digest) -> Result<StagedLayer<'_>, StoreError> {
        let directory = self.temporary(TEMPORARY, layer);
        StagedLayer::begin(self, directory)
    }
}

impl<'a> StagedLayer<'a> {
    /// Makes the folder.
    pub(crate) fn begin(store: &'a Store, directory: PathBuf) -> Result<Self, StoreError> {
        let disk = &store.disk;
        disk.create_directories(&directory)
            .map_err(failed("create", &directory))?;
        let path = directory.join(DATA);
        let data = disk
            .open(&path, Access::Create)
            .map_err(failed("create", &path))?;
        Ok(Self {
            store,
            directory,
            data,
            published: false,
        })
    }

    /// The data file.
    pub fn data(&self) -> &Arc<dyn DiskFile> {
        &self.data
    }

    /// Writes a further file of the layer.
    ///
    /// # Errors
    /// I/O errors.
    pub fn keep_file(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let file = self.write_file(name, bytes)?;
        file.sync_data()
            .map_err(failed("write", &self.directory.join(name)))
    }

    /// The same, not yet on the disk.
    pub(crate) fn write_file(&self, name: &str, bytes: &[u8]) -> Result<Arc<dyn DiskFile>, StoreError> {
        let path = self.directory.join(name);
        let write = || -> io::Result<_> {
            let file = self.store.disk.open(&path, Access::Create)?;
            file.set_length(0)?;
            file.write_all_at(bytes, 0)?;
            Ok(file)
        };
        write().map_err(failed("write", &path))
    }

    /// Claims the whole data space as present in this boot; its bytes must have been written and verified.
    ///
    /// # Errors
    /// I/O errors.
    pub fn claim_all(&self, index: &LayerIndex) -> Result<(), StoreError> {
        let claim = || -> io::Result<()> {
            let pages = index.data_size / PAGE_SIZE;
            let disk = self.store.disk.clone();
            Presence::open(disk, &self.directory, pages, self.store.boot)?.claim(0..pages)
        };
        claim().map_err(failed("claim the pages in", &self.directory))
    }

    /// Gives the folder its final name, durably. If the layer is there already, that one stays and this one goes.
    ///
    /// # Errors
    /// I/O errors.
    pub fn publish(self, key: LayerKey, data_size: u64) -> Result<(), StoreError> {
        let store = self.store;
        store
            .disk
            .sync_directory(&self.directory)
            .map_err(failed("finish the folder", &self.directory))?;
        match self.name(key, data_size)? {
            true => store.sync_name(key),
            false => Ok(()),
        }
    }

    /// Gives the folder its final name, not yet on the disk. False if the layer was there already.
    pub(crate) fn name(mut self, key: LayerKey, data_size: u64) -> Result<bool, StoreError> {
        let disk = &self.store.disk;
        // Here and never again: a data file that readers may have open is not cut.
        self.data
            .set_length(data_size)
            .map_err(failed("finish the folder", &self.directory))?;
        let target = self.store.folder(key);
        let parent = self.store.directory().join(key.layer.hex());
        disk.create_directories(&parent)
            .map_err(failed("create", &parent))?;
        if !self.store.contains(key) && disk.exists(&target) {
            disk.remove_all(&target)
                .map_err(failed("remove what was left in", &target))?;
        }
        match disk.rename(&self.directory, &target) {
            Err(_) if self.store.contains(key) => return Ok(false),
            other => other.map_err(failed("rename a new layer to", &target))?,
        }
        self.published = true;
        Ok(true)
    }
}

impl Drop for StagedLayer<'_> {
    fn drop(&mut self) {
        if !self.published {
            let _ = self.store.disk.remove_all(&self.directory);
        }
    }
}
