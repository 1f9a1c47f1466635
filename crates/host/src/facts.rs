//! The facts about a cached index: `roots.json` in the layer's folder (see [`crate::trust`]).

use std::path::PathBuf;

use xebec_cache::store::{LayerKey, NewLayer, Store};
use xebec_kernel::writeback;

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

/// Brings new layers to the disk, with what is known about their indexes. Blocks.
///
/// # Errors
/// When one cannot be.
pub fn sync(store: &Store, layers: &[NewLayer]) -> Result<(), Failure> {
    for layer in layers {
        Record::begin_sync(&directory(store, layer.key()));
        if let Some(index) = layer.descriptor() {
            let _ = writeback::begin(index);
        }
    }
    for layer in layers {
        let key = layer.key();
        Record::sync(&directory(store, key))
            .map_err(|error| Failure::host(format!("keep what is known about {key}"), error))?;
        layer.sync(store)?;
    }
    Ok(())
}

fn directory(store: &Store, key: LayerKey) -> PathBuf {
    store.directory().join(key.folder())
}
