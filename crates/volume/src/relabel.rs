//! `z` and `Z`: labels of SELinux for what a container may use.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, XattrFlags, fstat, lsetxattr, openat, setxattr, statat,
};
use rustix::io::Errno;

use super::copy::{open_below, path_of};
use super::error::VolumeError;
use super::request::Relabel;

/// The attribute of the label.
const LABEL: &CStr = c"security.selinux";

/// Directories of the host that keep their labels; docker's and podman's.
const HOSTS: [&str; 13] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/proc", "/root", "/run", "/sys", "/usr", "/var",
];

/// Labels what is at `path`, which `opened` (`O_PATH`) is, with all that is in it. `file` is the label of the
/// container's own files, if the host has SELinux.
pub(super) fn relabel(
    path: &Path,
    opened: &OwnedFd,
    which: Relabel,
    file: Option<&str>,
) -> Result<(), VolumeError> {
    let Some(file) = file else {
        tracing::info!("this host has no SELinux, so z and Z do nothing");
        return Ok(());
    };
    if HOSTS.iter().any(|own| path == Path::new(own)) {
        return Err(VolumeError::HostsLabel(path.to_owned()));
    }
    let label = match which {
        Relabel::Private => file.to_owned(),
        // Without categories, which tell containers apart.
        Relabel::Shared => {
            let parts: Vec<&str> = file.splitn(4, ':').collect();
            let parts = parts.iter().take(3).copied().chain(["s0"]);
            parts.collect::<Vec<_>>().join(":")
        }
    };
    label_tree(opened.as_fd(), LABEL, label.as_bytes()).map_err(VolumeError::file("label", path))
}

/// Sets an attribute of a file, or of a directory and all that is in it, through no link and onto no other
/// mount.
pub(super) fn label_tree(top: BorrowedFd<'_>, attribute: &CStr, label: &[u8]) -> io::Result<()> {
    // Calls on attributes take no such descriptor.
    let itself = format!("/proc/self/fd/{}", top.as_raw_fd());
    setxattr(itself, attribute, label, XattrFlags::empty())?;
    if FileType::from_raw_mode(fstat(top)?.st_mode) != FileType::Directory {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = openat(top, c".", flags, Mode::empty())?;
    let mut left = vec![PathBuf::from(".")];
    while let Some(path) = left.pop() {
        let directory = match open_below(top.as_fd(), &path) {
            // Another mount, or gone meanwhile.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::XDEV | Errno::NOENT)) => {
                continue;
            }
            directory => directory?,
        };
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match lsetxattr(
                &path_of(directory.as_fd(), name)?,
                attribute,
                label,
                XattrFlags::empty(),
            ) {
                Err(Errno::NOENT) => continue,
                outcome => outcome?,
            }
            let status = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
                left.push(path.join(std::ffi::OsStr::from_bytes(name.to_bytes())));
            }
        }
    }
    Ok(())
}
