//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use xebec_format::layer::DecodeError;

use crate::key::LayerKey;

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
        /// The layer of the index.
        key: LayerKey,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// A stored index is not the one its folder names.
    #[error("the index of {0} in the cache does not have that digest; it will be fetched again")]
    Digest(LayerKey),
}

pub(crate) fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |error| StoreError::Io { what, path, error }
}
