//! Departed views: views that were unmounted and may still be read, by processes that had them open, or in a container's own mounts,
//! after a stop by force, a `umount` by a user, or a command that was killed. Their layers keep the pages that they need until no
//! process uses them.
//!
//! The kernel knows that. EROFS has a view's metadata image open for as long as any mount of it lasts, wherever that is, so a
//! lease on that file can be taken only when all are gone ([`Lease`]). Until then the file stays, aside, with a record of the view's
//! holders; a later worker finds both.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use xebec_cache::store::LayerKey;
use xebec_kernel::clock::milliseconds_since_start;
use xebec_kernel::file::write_for_this_boot;
use xebec_kernel::lease::Lease;
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::LayerPair;

use super::record::ViewRecord;
use super::table::Views;
use crate::recording_admission::TrustRequirement;
use crate::view;

/// The record of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Departed {
    reference: String,
    layers: Vec<LayerPair>,
    uses: Vec<TrustRequirement>,
}

/// Keeps the files that a view's readers need, if it has any left. It is unmounted. The caller removes its metadata image, before its
/// record: a worker that dies in between is followed by one that does this again.
pub(super) fn depart(paths: &Paths, record: &ViewRecord) {
    let metadata = view::metadata(paths, &record.name);
    if !is_read(&metadata) {
        return;
    }
    let directory = paths.departed();
    // Another view of that name may depart later.
    let kept = directory.join(format!("{}-{}", record.name, milliseconds_since_start()));
    let departed = Departed {
        reference: record.reference.clone(),
        layers: record.layers.clone(),
        uses: record.uses.clone(),
    };
    info!(
        "view {} of {} is unmounted and still read: Xebec keeps the pages that it needs",
        record.name, record.reference
    );
    // The record comes last: one without an image is forgotten.
    let kept = fs::create_dir_all(&directory)
        .and_then(|()| fs::hard_link(&metadata, kept.with_extension("erofs")))
        .and_then(|()| serde_json::to_vec(&departed).map_err(io::Error::other))
        .and_then(|bytes| write_for_this_boot(&kept.with_extension("json"), &bytes));
    if let Err(error) = kept {
        warn!(
            "view {}: cannot keep the record of its readers: {error}",
            record.name
        );
    }
}

impl Views {
    /// For whom layers are read by views that were unmounted; the holders of a view with a damaged record are unknown. Removes views that
    /// no process uses any more.
    pub fn departed(&self) -> Vec<(Vec<LayerKey>, Option<TrustRequirement>)> {
        let mut readers = Vec::new();
        for entry in fs::read_dir(self.paths.departed())
            .into_iter()
            .flatten()
            .flatten()
        {
            let (path, metadata) = (
                entry.path().with_extension("json"),
                entry.path().with_extension("erofs"),
            );
            if !is_read(&metadata) {
                forget(&path, &metadata);
                continue;
            }
            if entry.path() != path {
                continue;
            }
            let record = fs::read(&path).map_err(io::Error::other);
            let record = record.and_then(|bytes| Ok(serde_json::from_slice::<Departed>(&bytes)?));
            match record {
                Ok(departed) => {
                    let layers: Vec<LayerKey> = departed.layers.iter().map(|pair| (*pair).into()).collect();
                    if departed.uses.is_empty() {
                        readers.push((layers.clone(), None));
                    }
                    let uses = departed.uses.into_iter();
                    readers.extend(uses.map(|by| (layers.clone(), Some(by))));
                }
                Err(error) => warn!("{}: {error}", path.display()),
            }
        }
        readers
    }
}

fn forget(record: &Path, metadata: &Path) {
    let files: [PathBuf; 2] = [metadata.to_owned(), record.to_owned()];
    for file in files {
        if let Err(error) = fs::remove_file(&file)
            && error.kind() != io::ErrorKind::NotFound
        {
            warn!("{}: {error}", file.display());
        }
    }
}

/// Whether a view of this metadata image is mounted anywhere. If that cannot be told, it is.
fn is_read(metadata: &Path) -> bool {
    let opened = File::options().read(true).write(true).open(metadata);
    let is_free = opened.and_then(|file| Ok(Lease::take(file.as_fd())?.is_some()));
    match is_free {
        Ok(is_free) => !is_free,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}
