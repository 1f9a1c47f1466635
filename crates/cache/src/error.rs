//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use xebec_format::layer::DecodeError;

use crate::key::LayerKey;

/// A failure of the store, with its layer or file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file could not be read or written.
    #[error("{what} {path}: {error}")]
    Io {
        /// The action that failed, as a phrase that the path follows: "make the data file anew in".
        what: &'static str,
        /// The file of that action.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// A stored index is damaged.
    #[error("the index of {key} in the cache is damaged ({error}); it will be fetched again")]
    Index {
        /// The layer of the index.
        key: LayerKey,
        /// The defect of the index.
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
