//! What vouches for the pages of a layer that runtime images brought and nobody compared yet: `injected.json` in the
//! layer's folder.
//!
//! Written before the first such page, and gone once all were compared. If it is lost or damaged, nothing vouches for them, and they are compared before the layer
//! is used again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use xebec_cache::store::{LayerKey, Store};
use xebec_format::digest::Digest;

use crate::failure::Failure;
use crate::file::write_all_atomically;
use crate::runtime_image::kept::Evidence;

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

/// Adds a recording that is about to bring pages into these layers.
///
/// # Errors
/// When a file cannot be read or written; the recording must then bring nothing.
pub fn add(store: &Store, keys: &[LayerKey], injection: &Injection) -> Result<(), Failure> {
    let _one = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut files = Vec::new();
    for path in keys.iter().map(|key| path(store, *key)) {
        let what = || format!("note in {} who brings pages", path.display());
        let mut known = read(&path).map_err(|error| Failure::host(what(), error))?;
        if !known.contains(injection) {
            known.push(injection.clone());
            let bytes = serde_json::to_vec(&known).map_err(|error| Failure::host(what(), error))?;
            files.push((path, bytes));
        }
    }
    let files: Vec<(PathBuf, &[u8])> = files
        .iter()
        .map(|(path, bytes)| (path.clone(), &bytes[..]))
        .collect();
    write_all_atomically(&files).map_err(|error| Failure::host("note who brings pages in", error))
}

/// Forgets all of them if, while nobody can be added, every page was compared and nobody is bringing any.
pub fn clear(store: &Store, key: LayerKey, is_over: impl FnOnce() -> bool) {
    let _one = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    if is_over() {
        let _ = fs::remove_file(path(store, key));
    }
}

fn read(path: &Path) -> io::Result<Vec<Injection>> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn path(store: &Store, key: LayerKey) -> PathBuf {
    store.folder(key).join("injected.json")
}
