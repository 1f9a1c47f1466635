//! The facts about a cached index: `roots.json` in the layer's folder (see [`crate::trust`]).

use std::path::PathBuf;

use xebec_cache::store::{LayerKey, NewLayer, Store};

use crate::failure::Failure;
use crate::trust::Record;

/// What is known about the index of a layer in the store.
pub fn load(store: &Store, key: LayerKey) -> Record {
    Record::load(&directory(store, key), key.layer, key.index)
}

/// Whether this host has proven the index of a layer.
pub fn is_proven(store: &Store, key: LayerKey) -> bool {
    load(store, key).is_proven()
}

/// Adds to what is known.
///
/// # Errors
/// When the file cannot be written.
pub fn update(store: &Store, key: LayerKey, change: impl FnOnce(&mut Record)) -> Result<Record, Failure> {
    Record::update(&directory(store, key), key.layer, key.index, change)
        .map_err(|error| Failure::host(format!("keep what is known about {key}"), error))
}

/// The same of a layer that was made a moment ago; not on the disk before [`sync`].
///
/// # Errors
/// When the file cannot be written.
pub fn begin(store: &Store, key: LayerKey, change: impl FnOnce(&mut Record)) -> Result<Record, Failure> {
    Record::begin(&directory(store, key), key.layer, key.index, change)
        .map_err(|error| Failure::host(format!("keep what is known about {key}"), error))
}

/// Brings a new layer to the disk, with what is known about its index. Blocks.
///
/// # Errors
/// When it cannot be.
pub fn sync(store: &Store, layer: &NewLayer) -> Result<(), Failure> {
    let key = layer.key();
    Record::sync(&directory(store, key))
        .map_err(|error| Failure::host(format!("keep what is known about {key}"), error))?;
    Ok(layer.sync(store)?)
}

fn directory(store: &Store, key: LayerKey) -> PathBuf {
    store.directory().join(key.folder())
}
