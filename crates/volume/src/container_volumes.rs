//! The mounts of one container: planned before its image is known, made when it is, and compared once the
//! container is created.
//!
//! A start that fails because there is no such image makes nothing: the paths are known before the
//! directories are there.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat, openat2};
use xebec_kernel::file::FileIdentity;
use xebec_kernel::mount::{MountInfo, mount_id, mounts};
use xebec_kernel::path::open_in_root;

use super::bind::BindMount;
use super::error::VolumeError;
use super::fill::fill;
use super::paths::random_name;
use super::relabel::relabel;
use super::request::{Propagation, Relabel, Source, Volume};
use super::store::{DATA, VolumeStore, set_mode};
use super::usage;

/// The mounts of one container.
#[derive(Debug)]
pub struct ContainerVolumes {
    store: VolumeStore,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    volume: Volume,
    /// The path on the host.
    path: PathBuf,
    /// The name of the volume, if it is one.
    name: Option<String>,
    /// The directory or file at `path`, since it was made.
    opened: Option<OwnedFd>,
}

/// Where a container is made.
pub struct Place<'a> {
    /// The container's directory. Its name is the container's.
    pub state: &'a Path,
    /// The files of its image.
    pub view: &'a Path,
    /// The label of SELinux that its files have.
    pub label: Option<&'a str>,
    /// Whether the container of a name runs, or is about to.
    pub is_active: &'a dyn Fn(&str) -> bool,
}

impl ContainerVolumes {
    /// Plans the mounts. Nothing is made.
    /// A container that existed before, whose directory is `state`, keeps its anonymous volumes.
    ///
    /// # Errors
    /// If a source is missing that must be there, or it cannot be read which volumes the container has.
    pub fn plan(volumes: &[Volume], store: VolumeStore, state: &Path) -> Result<Self, VolumeError> {
        let earlier = usage::read(state)?;
        let mut entries = Vec::new();
        for volume in volumes {
            let name = match &volume.source {
                Source::Host { .. } => None,
                Source::Named(name) => Some(name.clone()),
                Source::Anonymous => {
                    let is_it = |one: &&usage::Use| one.anonymous && one.target == volume.target;
                    let random =
                        || random_name().map_err(VolumeError::file("name a volume in", store.directory()));
                    let kept = earlier.iter().find(is_it).map(|one| one.name.clone());
                    Some(kept.map_or_else(random, Ok)?)
                }
            };
            let path = match (&volume.source, &name) {
                (Source::Host { path, create }, _) => {
                    if !create && !path.exists() {
                        return Err(VolumeError::NoSource(path.clone()));
                    }
                    path.clone()
                }
                (_, name) => store.path(name.as_deref().unwrap_or_default()).join(DATA),
            };
            entries.push(Entry {
                volume: volume.clone(),
                path,
                name,
                opened: None,
            });
        }
        Ok(Self { store, entries })
    }

    /// The mounts for the runtime.
    pub fn mounts(&self) -> Vec<BindMount> {
        let of = |entry: &Entry| BindMount::of(&entry.volume, entry.path.clone());
        self.entries.iter().map(of).collect()
    }

    /// Makes what is not there, fills new volumes, and opens all of it. `go_on` fails if the start is to end.
    ///
    /// # Errors
    /// [`VolumeError`]. Volumes that were made before stay.
    pub fn make(
        &mut self,
        place: &Place<'_>,
        go_on: &mut dyn FnMut() -> io::Result<()>,
    ) -> Result<(), VolumeError> {
        for entry in &mut self.entries {
            let (opened, is_new) = match &entry.name {
                Some(name) => {
                    let is_new = make_volume(&self.store, name, &entry.volume, place, go_on)?;
                    (open_volume(&self.store, name)?, is_new)
                }
                None => (open_host(&entry.path, &entry.volume)?, false),
            };
            check_propagation(&entry.path, &opened, entry.volume.propagation)?;
            // A volume is for containers from the beginning.
            let own = (is_new && place.label.is_some()).then_some(Relabel::Shared);
            if let Some(which) = entry.volume.relabel.or(own) {
                relabel(&entry.path, &opened, which, place.label)?;
            }
            entry.opened = Some(opened);
        }
        Ok(())
    }

    /// Compares what the container of this process sees with what was opened. Its command has not run, but
    /// others may be able to write where the sources are.
    ///
    /// # Errors
    /// [`VolumeError::Replaced`] if it is something else. I/O errors.
    pub fn compare(&self, pid: i32, is_hidden: impl Fn(&Path) -> bool) -> Result<(), VolumeError> {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        for entry in &self.entries {
            let target = &entry.volume.target;
            let Some(opened) = entry.opened.as_ref().filter(|_| !is_hidden(target)) else {
                continue;
            };
            let inside =
                open_in_root(&root, target).map_err(VolumeError::file("look at the container's", target))?;
            let inside = FileIdentity::of(&inside).map_err(VolumeError::file("look at", target))?;
            let opened = FileIdentity::of(opened).map_err(VolumeError::file("look at", &entry.path))?;
            if inside != opened {
                return Err(VolumeError::Replaced {
                    target: target.clone(),
                    path: entry.path.clone(),
                });
            }
        }
        Ok(())
    }
}

/// Makes a volume, fills it if it is empty and no other container can be on it, and notes its use. Returns
/// whether there was no such volume.
fn make_volume(
    store: &VolumeStore,
    name: &str,
    volume: &Volume,
    place: &Place<'_>,
    go_on: &mut dyn FnMut() -> io::Result<()>,
) -> Result<bool, VolumeError> {
    let anonymous = volume.source == Source::Anonymous;
    // It may be removed between the two.
    let (lock, is_new) = loop {
        let is_new = store.make(name, anonymous, volume.labels.iter().cloned())?;
        if let Some(lock) = store.lock(name)? {
            break (lock, is_new);
        }
    };
    if volume.copies && !is_in_use(store, name, place)? {
        fill(place.view, &volume.target, &store.path(name), go_on)?;
    }
    usage::add(place.state, name, anonymous, &volume.target)?;
    drop(lock);
    Ok(is_new)
}

/// Whether another container runs, or is about to, that may use a volume.
fn is_in_use(store: &VolumeStore, name: &str, place: &Place<'_>) -> Result<bool, VolumeError> {
    let others = usage::containers(store.containers())?;
    let mut others = others.into_iter().filter(|state| {
        let id = state.file_name().unwrap_or_default();
        Some(id) != place.state.file_name() && (place.is_active)(&id.to_string_lossy())
    });
    // A container whose file cannot be read may use any volume.
    let uses =
        |state: PathBuf| usage::read(&state).map_or(true, |uses| uses.iter().any(|one| one.name == name));
    Ok(others.any(uses))
}

fn open_volume(store: &VolumeStore, name: &str) -> Result<OwnedFd, VolumeError> {
    let failed = || VolumeError::file("open", &store.path(name));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = openat(CWD, store.directory(), flags, Mode::empty()).map_err(failed())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(&top, Path::new(name).join(DATA), flags, Mode::empty(), resolve).map_err(failed())
}

/// Opens a file or directory of the host, which is made if it may be.
fn open_host(path: &Path, volume: &Volume) -> Result<OwnedFd, VolumeError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    // Opened as a directory, so that a mount that appears when somebody enters it appears now.
    let opened = || match open(path, flags | OFlags::DIRECTORY, Mode::empty()) {
        Err(rustix::io::Errno::NOTDIR) => open(path, flags, Mode::empty()),
        opened => opened,
    };
    match (&volume.source, opened()) {
        (_, Ok(opened)) => Ok(opened),
        (Source::Host { create: true, .. }, Err(rustix::io::Errno::NOENT)) => {
            make_directories(path)?;
            opened().map_err(VolumeError::file("open", path))
        }
        (Source::Host { create: false, .. }, Err(rustix::io::Errno::NOENT)) => {
            Err(VolumeError::NoSource(path.to_owned()))
        }
        (_, Err(error)) => Err(VolumeError::file("open", path)(error)),
    }
}

/// Makes a directory of the host, and those above it, as docker does: all users may read them.
fn make_directories(path: &Path) -> Result<(), VolumeError> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|above| fs::symlink_metadata(above).is_err())
        .collect();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(VolumeError::file("make", directory)(error)),
            Ok(()) => set_mode(directory, 0o755)?,
        }
    }
    Ok(())
}

/// Refuses a propagation that the mount of the source cannot have, as docker does: the runtime would take it,
/// and nothing would appear.
fn check_propagation(path: &Path, opened: &OwnedFd, wanted: Propagation) -> Result<(), VolumeError> {
    let is_enough: fn(&MountInfo) -> bool = match wanted {
        Propagation::Private | Propagation::RPrivate => return Ok(()),
        Propagation::Shared | Propagation::RShared => |mount| has(mount, "shared:"),
        Propagation::Slave | Propagation::RSlave => |mount| has(mount, "shared:") || has(mount, "master:"),
    };
    let table =
        mounts().map_err(|error| VolumeError::file("find the mount of", path)(io::Error::other(error)))?;
    let number = mount_id(opened.as_fd()).map_err(VolumeError::file("find the mount of", path))?;
    match table.iter().find(|mount| mount.id == number) {
        Some(mount) if !is_enough(mount) => Err(VolumeError::Propagation {
            path: path.to_owned(),
            mount: mount.target.clone(),
            needed: "shared",
            option: wanted.name(),
        }),
        _ => Ok(()),
    }
}

fn has(mount: &MountInfo, field: &str) -> bool {
    mount.propagation.iter().any(|one| one.starts_with(field))
}
