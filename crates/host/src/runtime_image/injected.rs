//! What vouches for the pages of a layer that runtime images brought and nobody compared yet: `injected.json` in the
//! layer's folder.
//!
//! Written before the first such page. If it is lost, nothing vouches for them, and they are compared before the layer
//! is used again.

use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use xebec_cache::store::{LayerKey, Store};
use xebec_format::digest::Digest;

use crate::failure::Failure;
use crate::file::write_atomically;
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

/// Who brought pages of a layer, as far as it is known.
pub fn load(store: &Store, key: LayerKey) -> Vec<Injection> {
    let bytes = fs::read(path(store, key)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Adds a recording that is about to bring pages.
///
/// # Errors
/// When the file cannot be written.
pub fn add(store: &Store, key: LayerKey, injection: &Injection) -> Result<(), Failure> {
    let mut known = load(store, key);
    if known.contains(injection) {
        return Ok(());
    }
    known.push(injection.clone());
    let bytes = serde_json::to_vec(&known).map_err(|error| Failure::host("encode injections", error))?;
    let path = path(store, key);
    write_atomically(&path, &bytes).map_err(|error| Failure::host(format!("write {}", path.display()), error))
}

/// Forgets all of them: every page was compared.
pub fn clear(store: &Store, key: LayerKey) {
    let _ = fs::remove_file(path(store, key));
}

fn path(store: &Store, key: LayerKey) -> PathBuf {
    store.folder(key).join("injected.json")
}
