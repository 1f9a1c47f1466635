//! The evidence for the unverified pages of a layer, which runtime images brought: `injected.json` in the layer's folder.
//!
//! It is written before the first such page, and removed once all were compared. If it is lost or damaged, nothing vouches for
//! the pages, and they are compared before the layer is used again. It is on the disk before such a page counts after a power cut
//! ([`sync`]), not before it is written: a start does not wait for the disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use xebec_cache::store::{LayerKey, Store};
use xebec_format::digest::Digest;
use xebec_kernel::file::{sync_files, write_atomically, write_for_this_boot};
use xebec_protocol::failure::Failure;

use xebec_trust::Evidence;

/// Name of the file.
const FILE: &str = "injected.json";

/// A recording that brought pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// The recording, by the name under which the host keeps it.
    pub recording: Digest,
    /// The evidence for it.
    pub evidence: Evidence,
}

/// One reader or writer of these files at a time; only the worker has any to do with them.
static FILES: Mutex<()> = Mutex::new(());

/// Which recordings brought pages of a layer; `None` if that is unknown.
pub fn load(store: &Store, key: LayerKey) -> Option<Vec<Injection>> {
    let _one = FILES.lock();
    read(&path(store, key)).ok()
}

/// Adds a recording that is about to bring pages into these layers. `has_unverified` says whether a layer has pages that
/// runtime images brought and nobody compared.
///
/// # Errors
/// When a file cannot be read or written; the recording must then bring nothing.
pub fn add(
    store: &Store,
    keys: &[LayerKey],
    injection: &Injection,
    has_unverified: impl Fn(LayerKey) -> bool,
) -> Result<(), Failure> {
    let _one = FILES.lock();
    for key in keys {
        let path = path(store, *key);
        let failed = |error| {
            Failure::host(
                format!("note in {} which recording brings pages", path.display()),
                error,
            )
        };
        let mut known = match read(&path) {
            // Damaged, but the pages that it vouched for are gone, or were compared.
            Err(error) if error.kind() == io::ErrorKind::InvalidData && !has_unverified(*key) => Vec::new(),
            read => read.map_err(failed)?,
        };
        if !known.contains(injection) {
            known.push(injection.clone());
            let bytes = serde_json::to_vec(&known).map_err(|error| failed(error.into()))?;
            // A power cut must not remove the note of what vouches for pages that it leaves.
            let is_needed = known.len() > 1 && has_unverified(*key);
            let write = if is_needed {
                write_atomically
            } else {
                write_for_this_boot
            };
            write(&path, &bytes).map_err(failed)?;
        }
    }
    Ok(())
}

/// Syncs the note of which recordings brought pages of the layer in `folder`. A missing note is no error. Blocks.
///
/// # Errors
/// I/O errors; pages brought since the last sync must then not count after a power cut.
pub fn sync(folder: &Path) -> io::Result<()> {
    sync_files(folder, &[FILE])
}

/// Forgets all of them if, while nobody can be added, every page was compared and nobody is bringing any.
pub fn clear(store: &Store, key: LayerKey, is_over: impl FnOnce() -> bool) {
    let _one = FILES.lock();
    if is_over() {
        let _ = fs::remove_file(path(store, key));
    }
}

fn read(path: &Path) -> io::Result<Vec<Injection>> {
    match fs::read(path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn path(store: &Store, key: LayerKey) -> PathBuf {
    store.folder(key).join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_vouches_for_nothing_and_heals_when_nothing_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let key = LayerKey {
            layer: Digest::of(b"layer"),
            index: Digest::of(b"index"),
        };
        let folder = store.folder(key);
        fs::create_dir_all(&folder).unwrap();
        sync(&folder).unwrap();
        let injection = |name: &[u8]| Injection {
            recording: Digest::of(name),
            evidence: Evidence::default(),
        };
        let (first, second) = (injection(b"first"), injection(b"second"));
        add(&store, &[key], &first, |_| true).unwrap();
        add(&store, &[key], &second, |_| true).unwrap();
        add(&store, &[key], &first, |_| true).unwrap();
        assert_eq!(load(&store, key), Some(vec![first.clone(), second.clone()]));
        sync(&folder).unwrap();
        for damage in [&b""[..], b"[{\"recording\":", &[0; 100]] {
            fs::write(folder.join(FILE), damage).unwrap();
            assert_eq!(load(&store, key), None);
            // Otherwise the second recording would count as the source of pages that another one brought.
            add(&store, &[key], &second, |_| true).unwrap_err();
            assert_eq!(load(&store, key), None);
            add(&store, &[key], &second, |_| false).unwrap();
            assert_eq!(load(&store, key), Some(vec![second.clone()]));
        }
        clear(&store, key, || true);
        assert_eq!(load(&store, key), Some(Vec::new()));
    }
}
