//! The facts about a cached index: `roots.json` in the layer's folder (see [`xebec_trust`]).

use std::fs::File;
use std::path::PathBuf;

use xebec_cache::store::{LayerKey, Store};
use xebec_kernel::writeback;
use xebec_oci::Repository;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_trust::{Record, RepositoryName};

use crate::origin;

/// The record of the index of a layer in the store.
pub fn load(store: &Store, key: LayerKey) -> Record {
    Record::load(&directory(store, key), key.layer, key.index)
}

/// Whether this host has proven the index of a layer.
pub fn is_proven(store: &Store, key: LayerKey) -> bool {
    load(store, key).is_proven()
}

/// Whether images of a repository may be shown a layer.
pub fn is_open_to(store: &Store, key: LayerKey, repository: &RepositoryName) -> bool {
    let known = load(store, key).is_reader(repository);
    known.unwrap_or_else(|| former_readers(store, key).contains(repository))
}

/// Whether images of any repository of a registry may be.
pub fn is_open_at(store: &Store, key: LayerKey, registry: &str) -> bool {
    let known = load(store, key).has_reader_at(registry);
    let is_there = |name: &RepositoryName| name.as_str().split('/').next() == Some(registry);
    known || former_readers(store, key).iter().any(is_there)
}

/// Lets images of a repository be shown a layer from now on, by a record of it that is about to be written.
pub fn open(store: &Store, key: LayerKey, record: &mut Record, repository: &RepositoryName) {
    if record.is_reader(repository).is_none() {
        let former = former_readers(store, key);
        former.iter().for_each(|name| record.add_reader(name));
    }
    record.add_reader(repository);
}

/// A repository as the policy of trust names it.
///
/// # Errors
/// If no policy can name it.
pub fn repository_name(repository: &Repository) -> Result<RepositoryName, Failure> {
    let name = RepositoryName::new(repository.registry(), repository.name());
    name.map_err(|error| Failure::new(FailureKind::Usage, error))
}

/// Repositories that earlier versions showed the layer to. Those versions asked no registry, and kept only the places where the
/// layer may be fetched.
fn former_readers(store: &Store, key: LayerKey) -> Vec<RepositoryName> {
    let origins = origin::read(&directory(store, key));
    let repositories = origins.iter().filter_map(origin::Origin::parse_repository);
    repositories
        .filter_map(|repository| repository_name(&repository).ok())
        .collect()
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

/// Brings layers that were made a moment ago to the disk, with what is known about their indexes. Blocks.
///
/// # Errors
/// When one cannot be; the others are, all the same.
pub fn sync(store: &Store, layers: &[LayerKey]) -> Result<(), Failure> {
    for key in layers {
        let directory = directory(store, *key);
        Record::begin_sync(&directory);
        let _ = File::open(directory.join("index")).and_then(writeback::begin);
    }
    let sync = |key: &LayerKey| {
        Record::sync(&directory(store, *key))
            .map_err(|error| Failure::host(format!("keep what is known about {key}"), error))?;
        Ok(store.sync_new(*key)?)
    };
    layers.iter().map(sync).fold(Ok(()), Result::and)
}

fn directory(store: &Store, key: LayerKey) -> PathBuf {
    store.directory().join(key.folder())
}
