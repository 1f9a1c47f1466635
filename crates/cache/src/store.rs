//! The directory of cached layers: `layers/<layer>/<index>/{data,present,durable,unverified,index}`.
//!
//! A layer's data is kept for each (layer, index) pair, so that contents admitted under a weak root of trust are
//! never served to an image that needs a stronger one: the other index is another folder. Folders appear whole
//! and disappear whole: they are made under a temporary name and renamed, and renamed before they are removed.
//!
//! Files that a power cut damaged are made anew when the layer is next used: an index that does not have its digest is
//! replaced by [`Store::add`], a data file of the wrong length by [`Store::open_layer`].

mod held;
mod removal;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use tracing::warn;
use xebec_format::digest::Digest;
use xebec_format::layer::{LayerIndex, SpanTable};

use crate::boot::BootId;
use crate::disk::{Access, Disk, RealDisk};
pub use crate::error::StoreError;
use crate::error::failed;
use crate::key::DATA;
pub use crate::key::LayerKey;
use crate::layer::{CachedLayer, LayerPlace};
use crate::presence::{DURABLE, PRESENT};
use crate::room::Room;
pub use crate::staged::StagedLayer;
use crate::unverified::UNVERIFIED;

/// Folders whose name starts so are unfinished; [`Store::clean`] removes them.
pub(crate) const TEMPORARY: &str = ".new-";
/// Name of the encoded index.
pub(crate) const INDEX: &str = "index";

/// The directory of cached layers.
#[derive(Debug)]
pub struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    directory: PathBuf,
    pub(crate) boot: BootId,
    room: Arc<Room>,
    serial: AtomicU64,
}

impl Store {
    /// Opens the store in `directory`, which is created if need be.
    ///
    /// # Errors
    /// When the directory cannot be made or `/proc` cannot be read.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let boot = BootId::current().map_err(failed("read the boot identity for", directory))?;
        Self::on(Arc::new(RealDisk), directory, boot)
    }

    /// Opens the store in `directory` of a disk, in some boot of its machine.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn on(disk: Arc<dyn Disk>, directory: &Path, boot: BootId) -> Result<Self, StoreError> {
        let make = || -> io::Result<()> {
            if disk.exists(directory) {
                return Ok(());
            }
            disk.create_directories(directory)?;
            match directory.parent() {
                Some(parent) => disk.sync_directory(parent),
                None => Ok(()),
            }
        };
        make().map_err(failed("create", directory))?;
        Ok(Self {
            disk,
            directory: directory.to_owned(),
            boot,
            room: Arc::default(),
            serial: AtomicU64::new(0),
        })
    }

    /// The room on this disk, and how to get some when the disk is full.
    pub fn room(&self) -> &Arc<Room> {
        &self.room
    }

    /// Where the layers are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether the layer is there.
    pub fn contains(&self, key: LayerKey) -> bool {
        self.disk.exists(&self.folder(key).join(INDEX))
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
        let path = self.folder(key).join(INDEX);
        let bytes = self.disk.read(&path).map_err(failed("read", &path))?;
        if Digest::of(&bytes) != key.index {
            return Err(StoreError::Digest(key));
        }
        Ok(bytes)
    }

    /// How many bytes that are, if it is there: a caller that reads many of them may have to ask first.
    pub fn index_size(&self, key: LayerKey) -> Option<u64> {
        std::fs::metadata(self.folder(key).join(INDEX))
            .ok()
            .map(|there| there.len())
    }

    /// Opens a layer, making its folder if it is new. `index` is the encoded index that `key` names.
    ///
    /// A data file that is missing or of the wrong length (a power cut can leave that) is made anew, empty.
    ///
    /// # Errors
    /// I/O errors, and a damaged index.
    pub fn open_layer(&self, key: LayerKey, index: &[u8]) -> Result<CachedLayer, StoreError> {
        let table = SpanTable::decode(index).map_err(|error| StoreError::Index { key, error })?;
        if !self.contains(key) {
            self.add(key, index)?;
        }
        self.open_known(key, table)
    }

    /// The same for a layer whose folder is there. `table` is out of the index that `key` names; that the one on the disk is
    /// that index is not looked at.
    ///
    /// # Errors
    /// I/O errors, also when the folder is not there.
    pub fn open_known(&self, key: LayerKey, table: SpanTable) -> Result<CachedLayer, StoreError> {
        let directory = self.folder(key);
        if !self.contains(key) {
            let error = io::Error::from(io::ErrorKind::NotFound);
            return Err(failed("open the layer in", &directory)(error));
        }
        let size = table.data_size;
        let open = |table| {
            CachedLayer::open(
                LayerPlace {
                    disk: &self.disk,
                    directory: &directory,
                    key,
                    table,
                    boot: self.boot,
                },
                self.room.clone(),
            )
        };
        let damaged = match open(table.clone()) {
            Err(error) if is_damage(&error) => error,
            other => return other.map_err(failed("open the layer in", &directory)),
        };
        warn!("the data of {key} is damaged ({damaged}); Xebec fetches it again");
        self.renew_data(&directory, size)
            .and_then(|()| open(table))
            .map_err(failed("make the data file anew in", &directory))
    }

    /// Puts an empty data file in place of the one that is there. The files that claim pages of the old one are gone, on
    /// disk too, before the new one has its name.
    fn renew_data(&self, directory: &Path, size: u64) -> io::Result<()> {
        let remove = |name: &str| match self.disk.remove_file(&directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        remove(DURABLE)?;
        remove(PRESENT)?;
        self.disk.sync_directory(directory)?;
        // Only now: a claim on the old data must know which of its pages were unverified.
        remove(UNVERIFIED)?;
        let temporary = directory.join(".data");
        let data = self.disk.open(&temporary, Access::Create)?;
        data.set_length(0)?;
        data.set_length(size)?;
        data.sync_data()?;
        self.disk.rename(&temporary, &directory.join(DATA))?;
        self.disk.sync_directory(directory)
    }

    /// Opens a layer that is there to look at it, beside the process that fills it.
    ///
    /// # Errors
    /// I/O errors, and a damaged index.
    pub fn look(&self, key: LayerKey) -> Result<CachedLayer, StoreError> {
        let index = self.index_bytes(key)?;
        let table = SpanTable::decode(&index).map_err(|error| StoreError::Index { key, error })?;
        let directory = self.folder(key);
        CachedLayer::look(LayerPlace {
            disk: &self.disk,
            directory: &directory,
            key,
            table,
            boot: self.boot,
        })
        .map_err(failed("look at the layer in", &directory))
    }

    /// Makes the folder of a layer of which only the index is known. If it is there, nothing happens, except that a
    /// damaged index is replaced. The caller has decoded `index`; only its header is looked at.
    ///
    /// # Errors
    /// I/O errors, and bytes that are no index.
    pub fn add(&self, key: LayerKey, index: &[u8]) -> Result<(), StoreError> {
        match self.add_soon(key, index)? {
            true => self.sync_new(key),
            false => Ok(()),
        }
    }

    /// The same, but nothing that is new is on the disk before [`Store::sync_new`]. False if the layer was there.
    /// Nothing is wrong if the power is cut before: the folder is gone, or damage that heals ([`Store::open_layer`]).
    ///
    /// # Errors
    /// I/O errors, and bytes that are no index.
    pub fn add_soon(&self, key: LayerKey, index: &[u8]) -> Result<bool, StoreError> {
        if self.contains(key) {
            if let Err(error) = self.index_bytes(key) {
                warn!("{error}");
                self.replace_index(key, index)?;
            }
            return Ok(false);
        }
        let data_size = LayerIndex::data_size_of(index).map_err(|error| StoreError::Index { key, error })?;
        let staged = self.stage(&key.layer)?;
        staged.write_file(INDEX, index)?;
        staged.name(key, data_size)
    }

    /// Brings a layer that [`Store::add_soon`] made to the disk, with all names that are in its folder by now. One that was
    /// removed meanwhile is no error. Blocks.
    ///
    /// # Errors
    /// I/O errors.
    pub fn sync_new(&self, key: LayerKey) -> Result<(), StoreError> {
        let folder = self.folder(key);
        let sync = || -> io::Result<()> {
            self.disk.open(&folder.join(INDEX), Access::Read)?.sync_data()?;
            self.disk.sync_directory(&folder)
        };
        let synced = sync().map_err(failed("sync", &folder));
        match synced.and_then(|()| self.sync_name(key)) {
            Err(_) if !self.contains(key) => Ok(()),
            synced => synced,
        }
    }

    /// Makes the name of a layer's folder durable.
    pub(crate) fn sync_name(&self, key: LayerKey) -> Result<(), StoreError> {
        let parent = self.directory.join(key.layer.hex());
        for directory in [parent.as_path(), &self.directory] {
            self.disk
                .sync_directory(directory)
                .map_err(failed("sync", directory))?;
        }
        Ok(())
    }

    fn replace_index(&self, key: LayerKey, index: &[u8]) -> Result<(), StoreError> {
        let directory = self.folder(key);
        let temporary = directory.join(".index");
        let write = || -> io::Result<()> {
            let file = self.disk.open(&temporary, Access::Create)?;
            file.set_length(0)?;
            file.write_all_at(index, 0)?;
            file.sync_data()?;
            self.disk.rename(&temporary, &directory.join(INDEX))?;
            self.disk.sync_directory(&directory)
        };
        write().map_err(failed("replace the index in", &directory))
    }

    pub(crate) fn temporary(&self, prefix: &str, layer: &Digest) -> PathBuf {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}{}-{}-{serial}", layer.short(), std::process::id());
        self.directory.join(name)
    }

    /// The folder of a layer.
    pub fn folder(&self, key: LayerKey) -> PathBuf {
        self.directory.join(key.folder())
    }

    /// The data file of a layer.
    pub fn data_path(&self, key: LayerKey) -> PathBuf {
        key.data_path(&self.directory)
    }

    /// All layers that are there.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn list(&self) -> Result<Vec<LayerKey>, StoreError> {
        let mut keys = Vec::new();
        for layer in self.digests_in(&self.directory)? {
            for index in self.digests_in(&self.directory.join(layer.hex()))? {
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
        let directory = self.directory.join(layer.hex());
        let indexes = self.digests_in(&directory).unwrap_or_default();
        indexes
            .into_iter()
            .map(|index| LayerKey { layer, index })
            .filter(|key| self.contains(*key))
            .collect()
    }

    /// When the layer was last used, as [`Store::touch`] noted it.
    pub fn last_used(&self, key: LayerKey) -> SystemTime {
        let time = self.disk.modified(&self.folder(key).join(INDEX));
        time.unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Notes that the layer is used now: as the time of its index, which is written once and has no other use for
    /// one. It costs no write of its own and survives restarts; after a power cut it may be some seconds older.
    ///
    /// # Errors
    /// When the time cannot be set.
    pub fn touch(&self, key: LayerKey) -> Result<(), StoreError> {
        let path = self.folder(key).join(INDEX);
        self.disk
            .set_modified(&path, SystemTime::now())
            .map_err(failed("set the time of", &path))
    }

    fn digests_in(&self, directory: &Path) -> Result<Vec<Digest>, StoreError> {
        let names = match self.disk.list(directory) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(Vec::new());
            }
            other => other.map_err(failed("read", directory))?,
        };
        Ok(names
            .into_iter()
            .filter_map(|name| format!("sha256:{name}").parse().ok())
            .collect())
    }
}

/// Whether a layer's data file is not there as the index says, and never will be by itself.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
        let half_removed = make(".old-0123456789ab-4194999-0");
        store.clean();
        assert!(of_living.exists() && !of_dead.exists() && !of_nobody.exists());
        assert!(!half_removed.exists());
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

    fn key(layer: &[u8], index: &[u8]) -> LayerKey {
        LayerKey {
            layer: Digest::of(layer),
            index: Digest::of(index),
        }
    }

    /// Makes a folder with a file of that name in it.
    fn make(store: &Store, key: LayerKey, name: &str) {
        fs::create_dir_all(store.folder(key)).unwrap();
        fs::write(store.folder(key).join(name), b"bytes").unwrap();
    }

    #[test]
    fn a_store_lists_layers_with_an_index_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (one, other, alone) = (key(b"1", b"a"), key(b"1", b"b"), key(b"2", b"a"));
        for key in [one, other, alone] {
            make(&store, key, INDEX);
        }
        let torn = key(b"1", b"c");
        make(&store, torn, DATA);
        fs::write(dir.path().join("notes"), b"").unwrap();
        // Of the name of a layer, but a file.
        fs::write(dir.path().join(Digest::of(b"3").hex()), b"").unwrap();
        let mut all = vec![one, other, alone];
        all.sort();
        assert_eq!(store.list().unwrap(), all);
        let mut indexes = store.indexes_of(one.layer);
        indexes.sort();
        all.retain(|key| key.layer == one.layer);
        assert_eq!(indexes, all);
        assert_eq!(store.indexes_of(Digest::of(b"4")), []);
        assert_eq!((store.index_size(one), store.index_size(torn)), (Some(5), None));
        store.clean();
        assert!(!store.folder(torn).exists(), "it has no index");
        assert!(store.contains(one) && store.contains(other));
        store.remove(alone).unwrap();
        assert!(!dir.path().join(alone.layer.hex()).exists());
        store.remove(one).unwrap();
        assert_eq!(store.list().unwrap(), [other]);
    }

    /// An answer that there are no layers would let their pages be counted as nobody's.
    #[test]
    fn a_store_that_cannot_be_read_is_not_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("layers")).unwrap();
        fs::remove_dir(dir.path().join("layers")).unwrap();
        assert_eq!(store.list().unwrap(), []);
        std::os::unix::fs::symlink("layers", dir.path().join("layers")).unwrap();
        let error = store.list().unwrap_err();
        assert!(error.to_string().starts_with("read "), "{error}");
    }

    #[test]
    fn the_use_of_a_layer_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let key = key(b"1", b"a");
        assert_eq!(store.last_used(key), SystemTime::UNIX_EPOCH);
        assert!(store.touch(key).is_err(), "it is not there");
        make(&store, key, INDEX);
        let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1000);
        let index = store.folder(key).join(INDEX);
        RealDisk.set_modified(&index, long_ago).unwrap();
        assert_eq!(store.last_used(key), long_ago);
        let before = SystemTime::now();
        store.touch(key).unwrap();
        assert!(store.last_used(key) >= before);
    }

    #[test]
    fn an_index_of_another_digest_is_not_given() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let right = key(b"1", b"bytes");
        make(&store, right, INDEX);
        assert_eq!(store.index_bytes(right).unwrap(), b"bytes");
        let wrong = key(b"1", b"other bytes");
        make(&store, wrong, INDEX);
        let error = store.index_bytes(wrong).unwrap_err();
        assert!(
            matches!(error, StoreError::Digest(key) if key == wrong),
            "{error}"
        );
        assert!(matches!(
            store.index_bytes(key(b"2", b"bytes")),
            Err(StoreError::Io { .. })
        ));
        assert!(!store.is_complete(right), "it is no index at all");
    }
}
