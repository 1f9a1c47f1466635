//! Going down a tree that others change meanwhile: from one open directory to a name in it.

use std::ffi::CStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// How deep a tree may be. A copy has two directories of each level open, of 1,024 files that a process may open as a rule, and no
/// tree that people make comes near.
pub(super) const LEVELS: usize = 256;

/// The error of a deeper tree. `advice` tells the user a remedy.
pub(super) fn too_deep(advice: &str) -> io::Error {
    io::Error::other(format!(
        "directories in it are deeper than {LEVELS} levels; {advice}"
    ))
}

/// Opens the file of that name in a directory itself, for example a link (`O_PATH`). `None` if nothing is there any more, or something
/// is mounted there.
pub(super) fn identified(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat2(directory, name, flags, Mode::empty(), one_step()) {
        Err(Errno::NOENT | Errno::XDEV) => Ok(None),
        opened => Ok(Some(opened?)),
    }
}

/// Opens a directory in a directory, to list it.
pub(super) fn below(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat2(directory, name, flags, Mode::empty(), one_step())?)
}

/// Through no link, and onto no other mount.
fn one_step() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV
}
