//! Imports the directory of CNCF distribution into a store.
//!
//! For each repository, manifests go in after what they name: images first, then the indexes that list them, then tags. A blob is taken
//! for a repository only if the other registry shows it there (`_layers`), and once for all repositories.

mod blobs;
mod layout;
mod options;
mod repository;
mod source;
mod walk;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use xebec_store::Store;

pub use self::options::{ImportError, ImportOptions, Taking};

use self::blobs::Blobs;
use self::repository::Importer;
use self::source::Source;
use crate::tally::Tally;

/// Imports what is in `directory`, and counts it in `tally`.
///
/// # Errors
/// If the directory is none of a registry, or the store fails. Faults of single things are in the tally, and end nothing.
pub async fn import(
    store: &Store,
    directory: &Path,
    options: &ImportOptions,
    tally: &Arc<Tally>,
) -> Result<(), ImportError> {
    let unreadable = |cause| ImportError::Directory {
        path: directory.to_owned(),
        cause,
    };
    let source = Arc::new(Source::open(directory).map_err(unreadable)?);
    if options.taking != Taking::Copy && !is_near(store, &source) {
        let path = directory.to_owned();
        return Err(ImportError::Elsewhere { path });
    }
    let blobs = Blobs::new(store, &source, options, tally);
    for name in walk::repositories(&source, &options.repositories, tally) {
        let importer = Importer {
            store,
            source: &source,
            options,
            tally,
            blobs: &blobs,
            name: &name,
        };
        importer.run().await?;
        tally.add(|moved| moved.repositories += 1);
    }
    Ok(())
}

/// Whether files of the source can get names among the store's objects.
fn is_near(store: &Store, source: &Source) -> bool {
    let config = store.config();
    let here = std::fs::metadata(config.root.join("objects")).map(|metadata| metadata.dev());
    let is_directory = matches!(config.objects, xebec_store::ObjectsConfig::Directory);
    is_directory && here.is_ok_and(|here| source.device().is_ok_and(|there| here == there))
}
