//! Tells Xebec's own mounts from others: Xebec unmounts nothing else, and mounts nothing upon others' mounts.
//!
//! A view in a user's directory is ours by its record and by what the kernel says: it is EROFS, its whole tree, on the device of
//! the view that the record names. In the run directory a view is ours by its metadata image, and a mount of the cache by
//! being the same directory as the cache.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tracing::warn;
use xebec_kernel::file::is_same;
use xebec_kernel::mount::{self, MountInfo, Top};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::Holder;

use super::record::{ViewRecord, same};
use super::shown::shown;
use super::table::Views;
use crate::view;

impl Views {
    /// Takes a view out of a directory that holds it, the uppermost if there are several, one on the other.
    ///
    /// # Errors
    /// When no view is there; when what is there is not Xebec's, or has something mounted below it: then nothing happens.
    pub fn release_directory(&self, directory: &Path) -> Result<(), Failure> {
        let holder = Holder::Directory {
            path: directory.to_owned(),
        };
        let Some(over) = self.unmount_uppermost(directory, &holder)? else {
            return self.release(None, &holder);
        };
        for name in over {
            match self.release(Some(&name), &holder) {
                // A sweep has seen that nothing is mounted there any more.
                Err(failure) if failure.kind == FailureKind::NotFound => {}
                released => released?,
            }
        }
        Ok(())
    }

    /// Unmounts what is mounted uppermost at a directory if it is a view that the directory holds. Gives the names of the views
    /// that are not mounted there any more; `None` if nothing was mounted there.
    fn unmount_uppermost(&self, directory: &Path, holder: &Holder) -> Result<Option<Vec<String>>, Failure> {
        let looked = |error| {
            Failure::host(
                format!("look at what is mounted at {}", directory.display()),
                error,
            )
        };
        let table = self.lock();
        let held = || {
            table
                .values()
                .filter(|record| record.holders.iter().any(|other| same(other, holder)))
        };
        let Some(top) = Top::at(directory).map_err(looked)? else {
            return Ok(None);
        };
        if !held().any(|record| self.is_view(record, top.info(), top.table())) {
            return Err(match is_own_view(&self.paths, top.info()) {
                true => not_of_a_user(top.info()),
                false => not_ours(top.info()),
            });
        }
        if let Some(other) = top.below().next() {
            let message = format!(
                "{} ({} from {}) is mounted in the view at {}; unmount it first",
                other.target.display(),
                other.filesystem,
                other.source.display(),
                directory.display()
            );
            return Err(Failure::new(FailureKind::Usage, message));
        }
        let target = top.info().target.clone();
        top.detach()
            .map_err(|error| Failure::host(format!("unmount {}", directory.display()), error))?;
        let left = mount::mounts().map_err(looked)?;
        let stays = |record: &ViewRecord| {
            let mut there = left.iter().filter(|mount| mount.target == target);
            there.any(|mount| self.is_view(record, mount, &left))
        };
        let over = held().filter(|record| !stays(record));
        Ok(Some(over.map(|record| record.name.clone()).collect()))
    }

    /// Whether a view may be mounted on a directory: one that is empty, and where nothing is mounted.
    ///
    /// # Errors
    /// [`FailureKind::Usage`], which says why not.
    pub fn check_target(&self, target: &Path) -> Result<(), Failure> {
        let table = self.lock();
        self.open_target(&table, target).map(drop)
    }

    /// The same, and opens it: the caller gets the directory that was checked, even if another is put in its place.
    pub(super) fn open_target(
        &self,
        table: &BTreeMap<String, ViewRecord>,
        target: &Path,
    ) -> Result<OwnedFd, Failure> {
        let refused = |why: String| {
            Failure::new(
                FailureKind::Usage,
                format!("cannot mount on {}: {why}", target.display()),
            )
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(target, flags, Mode::empty());
        let directory = opened.map_err(|errno| match errno {
            rustix::io::Errno::NOENT => refused("there is no such directory; make it first".to_owned()),
            rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => {
                refused("it is not a directory".to_owned())
            }
            errno => refused(errno.to_string()),
        })?;
        let copy = directory.as_fd().try_clone_to_owned();
        let copy = copy.map_err(|error| Failure::host("open the mount point", error))?;
        let top = Top::of(copy).map_err(|error| Failure::host("look at the mount point", error))?;
        if let Some(top) = top {
            let info = top.info();
            let view = table
                .values()
                .find(|record| self.is_view(record, info, top.table()));
            return Err(match view {
                Some(view) => shown(view, target, &info.options).refusal(),
                None => refused(format!(
                    "{} from {} is mounted there, and would be hidden; choose an empty directory",
                    info.filesystem,
                    info.source.display()
                )),
            });
        }
        let listed = fs::read_dir(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&directory)
        ));
        match listed.map(|mut entries| entries.next().is_some()) {
            Err(error) => Err(refused(error.to_string())),
            Ok(true) => Err(refused(
                "it is not empty, and what is in it would be hidden; choose an empty directory".to_owned(),
            )),
            Ok(false) => Ok(directory),
        }
    }

    /// Whether a mount is the view of a record, or bound from it.
    pub(super) fn is_view(&self, record: &ViewRecord, info: &MountInfo, table: &[MountInfo]) -> bool {
        let device = |mount: &MountInfo| (mount.major, mount.minor);
        let own = table.iter().rfind(|mount| mount.target == record.path);
        info.filesystem == "erofs"
            && info.root == Path::new("/")
            && match own {
                Some(own) => is_metadata_mount(&self.paths, &record.name, own) && device(own) == device(info),
                // Somebody unmounted the view itself.
                None => info.source == view::metadata(&self.paths, &record.name),
            }
    }

    /// Unmounts a view from a directory that holds it, once for each time that it was mounted there. Mounts of others on it stay.
    pub(super) fn clear_directory(&self, record: &ViewRecord, directory: &Path) {
        while let Ok(Some(top)) = Top::at(directory) {
            if !self.is_view(record, top.info(), top.table()) {
                return warn!("{}", not_ours(top.info()));
            }
            if let Err(error) = top.detach() {
                return warn!("{error}");
            }
        }
    }
}

/// Unmounts a view in the run directory, lazily if readers hold it.
pub(super) fn unmount_view(paths: &Paths, name: &str, at: &Path) -> Result<(), Failure> {
    let top = Top::at(at).map_err(|error| Failure::host("look at a view", error))?;
    match top {
        Some(top) if !is_metadata_mount(paths, name, top.info()) => Err(not_ours(top.info())),
        Some(top) => top
            .detach()
            .map_err(|error| Failure::host(format!("unmount {}", at.display()), error)),
        // Somebody may have done it.
        None => Ok(()),
    }
}

/// Takes a view's mount for arriving pages away, unless it is still read through: by processes that read on after the view was
/// unmounted. Then it must stay where the next keeper finds it, so that it is guarded again. Whether it is gone.
pub(super) fn remove_unused_mount(paths: &Paths, path: &Path) -> bool {
    while mount::is_mounted(path).unwrap_or(true) {
        let Ok(Some(top)) = Top::at(path) else {
            return false;
        };
        if !is_cache_mount(paths, path) || top.unmount().is_err() {
            return false;
        }
    }
    fs::remove_dir(path).is_ok()
}

/// Takes a view's own mount of the blob cache away.
pub(super) fn remove_own_mount(paths: &Paths, path: &Path) {
    if mount::is_mounted(path).unwrap_or(false) {
        if !is_cache_mount(paths, path) {
            return warn!(
                "{} is not a mount of the cache; Xebec leaves it alone",
                path.display()
            );
        }
        match Top::at(path).and_then(|top| top.map_or(Ok(()), Top::detach)) {
            Ok(()) => {}
            Err(error) => warn!("{error}"),
        }
    }
    let _ = fs::remove_dir(path);
}

fn is_cache_mount(paths: &Paths, path: &Path) -> bool {
    is_same(&paths.layers(), path)
}

/// A metadata image whose path is too long for the kernel is given by its descriptor.
fn is_metadata_mount(paths: &Paths, name: &str, info: &MountInfo) -> bool {
    info.filesystem == "erofs"
        && (info.source == view::metadata(paths, name) || info.source.starts_with("/proc/self/fd"))
}

/// Whether it is a view, wherever it is mounted.
fn is_own_view(paths: &Paths, info: &MountInfo) -> bool {
    info.filesystem == "erofs" && info.source.starts_with(paths.root())
}

fn not_of_a_user(info: &MountInfo) -> Failure {
    let message = format!(
        "what is mounted at {} is a view of Xebec for containers or for the next start, not one of `xebec mount`; Xebec \
         leaves it alone, and unmounts it when nothing needs it",
        info.target.display()
    );
    Failure::new(FailureKind::NotFound, message)
}

fn not_ours(info: &MountInfo) -> Failure {
    let message = format!(
        "what is mounted at {} ({} from {}) is not a view of Xebec; Xebec leaves it alone (unmount it with umount(8))",
        info.target.display(),
        info.filesystem,
        info.source.display()
    );
    Failure::new(FailureKind::NotFound, message)
}
