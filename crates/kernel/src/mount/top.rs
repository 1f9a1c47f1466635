//! The mount at a place, held by a descriptor: Xebec takes down the very mount that it looked at.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::{MountError, MountInfo, descriptor_path, mounts};

/// The uppermost mount at a place. As long as the value lives, the kernel gives its number to no other mount.
#[derive(Debug)]
pub struct Top {
    fd: OwnedFd,
    info: MountInfo,
    table: Vec<MountInfo>,
}

/// Whether a mount's target is the place of a descriptor as `/proc/self/fd` has it: with " (deleted)" behind it if the directory
/// that is mounted there was removed (`d_path` in `fs/d_path.c`), which the table of mounts leaves out.
fn is_place(target: &Path, place: &Path) -> bool {
    let without = place.as_os_str().as_bytes().strip_suffix(b" (deleted)");
    target == place || without.is_some_and(|without| target.as_os_str().as_bytes() == without)
}

impl Top {
    /// Looks at the mount exactly at `target`; `None` if there is none, or no such path. If the last part of the path is a link, it
    /// is the link that is looked at.
    ///
    /// # Errors
    /// [`MountError::Unmount`] when the place cannot be opened, [`MountError::Table`].
    pub fn at(target: &Path) -> Result<Option<Top>, MountError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(CWD, target, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(MountError::Unmount {
                target: target.to_owned(),
                source: errno.into(),
            }),
            Ok(fd) => Top::of(fd),
        }
    }

    /// The same for a place that is open; `None` if it is not where a mount begins.
    ///
    /// # Errors
    /// [`MountError::Table`].
    pub fn of(fd: OwnedFd) -> Result<Option<Top>, MountError> {
        let unknown = |problem: String| MountError::Table { problem };
        let id = mount_id(fd.as_fd()).map_err(|error| unknown(error.to_string()))?;
        let place =
            std::fs::read_link(descriptor_path(fd.as_fd())).map_err(|error| unknown(error.to_string()))?;
        let table = mounts()?;
        let is_there = |mount: &&MountInfo| mount.id == id && is_place(&mount.target, &place);
        let info = table.iter().find(is_there);
        Ok(info.cloned().map(|info| Top { fd, info, table }))
    }

    /// The mount of a table, if it still is the uppermost at its place: another may have been mounted there since.
    ///
    /// # Errors
    /// As those of [`Top::at`].
    pub fn still(known: &MountInfo) -> Result<Option<Top>, MountError> {
        let is_it = |info: &MountInfo| {
            let identity = |mount: &MountInfo| (mount.id, mount.parent, mount.major, mount.minor);
            identity(info) == identity(known) && info.filesystem == known.filesystem
        };
        Ok(Top::at(&known.target)?.filter(|top| is_it(&top.info)))
    }

    /// Its row in the table of mounts.
    pub fn info(&self) -> &MountInfo {
        &self.info
    }

    /// All mounts of this namespace, as they were when it was looked at.
    pub fn table(&self) -> &[MountInfo] {
        &self.table
    }

    /// The mounts on directories of it.
    pub fn below(&self) -> impl Iterator<Item = &MountInfo> {
        self.table.iter().filter(|mount| mount.parent == self.info.id)
    }

    /// Takes it down unless a process uses it.
    ///
    /// The descriptor is such a use, so the place is left before, and asked by its name: this is for places that only root gets to.
    ///
    /// # Errors
    /// [`MountError::Unmount`], with `EBUSY` if it is used.
    pub fn unmount(self) -> Result<(), MountError> {
        drop(self.fd);
        let unmounted = rustix::mount::unmount(&self.info.target, UnmountFlags::NOFOLLOW);
        unmounted.map_err(|errno| MountError::Unmount {
            target: self.info.target,
            source: errno.into(),
        })
    }

    /// Takes it out of the tree at once; the file system goes when its last user does.
    ///
    /// A process that may mount in this namespace can put another mount on it in between, which then goes instead: the kernel
    /// has no call that unmounts by number.
    ///
    /// # Errors
    /// [`MountError::Unmount`].
    pub fn detach(self) -> Result<(), MountError> {
        // The link leads to the mount itself, whatever has been renamed since; it must be followed.
        let unmounted = rustix::mount::unmount(descriptor_path(self.fd.as_fd()), UnmountFlags::DETACH);
        unmounted.map_err(|errno| MountError::Unmount {
            target: self.info.target,
            source: errno.into(),
        })
    }
}

/// The number of the mount that a descriptor was opened by (`Documentation/filesystems/proc.rst`, section 3.8), as
/// [`MountInfo::id`] has it.
///
/// # Errors
/// If `/proc` is not mounted, or is of another process namespace.
pub fn mount_id(fd: BorrowedFd<'_>) -> std::io::Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    number
        .and_then(|number| number.trim().parse().ok())
        .ok_or_else(|| std::io::Error::other("a descriptor has no mount"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_a_mount_and_a_directory_is_none() {
        let top = Top::at(Path::new("/proc")).unwrap().unwrap();
        assert_eq!(top.info().filesystem, "proc");
        assert_eq!(top.info().target, Path::new("/proc"));
        let directory = tempfile::tempdir().unwrap();
        assert!(Top::at(directory.path()).unwrap().is_none());
        assert!(Top::at(&directory.path().join("missing")).unwrap().is_none());
    }

    #[test]
    fn a_link_to_a_mount_is_no_mount() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        assert!(Top::at(&link).unwrap().is_none());
    }
}
