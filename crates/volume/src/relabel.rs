//! `z` and `Z`: labels of SELinux for what a container may use.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags, XattrFlags, fstat, openat, setxattr};

use super::error::VolumeError;
use super::levels::{LEVELS, identified, too_deep};
use super::request::Relabel;

/// The attribute of the label.
const LABEL: &CStr = c"security.selinux";

/// Directories of the host that keep their labels; docker's and podman's.
const HOSTS: [&str; 13] = [
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/proc", "/root", "/run", "/sys", "/usr", "/var",
];

/// Labels the file or directory at `path`, which `opened` (`O_PATH`) is, with all that is in it. `file` is the label of the
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

/// Sets an attribute of a file, or of a directory and all that is in it, through no link and onto no other mount. It labels the
/// opened file, and does not look up its name again: a process that uses the directory may put another file in its place at any moment.
pub(super) fn label_tree(top: BorrowedFd<'_>, attribute: &CStr, label: &[u8]) -> io::Result<()> {
    set(top, attribute, label)?;
    let mut levels: Vec<Dir> = entered(top)?.into_iter().collect();
    while let Some(names) = levels.last_mut() {
        let Some(entry) = names.read() else {
            levels.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Some(opened) = identified(names.fd()?, name)? else {
            continue;
        };
        set(opened.as_fd(), attribute, label)?;
        match entered(opened.as_fd())? {
            Some(_) if levels.len() >= LEVELS => {
                return Err(too_deep("leave z and Z out, and label it with chcon -R"));
            }
            below => levels.extend(below),
        }
    }
    Ok(())
}

/// Calls on attributes take no descriptor that only identifies a file. A link is labelled itself.
fn set(file: BorrowedFd<'_>, attribute: &CStr, label: &[u8]) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(setxattr(path, attribute, label, XattrFlags::empty())?)
}

/// Opens a directory to read its names. `None` if it is another file.
fn entered(file: BorrowedFd<'_>) -> io::Result<Option<Dir>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match FileType::from_raw_mode(fstat(file)?.st_mode) {
        FileType::Directory => Ok(Some(Dir::new(openat(file, c".", flags, Mode::empty())?)?)),
        _ => Ok(None),
    }
}
