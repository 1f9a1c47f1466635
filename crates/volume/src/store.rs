//! The volumes of a root directory, by their names.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;
use serde::{Deserialize, Serialize};
use xebec_kernel::clock::seconds_since_1970;
use xebec_kernel::file::{FileIdentity, read_limited};
use xebec_kernel::lock::{lock_directory, try_lock_directory};
use xebec_kernel::mount::refuse_mounts_below;
use xebec_kernel::remove::remove_tree;

use super::error::VolumeError;
use super::paths::{is_volume_name, random_name};
use super::usage;

/// The directory of a volume that containers see.
pub(super) const DATA: &str = "_data";

/// The record of a volume.
const ABOUT: &str = "volume.json";

/// Largest file about a volume that is read.
const ABOUT_LIMIT: u64 = 4 << 20;

/// How the names of volumes begin that are being made, and being removed. They cannot name a volume.
const NEW: &str = ".new-";
const GONE: &str = ".gone-";

/// The volumes of a root directory.
#[derive(Clone, Debug)]
pub struct VolumeStore {
    directory: PathBuf,
    /// The directories of all containers.
    containers: PathBuf,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// The directory of its contents.
    pub mountpoint: PathBuf,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it was made for one container, by no name.
    pub anonymous: bool,
    /// The containers that use it, also those that have ended.
    pub containers: Vec<String>,
}

/// The contents of `volume.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct About {
    created: u64,
    anonymous: bool,
    labels: BTreeMap<String, String>,
}

impl VolumeStore {
    /// The volumes in `directory`, for the containers whose directories are in `containers`.
    pub fn new(directory: PathBuf, containers: PathBuf) -> Self {
        Self {
            directory,
            containers,
        }
    }

    /// Makes a volume, unless there is one of that name. Without a name it gets a random one. Returns the name.
    ///
    /// # Errors
    /// If the name cannot be one, or I/O fails.
    pub fn create(
        &self,
        name: Option<&str>,
        labels: impl IntoIterator<Item = (String, String)>,
    ) -> Result<String, VolumeError> {
        let random = || random_name().map_err(VolumeError::file("name a volume in", &self.directory));
        let anonymous = name.is_none();
        let name = name.map_or_else(random, |name| Ok(name.to_owned()))?;
        self.make(&name, anonymous, labels)?;
        Ok(name)
    }

    /// Makes the volume of this name, unless it is there. Returns whether it was not.
    pub(super) fn make(
        &self,
        name: &str,
        anonymous: bool,
        labels: impl IntoIterator<Item = (String, String)>,
    ) -> Result<bool, VolumeError> {
        check_name(name)?;
        let path = self.path(name);
        if path.is_dir() {
            return Ok(false);
        }
        make_closed(&self.directory)?;
        let _turn = self.turn()?;
        let new = self.temporary(NEW)?;
        make_closed(&new)?;
        // The owner of the files in it decides which of them others may read.
        let data = new.join(DATA);
        fs::create_dir(&data).map_err(VolumeError::file("make", &data))?;
        set_mode(&data, 0o755)?;
        let about = About {
            created: seconds_since_1970(),
            anonymous,
            labels: labels.into_iter().collect(),
        };
        let file = new.join(ABOUT);
        let text = serde_json::to_vec_pretty(&about).map_err(io::Error::from);
        let written = text.and_then(|text| fs::write(&file, text));
        written.map_err(VolumeError::file("write", &file))?;
        match rename_new(&new, &path) {
            // Another command has made it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                remove_tree(&new).map_err(VolumeError::file("remove", &new))?;
                Ok(false)
            }
            outcome => outcome.map(|()| true).map_err(VolumeError::file("make", &path)),
        }
    }

    /// Every volume, by name.
    ///
    /// # Errors
    /// I/O errors.
    pub fn list(&self) -> Result<Vec<VolumeInfo>, VolumeError> {
        let failed = |error| VolumeError::file("read", &self.directory)(error);
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(failed)?.file_name();
            names.extend(name.into_string().ok().filter(|name| is_volume_name(name)));
        }
        names.sort();
        let volumes = names.iter().map(|name| self.get(name));
        // One that is removed meanwhile is none.
        volumes
            .filter(|volume| !matches!(volume, Err(VolumeError::Missing(_))))
            .collect()
    }

    /// The volume of this name.
    ///
    /// # Errors
    /// [`VolumeError::Missing`] if there is none. I/O errors.
    pub fn get(&self, name: &str) -> Result<VolumeInfo, VolumeError> {
        check_name(name)?;
        let path = self.path(name);
        if !path.is_dir() {
            return Err(VolumeError::Missing(name.to_owned()));
        }
        let About {
            created,
            anonymous,
            labels,
        } = about(&path);
        Ok(VolumeInfo {
            name: name.to_owned(),
            mountpoint: path.join(DATA),
            created,
            labels,
            anonymous,
            containers: usage::users(&self.containers, name)?,
        })
    }

    /// Removes a volume with all that is in it.
    ///
    /// # Errors
    /// [`VolumeError::Missing`] if there is none, [`VolumeError::Used`] if a container uses it. I/O errors.
    pub fn remove(&self, name: &str) -> Result<(), VolumeError> {
        check_name(name)?;
        let path = self.path(name);
        let Some(_lock) = self.lock(name)? else {
            return Err(VolumeError::Missing(name.to_owned()));
        };
        let containers = usage::users(&self.containers, name)?;
        if !containers.is_empty() {
            let name = name.to_owned();
            return Err(VolumeError::Used { name, containers });
        }
        // An administrator's, which is not removed.
        refuse_mounts_below(&path).map_err(VolumeError::file("remove", &path))?;
        let gone = {
            let _turn = self.turn()?;
            let gone = self.temporary(GONE)?;
            fs::rename(&path, &gone).map_err(VolumeError::file("remove", &path))?;
            gone
        };
        remove_tree(&gone).map_err(VolumeError::file("remove", &gone))
    }

    /// Removes the volumes that no container uses: the anonymous ones, or `all`. Returns their names, and why others stay.
    ///
    /// # Errors
    /// If the volumes cannot be listed.
    pub fn prune(&self, all: bool) -> Result<(Vec<String>, Vec<VolumeError>), VolumeError> {
        let (mut removed, mut failed) = (Vec::new(), Vec::new());
        for volume in self.list()? {
            if !volume.containers.is_empty() || !(all || volume.anonymous) {
                continue;
            }
            match self.remove(&volume.name) {
                Ok(()) => removed.push(volume.name),
                // A container has begun to use it, or another command has removed it.
                Err(VolumeError::Used { .. } | VolumeError::Missing(_)) => {}
                Err(error) => failed.push(error),
            }
        }
        if self.directory.is_dir() {
            drop(self.turn()?);
        }
        Ok((removed, failed))
    }

    /// The directory of a volume.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The directories of all containers.
    pub(super) fn containers(&self) -> &Path {
        &self.containers
    }

    /// The directory of all volumes.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Locks a volume against removal, and against others that fill it. `None` if there is none.
    pub(super) fn lock(&self, name: &str) -> Result<Option<File>, VolumeError> {
        let path = self.path(name);
        let failed = |error| VolumeError::file("lock", &path)(error);
        let lock = match lock_directory(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            lock => lock.map_err(failed)?,
        };
        let locked = FileIdentity::of(&lock).map_err(failed)?;
        // It may have been removed while this process waited.
        let is_there = fs::symlink_metadata(&path).is_ok_and(|now| FileIdentity::from(&now) == locked);
        Ok(is_there.then_some(lock))
    }

    /// Locks the directory of all volumes, and removes what commands left in it that were killed.
    fn turn(&self) -> Result<File, VolumeError> {
        let failed = |error| VolumeError::file("lock", &self.directory)(error);
        let turn = lock_directory(&self.directory).map_err(failed)?;
        for entry in fs::read_dir(&self.directory).map_err(failed)?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if !name.starts_with(NEW) && !name.starts_with(GONE) {
                continue;
            }
            // A process that removes a volume holds the volume's lock; a process that makes one holds this lock.
            if let Ok(_lock) = try_lock_directory(&entry.path())
                && let Err(error) = remove_tree(&entry.path())
            {
                tracing::warn!(%error, path = %entry.path().display(), "cannot remove what is left of a volume");
            }
        }
        Ok(turn)
    }

    fn temporary(&self, beginning: &str) -> Result<PathBuf, VolumeError> {
        let name = random_name().map_err(VolumeError::file("name a volume in", &self.directory))?;
        Ok(self.directory.join(format!("{beginning}{name}")))
    }
}

fn check_name(name: &str) -> Result<(), VolumeError> {
    match is_volume_name(name) {
        true => Ok(()),
        false => Err(VolumeError::Name(name.to_owned())),
    }
}

/// The record of a volume. One whose file is missing or damaged is a volume all the same.
fn about(path: &Path) -> About {
    let text = read_limited(&path.join(ABOUT), ABOUT_LIMIT).ok();
    text.and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default()
}

/// Makes a directory that root alone enters: a volume may hold setuid programs.
pub(super) fn make_closed(path: &Path) -> Result<(), VolumeError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(path).map_err(VolumeError::file("make", path))
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result<(), VolumeError> {
    use std::os::unix::fs::PermissionsExt;
    let set = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    set.map_err(VolumeError::file("set the mode of", path))
}

fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}
