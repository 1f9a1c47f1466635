//! How a directory is imported, and why that ends.

use std::io;
use std::path::PathBuf;

use xebec_settings::pattern::RepositoryPattern;
use xebec_store::StoreError;

use crate::put::Rules;

/// How blobs come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Taking {
    /// Their bytes are copied.
    #[default]
    Copy,
    /// Their files get a second name, among the store's objects.
    HardLink,
    /// The same, and the first name goes when an image that names the blob is here.
    Move,
}

/// The repositories to import, and how.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// How blobs come.
    pub taking: Taking,
    /// Repositories that one of these covers; all, if there are none.
    pub repositories: Vec<RepositoryPattern>,
    /// The rules for pushes to the registry.
    pub rules: Rules,
    /// Nothing is written; what would come is counted.
    pub dry_run: bool,
}

/// Why an import ended.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The directory cannot be read.
    #[error("cannot import {}: {cause}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// Files cannot become objects.
    #[error(
        "files of {} cannot become objects of this store, which is on another file system, or keeps its objects in a bucket; import \
         without --hard-link and --move, which copies them", path.display()
    )]
    Elsewhere {
        /// The directory.
        path: PathBuf,
    },
    /// The store fails.
    #[error(transparent)]
    Store(#[from] StoreError),
}
