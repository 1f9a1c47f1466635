//! What vouches for the pages of a layer that runtime images brought and nobody compared yet: `injected.json` in the
//! layer's folder.
//!
//! Written before the first such page, and gone once all were compared. If it is lost or damaged, nothing vouches for them,
//! and they are compared before the layer is used again. It is on the disk before such a page is believed after a power cut
//! ([`sync`]), not before it is written: a start does not wait for the disk.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use xebec_cache::store::{LayerKey, Store};
use xebec_format::digest::Digest;

use crate::failure::Failure;
use crate::file::{sync_directory, write_for_this_boot};
use crate::runtime_image::kept::{Evidence, KeptRecordings};

/// Name of the file.
const FILE: &str = "injected.json";

/// A recording that brought pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// The recording; see [`crate::runtime_image::kept::KeptRecording::name`].
    pub recording: Digest,
    /// What vouches for it.
    pub evidence: Evidence,
}

/// One reader or writer of these files at a time; only the worker has any to do with them.
static FILES: Mutex<()> = Mutex::new(());

/// Who brought pages of a layer; `None` when that cannot be told.
pub fn load(store: &Store, key: LayerKey) -> Option<Vec<Injection>> {
    let _one = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    read(&path(store, key)).ok()
}

/// Adds a recording that is about to bring pages.
///
/// # Errors
/// When the file cannot be read or written; the recording must then bring nothing.
pub fn add(store: &Store, key: LayerKey, injection: &Injection) -> Result<(), Failure> {
    let _one = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = path(store, key);
    let failed = |error| Failure::host(format!("note in {} who brings pages", path.display()), error);
    let mut known = read(&path).map_err(failed)?;
    if known.contains(injection) {
        return Ok(());
    }
    known.push(injection.clone());
    let bytes = serde_json::to_vec(&known).map_err(|error| Failure::host("encode injections", error))?;
    write_for_this_boot(&path, &bytes).map_err(failed)
}

/// Forgets all of them if, while nobody can be added, every page was compared and nobody is bringing any.
pub fn clear(store: &Store, key: LayerKey, is_over: impl FnOnce() -> bool) {
    let _one = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    if is_over() {
        let _ = fs::remove_file(path(store, key));
    }
}

/// Brings to the disk who brought pages of the layer in `folder`, and the recordings that are named there. None is no error.
///
/// # Errors
/// I/O errors; none of the pages may then be believed after a power cut.
pub fn sync(folder: &Path, recordings: &KeptRecordings) -> io::Result<()> {
    // Whoever is added meanwhile, by another file that takes its place, is of a later sync.
    let mut file = match File::open(folder.join(FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    file.sync_data()?;
    sync_directory(folder)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    // One that is damaged vouches for nothing.
    let injections: Vec<Injection> = serde_json::from_slice(&bytes).unwrap_or_default();
    injections
        .iter()
        .try_for_each(|injection| recordings.sync(injection.recording))
}

fn read(path: &Path) -> io::Result<Vec<Injection>> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn path(store: &Store, key: LayerKey) -> PathBuf {
    store.folder(key).join(FILE)
}
