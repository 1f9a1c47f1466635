//! What root makes in the directory of another user belongs to that user.
//!
//! A registry often runs as a user of its own, and an administrator runs `doctor`, `gc` or `scrub` as root. A folder, an object or a lock that root made
//! there and kept would be one that the registry can neither read nor write.
//!
//! The owner of the directory can rename whatever is in it at any time, and put links in place of folders. So each thing is made in a directory
//! that is open, and gets the owner of that very directory: with a link to a directory of root's, nothing changes hands.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{CWD, Dir, Gid, Mode, OFlags, Uid, fchown, mkdirat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::CapabilitySet;

use crate::process::has_capability;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Whether this process is root's and has its rights. Without the right to pass by permissions, root itself could not use any more what it
/// has given away.
fn is_root() -> bool {
    geteuid().is_root() && has_capability(CapabilitySet::DAC_OVERRIDE)
}

/// Makes a file that is not there yet, and opens it with these flags.
///
/// # Errors
/// If it is there, or cannot be made.
pub fn create_new(path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    let (directory, name) = opened_parent(path)?;
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(&directory, name, flags, mode)?);
    if is_root() {
        hand_over(&file, &directory);
    }
    Ok(file)
}

/// Copies a file to one that is not there yet, which is its owner's alone.
///
/// # Errors
/// If one cannot be read, or the other one cannot be made or written.
pub fn copy_new(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = File::open(from)?;
    let mut made = create_new(to, OFlags::WRONLY, Mode::RUSR | Mode::WUSR)?;
    io::copy(&mut from, &mut made).map(drop)
}

/// Whether a file of this owner would get another one, were it made as `path`: then a link to it would not be as if it had been made there.
pub fn would_change(owner: &Metadata, path: &Path) -> bool {
    let directory = path.parent().and_then(|directory| directory.metadata().ok());
    is_root() && directory.is_some_and(|directory| owner.uid() != directory.uid())
}

/// Makes a directory, and those that it is in, as far as they are missing.
///
/// # Errors
/// If one cannot be made.
pub fn make_directories(path: &Path) -> io::Result<()> {
    if !is_root() {
        return DirBuilder::new().recursive(true).mode(0o700).create(path);
    }
    if path.is_dir() {
        return Ok(());
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.map_or(Ok(()), make_directories)?;
    let (directory, name) = opened_parent(path)?;
    match mkdirat(&directory, name, Mode::RWXU) {
        Ok(()) => {}
        // Somebody else has made it meanwhile, and it is theirs.
        Err(Errno::EXIST) if path.is_dir() => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    let made = File::from(openat(
        &directory,
        name,
        DIRECTORY | OFlags::NOFOLLOW,
        Mode::empty(),
    )?);
    // One that has something in it was made by somebody else, and has been put there since.
    if is_empty(&made)? {
        hand_over(&made, &directory);
    }
    Ok(())
}

/// The directory that a path is in, open, and the name in it.
fn opened_parent(path: &Path) -> io::Result<(File, &OsStr)> {
    let nameless = || {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} has no name", path.display()),
        )
    };
    let name = path.file_name().ok_or_else(nameless)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let opened = openat(CWD, parent.unwrap_or(Path::new(".")), DIRECTORY, Mode::empty())?;
    Ok((opened.into(), name))
}

fn is_empty(directory: &File) -> io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives what this process has just made in a directory the owner of that directory. Where the file system keeps no owners, or root may
/// not change them, it stays as it is.
fn hand_over(made: &File, directory: &File) {
    let (Ok(of_made), Ok(of_directory)) = (made.metadata(), directory.metadata()) else {
        return;
    };
    let owner = |metadata: &Metadata| (metadata.uid(), metadata.gid());
    let is_own = of_made.uid() == geteuid().as_raw();
    if is_own && owner(&of_made) != owner(&of_directory) {
        let (user, group) = owner(&of_directory);
        let _ = fchown(
            made.as_fd(),
            Some(Uid::from_raw(user)),
            Some(Gid::from_raw(group)),
        );
    }
}
