//! Which volumes a container uses: a file in the directory of its layer, so that it is there as long as the
//! container is kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xebec_kernel::file::{read_limited, write_for_this_boot};

use super::error::VolumeError;
use super::paths::is_volume_name;

/// The name of the file.
const FILE: &str = "volumes.json";

/// Largest file that is read: a container with thousands of volumes.
const LIMIT: u64 = 1 << 20;

/// A volume that a container uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    /// Its name.
    pub name: String,
    /// Whether it was made for this container, which names it nowhere.
    pub anonymous: bool,
    /// Where the container sees it.
    pub target: PathBuf,
}

/// The volumes that the container with this directory uses.
pub(super) fn read(state: &Path) -> Result<Vec<Use>, VolumeError> {
    let path = state.join(FILE);
    let text = match read_limited(&path, LIMIT) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(Vec::new());
        }
        read => read.map_err(VolumeError::file("read", &path))?,
    };
    let mut uses: Vec<Use> = serde_json::from_slice(&text).map_err(|error| VolumeError::Uses {
        container: state
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        path: path.clone(),
        problem: error.to_string(),
    })?;
    uses.retain(|one| is_volume_name(&one.name));
    Ok(uses)
}

/// Notes that the container with this directory uses a volume.
pub(super) fn add(state: &Path, name: &str, anonymous: bool, target: &Path) -> Result<(), VolumeError> {
    let path = state.join(FILE);
    let mut uses = read(state)?;
    if uses.iter().any(|one| one.name == name) {
        return Ok(());
    }
    uses.push(Use {
        name: name.to_owned(),
        anonymous,
        target: target.to_owned(),
    });
    let text = serde_json::to_vec(&uses)
        .map_err(|error| VolumeError::file("write", &path)(io::Error::from(error)))?;
    write_for_this_boot(&path, &text).map_err(VolumeError::file("write", &path))
}

/// The names of the containers that use a volume, in the directory of all containers.
pub(super) fn users(containers: &Path, name: &str) -> Result<Vec<String>, VolumeError> {
    let mut users = Vec::new();
    for state in self::containers(containers)? {
        if read(&state)?.iter().any(|one| one.name == name) {
            users.extend(state.file_name().map(|id| id.to_string_lossy().into_owned()));
        }
    }
    users.sort();
    Ok(users)
}

/// The directories of all containers.
pub(super) fn containers(containers: &Path) -> Result<Vec<PathBuf>, VolumeError> {
    let failed = |error| VolumeError::file("read", containers)(error);
    let entries = match fs::read_dir(containers) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    paths.collect::<io::Result<_>>().map_err(failed)
}

/// The names of the volumes of the container with this directory, and where it sees each. Of a file that cannot be read there are none.
pub fn volumes_of(state: &Path) -> Vec<(String, PathBuf)> {
    let uses = read(state).unwrap_or_default().into_iter();
    uses.map(|one| (one.name, one.target)).collect()
}

/// The anonymous volumes of the container with this directory, which go with it.
pub fn anonymous_of(state: &Path) -> Vec<String> {
    let uses = read(state).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot tell which anonymous volumes a container has; `xebec volume prune` removes them");
        Vec::new()
    });
    let anonymous = uses.into_iter().filter(|one| one.anonymous);
    anonymous.map(|one| one.name).collect()
}
