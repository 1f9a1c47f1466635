//! How often pages of a layer were corrected: `corrected` in the layer's folder, a number.
//!
//! A view that was mounted before may have the wrong pages in memory, as long as anything holds it. One that is built
//! afterwards must be another, each time, also when another worker builds it.

use std::fs;
use std::path::PathBuf;

use xebec_cache::store::{LayerKey, Store};

use crate::failure::Failure;
use crate::file::write_atomically;

/// How often; a number that nobody can read is one that nobody used before.
pub fn count(store: &Store, key: LayerKey) -> u64 {
    let Ok(text) = fs::read_to_string(path(store, key)) else {
        return 0;
    };
    text.trim().parse().unwrap_or(u64::from(u32::MAX))
}

/// Once more.
///
/// # Errors
/// When it cannot be written.
pub fn add(store: &Store, key: LayerKey) -> Result<(), Failure> {
    let text = count(store, key).saturating_add(1).to_string();
    let path = path(store, key);
    write_atomically(&path, text.as_bytes())
        .map_err(|error| Failure::host(format!("write {}", path.display()), error))
}

fn path(store: &Store, key: LayerKey) -> PathBuf {
    store.folder(key).join("corrected")
}
