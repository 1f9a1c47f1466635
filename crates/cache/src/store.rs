//! The directory of cached layers: `layers/<layer>/<index>/{data,present,index}`.
//!
//! A layer's data is kept for each (layer, index) pair, so that contents admitted under a weak root of trust are
//! never served to an image that needs a stronger one: the other index is another folder. Folders appear whole:
//! they are made under a temporary name and renamed.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use xebec_format::digest::Digest;
use xebec_format::layer::{DecodeError, LayerIndex, SpanTable};

use crate::layer::CachedLayer;
use crate::presence::BootId;

/// Folders whose name starts so are unfinished; [`Store::clean`] removes them.
const TEMPORARY: &str = ".new-";

/// A layer as one index describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerKey {
    /// Digest of the layer blob.
    pub layer: Digest,
    /// Digest of the encoded index.
    pub index: Digest,
}

impl LayerKey {
    /// The layer's folder below the store's: `<layer>/<index>`, in hexadecimal digits.
    pub fn folder(&self) -> PathBuf {
        Path::new(&self.layer.hex()).join(self.index.hex())
    }
}

impl fmt::Display for LayerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "layer {} by index {}", self.layer.short(), self.index.short())
    }
}

/// What went wrong in the store, and with which layer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file could not be read or written.
    #[error("{what} {path}: {error}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// To which file.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// A stored index is damaged.
    #[error("the index of {key} in the cache is damaged ({error}); it will be fetched again")]
    Index {
        /// Whose index.
        key: LayerKey,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// A stored index is not the one its folder names.
    #[error("the index of {0} in the cache does not have that digest; it will be fetched again")]
    Digest(LayerKey),
}

/// The directory of cached layers.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    boot: BootId,
    serial: AtomicU64,
}

impl Store {
    /// Opens the store in `directory`, which is created if need be.
    ///
    /// # Errors
    /// When the directory cannot be made or `/proc` cannot be read.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        fs::create_dir_all(directory).map_err(failed("create", directory))?;
        let boot = BootId::current().map_err(failed("read the boot identity for", directory))?;
        Ok(Self {
            directory: directory.to_owned(),
            boot,
            serial: AtomicU64::new(0),
        })
    }

    /// Where the layers are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the layer is there.
    pub fn contains(&self, key: LayerKey) -> bool {
        self.directory.join(key.folder()).join("index").is_file()
    }

    /// Whether all of a layer's data is there; `false` too when it cannot be told.
    pub fn is_complete(&self, key: LayerKey) -> bool {
        self.look(key).is_ok_and(|layer| layer.is_complete())
    }

    /// The encoded index of a layer that is there, its digest checked.
    ///
    /// # Errors
    /// When it cannot be read, or is not what its folder's name says.
    pub fn index_bytes(&self, key: LayerKey) -> Result<Vec<u8>, StoreError> {
        let path = self.directory.join(key.folder()).join("index");
        let bytes = fs::read(&path).map_err(failed("read", &path))?;
        if Digest::of(&bytes) != key.index {
            return Err(StoreError::Digest(key));
        }
        Ok(bytes)
    }

    /// Opens a layer, making its folder if it is new. `index` is the encoded index that `key` names.
    ///
    /// # Errors
    /// I/O errors, and a damaged index.
    pub fn open_layer(&self, key: LayerKey, index: &[u8]) -> Result<CachedLayer, StoreError> {
        let table = SpanTable::decode(index).map_err(|error| StoreError::Index { key, error })?;
        let directory = self.directory.join(key.folder());
        if !self.contains(key) {
            self.add(key, index)?;
        }
        CachedLayer::open(&directory, key, table, self.boot).map_err(failed("open the layer in", &directory))
    }

    /// Opens a layer that is there to look at it, beside the process that fills it.
    ///
    /// # Errors
    /// I/O errors, and a damaged index.
    pub fn look(&self, key: LayerKey) -> Result<CachedLayer, StoreError> {
        let index = self.index_bytes(key)?;
        let table = SpanTable::decode(&index).map_err(|error| StoreError::Index { key, error })?;
        let directory = self.directory.join(key.folder());
        CachedLayer::look(&directory, key, table, self.boot)
            .map_err(failed("look at the layer in", &directory))
    }

    /// Makes the folder of a layer of which only the index is known. Does nothing if it is there.
    ///
    /// # Errors
    /// I/O errors, and a damaged index.
    pub fn add(&self, key: LayerKey, index: &[u8]) -> Result<(), StoreError> {
        if self.contains(key) {
            return Ok(());
        }
        let table = SpanTable::decode(index).map_err(|error| StoreError::Index { key, error })?;
        let staged = self.stage(&key.layer)?;
        staged.keep_file("index", index)?;
        staged.publish(key, table.data_size)
    }

    /// A new folder for a layer, under a temporary name.
    ///
    /// # Errors
    /// I/O errors.
    pub fn stage(&self, layer: &Digest) -> Result<StagedLayer<'_>, StoreError> {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let name = format!("{TEMPORARY}{}-{}-{serial}", layer.short(), std::process::id());
        let directory = self.directory.join(name);
        fs::create_dir_all(&directory).map_err(failed("create", &directory))?;
        let data = directory.join("data");
        let data = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&data)
            .map_err(failed("create", &data))?;
        Ok(StagedLayer {
            store: self,
            directory,
            data: Some(data),
        })
    }

    /// All layers that are there.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn list(&self) -> Result<Vec<LayerKey>, StoreError> {
        let mut keys = Vec::new();
        for layer in read_digests(&self.directory)? {
            for index in read_digests(&self.directory.join(layer.hex()))? {
                let key = LayerKey { layer, index };
                if self.contains(key) {
                    keys.push(key);
                }
            }
        }
        keys.sort();
        Ok(keys)
    }

    /// The indexes by which a layer is in the store.
    pub fn indexes_of(&self, layer: Digest) -> Vec<LayerKey> {
        let indexes = read_digests(&self.directory.join(layer.hex())).unwrap_or_default();
        indexes
            .into_iter()
            .map(|index| LayerKey { layer, index })
            .filter(|key| self.contains(*key))
            .collect()
    }

    /// Removes a layer that nothing uses.
    ///
    /// # Errors
    /// I/O errors.
    pub fn remove(&self, key: LayerKey) -> Result<(), StoreError> {
        let directory = self.directory.join(key.folder());
        // The index goes first: without it the folder is not a layer, so a crash half-way leaves no half layer.
        let index = directory.join("index");
        fs::remove_file(&index).map_err(failed("remove", &index))?;
        fs::remove_dir_all(&directory).map_err(failed("remove", &directory))?;
        if let Some(parent) = directory.parent() {
            // Fails while other indexes of the layer are there, as it should.
            let _ = fs::remove_dir(parent);
        }
        Ok(())
    }

    /// Removes what processes left that died before they were done. Folders of living ones stay: commands fill
    /// layers beside the daemon.
    pub fn clean(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY)) else {
                continue;
            };
            let owner = rest.split('-').nth(1).and_then(|pid| pid.parse::<u32>().ok());
            let is_alive = |pid: u32| Path::new("/proc").join(pid.to_string()).exists();
            // Of this process's own none is under way yet: it cleans before it begins.
            if !owner.is_some_and(|pid| pid != std::process::id() && is_alive(pid)) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// A layer's folder under its temporary name; dropped without [`StagedLayer::publish`] it disappears.
#[derive(Debug)]
pub struct StagedLayer<'a> {
    store: &'a Store,
    directory: PathBuf,
    data: Option<File>,
}

impl StagedLayer<'_> {
    /// A descriptor of the data file.
    ///
    /// # Errors
    /// When it cannot be duplicated.
    pub fn data(&self) -> io::Result<File> {
        match &self.data {
            Some(file) => file.try_clone(),
            None => Err(io::Error::other("the layer is published already")),
        }
    }

    /// Writes a further file of the layer.
    ///
    /// # Errors
    /// I/O errors.
    pub fn keep_file(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.directory.join(name);
        let write = || -> io::Result<()> {
            let mut file = File::create(&path)?;
            file.write_all(bytes)?;
            file.sync_data()
        };
        write().map_err(failed("write", &path))
    }

    /// Claims the whole data space as present; its bytes must have been written and verified.
    ///
    /// # Errors
    /// I/O errors.
    pub fn claim_all(&self, index: &LayerIndex) -> Result<(), StoreError> {
        let path = self.directory.join("present");
        let claim = || -> io::Result<()> {
            let pages = index.data_size / xebec_format::PAGE_SIZE;
            let presence = crate::presence::Presence::open(&path, pages, self.store.boot)?;
            presence.claim(0..pages)
        };
        claim().map_err(failed("write", &path))
    }

    /// Gives the folder its final name. If the layer is there already, that one stays and this one goes.
    ///
    /// # Errors
    /// I/O errors.
    pub fn publish(mut self, key: LayerKey, data_size: u64) -> Result<(), StoreError> {
        if let Some(data) = self.data.take() {
            // Here and never again: a data file that readers may have open is not cut.
            data.set_len(data_size)
                .map_err(failed("size the data file in", &self.directory))?;
        }
        let target = self.store.directory.join(key.folder());
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(failed("create", parent))?;
        }
        if !self.store.contains(key) && target.exists() {
            fs::remove_dir_all(&target).map_err(failed("remove what was left in", &target))?;
        }
        match fs::rename(&self.directory, &target) {
            Err(_) if self.store.contains(key) => Ok(()),
            other => other.map_err(failed("rename a new layer to", &target)),
        }
    }
}

impl Drop for StagedLayer<'_> {
    fn drop(&mut self) {
        if self.directory.exists() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

fn read_digests(directory: &Path) -> Result<Vec<Digest>, StoreError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed("read", directory))?,
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names
        .filter_map(|name| format!("sha256:{name}").parse().ok())
        .collect())
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |error| StoreError::Io { what, path, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_spares_what_a_living_process_is_making() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let make = |name: &str| {
            let path = dir.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let of_living = make(".new-0123456789ab-1-0");
        // Process ids end at 2^22 on Linux.
        let of_dead = make(".new-0123456789ab-4194999-0");
        let of_nobody = make(".new-junk");
        store.clean();
        assert!(of_living.exists() && !of_dead.exists() && !of_nobody.exists());
    }

    #[test]
    fn what_is_not_published_disappears() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let staged = store.stage(&Digest::of(b"layer")).unwrap();
        staged.keep_file("index", b"x").unwrap();
        drop(staged);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(store.list().unwrap().is_empty());
    }
}
