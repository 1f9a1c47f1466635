//! Where the bytes of a cached layer come from: the repositories that were seen to have its blob, kept in the
//! file `origins.json` of the layer's folder so that a new worker can go on filling; `source` asks them.

mod source;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;
use xebec_oci::{Reference, Repository};

pub use source::{KEPT, LayerSource, LayerSourceParts, Readers, SPOOLED};
use xebec_kernel::file::write_for_this_boot;

const FILE: &str = "origins.json";
/// Repositories remembered for a layer. A base layer is in many, and each is asked only for its own images, so those of all the
/// images that run should have room.
const MAX_ORIGINS: usize = 64;

/// A repository that has a layer's blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The repository with its registry, as in a reference without tag.
    pub repository: String,
    /// The docker configuration of the user through whom it was reached.
    pub docker_config: Option<PathBuf>,
    /// The blob with the index's windows, in the same repository.
    pub windows: Option<Digest>,
    /// Size of that blob in bytes.
    pub windows_size: u64,
}

impl Origin {
    /// The blob with the windows, and its size.
    fn windows_blob(&self) -> Option<(Digest, u64)> {
        self.windows.map(|digest| (digest, self.windows_size))
    }

    /// The repository; `None` when the file was damaged.
    pub fn parse_repository(&self) -> Option<Repository> {
        self.repository
            .parse::<Reference>()
            .ok()
            .map(|reference| reference.repository().clone())
    }
}

/// Reads a layer's origins; a missing or damaged file has none.
pub fn read(directory: &Path) -> Vec<Origin> {
    let bytes = fs::read(directory.join(FILE)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Puts `origin` first among a layer's origins. Nothing waits until that is on the disk: should it be lost, each start
/// puts its own there again.
///
/// # Errors
/// When the file cannot be written.
pub fn remember(directory: &Path, origin: Origin) -> io::Result<()> {
    let mut origins = read(directory);
    if origins.first() == Some(&origin) {
        return Ok(());
    }
    origins.retain(|other| *other != origin);
    origins.insert(0, origin);
    origins.truncate(MAX_ORIGINS);
    write_for_this_boot(&directory.join(FILE), &serde_json::to_vec(&origins)?)
}
