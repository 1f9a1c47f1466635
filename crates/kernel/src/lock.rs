//! Locks of files and directories between processes (`flock(2)`).
//!
//! A lock ends when the last descriptor of the opened file is closed, at the latest with the processes that
//! hold it. A descriptor that a child inherits holds it, too; the standard library opens files so that no
//! child does.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Locks the file at `path`, which is created with this mode if it is missing. Waits for another holder.
///
/// # Errors
/// I/O errors.
pub fn lock_file(path: &Path, mode: u32) -> io::Result<File> {
    let file = open_file(path, mode)?;
    file.lock()?;
    Ok(file)
}

/// Locks the file at `path`, which is created with this mode if it is missing.
///
/// # Errors
/// `WouldBlock` if another holder has the lock. Otherwise I/O errors.
pub fn try_lock_file(path: &Path, mode: u32) -> io::Result<File> {
    try_lock(open_file(path, mode)?)
}

/// Locks the directory at `path`. Waits for another holder.
///
/// # Errors
/// I/O errors; `NotFound` if there is no such directory.
pub fn lock_directory(path: &Path) -> io::Result<File> {
    let directory = open_directory(path)?;
    directory.lock()?;
    Ok(directory)
}

/// Locks the directory at `path`.
///
/// # Errors
/// `WouldBlock` if another holder has the lock. Otherwise as [`lock_directory`].
pub fn try_lock_directory(path: &Path) -> io::Result<File> {
    try_lock(open_directory(path)?)
}

fn try_lock(file: File) -> io::Result<File> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn open_file(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(mode);
    options.open(path)
}

fn open_directory(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(OFlags::DIRECTORY.bits().cast_signed());
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_holder_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let held = lock_directory(directory.path()).unwrap();
        let refused = try_lock_directory(directory.path()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        let _held = try_lock_directory(directory.path()).unwrap();
        let file = directory.path().join("file");
        drop(lock_file(&file, 0o600).unwrap());
        assert!(lock_directory(&file).is_err(), "a file is not a directory");
    }

    #[test]
    fn a_lock_file_is_created_once_and_keeps_its_contents() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let held = lock_file(&path, 0o600).unwrap();
        assert_eq!(held.metadata().unwrap().mode() & 0o777, 0o600);
        std::fs::write(&path, "text").unwrap();
        let refused = try_lock_file(&path, 0o600).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        let waiter = {
            let path = path.clone();
            std::thread::spawn(move || lock_file(&path, 0o600).map(drop))
        };
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!waiter.is_finished(), "two have the lock");
        drop(held);
        waiter.join().unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "text");
    }
}
