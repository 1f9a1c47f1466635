//! Files of objects, linked and copied to directories of backups and back. All of it blocks.

use std::fs;
use std::io;
use std::path::Path;

use xebec_kernel::file::sync_directory;
use xebec_kernel::owner::{copy_new, would_change};

use crate::digest::{Digest, Hasher};
use crate::directory::make_directory;

/// Removes a file, which need not be there.
///
/// # Errors
/// If it stays.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Links a file to `to`, or copies it to `copy` where that cannot be; whether it was copied. A link is whole at once, and a copy is not.
///
/// # Errors
/// `NotFound` if there is no such file; others of either file system.
pub fn link_or_copy(from: &Path, to: &Path, copy: &Path) -> io::Result<bool> {
    to.parent().map_or(Ok(()), make_directory)?;
    remove(to)?;
    let is_copied = match fs::hard_link(from, to) {
        Ok(()) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
        // On another file system, or one without links.
        Err(_) => {
            remove(copy)?;
            copy_new(from, copy)?;
            fs::File::open(copy)?.sync_all()?;
            true
        }
    };
    to.parent().map_or(Ok(()), sync_directory)?;
    Ok(is_copied)
}

/// Gives a copy the name of its object, now that its bytes are right and durable.
///
/// # Errors
/// Those of the file system.
pub fn give_name(copy: &Path, to: &Path) -> io::Result<()> {
    to.parent().map_or(Ok(()), make_directory)?;
    fs::rename(copy, to)?;
    to.parent().map_or(Ok(()), sync_directory)
}

/// The digest of a file, by the algorithm of the one that it should have.
///
/// # Errors
/// If it cannot be read.
pub fn hash(path: &Path, wanted: &Digest) -> io::Result<Digest> {
    let mut hasher = Hasher::new(wanted.algorithm());
    hasher.read(fs::File::open(path)?)?;
    Ok(hasher.finish())
}

/// Links a file, or copies it: to a file that belongs to the registry's user, if root restores it and the backup is somebody else's.
///
/// # Errors
/// As of [`link_or_copy`].
pub fn copy(source: &Path, target: &Path) -> io::Result<()> {
    target.parent().map_or(Ok(()), make_directory)?;
    if !would_change(&fs::metadata(source)?, target) {
        return link_or_copy(source, target, target).map(drop);
    }
    remove(target)?;
    copy_new(source, target)?;
    fs::File::open(target)?.sync_all()?;
    target.parent().map_or(Ok(()), sync_directory)
}
