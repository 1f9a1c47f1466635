//! The file operations that the cache's durability rests on, as a trait: the real file system below it, or a disk
//! of the tests that loses what was not synced.
//!
//! These assumptions are made about a disk, and no others:
//! * After a power cut, all is there that [`DiskFile::sync_data`] covered: bytes, holes and length.
//! * Of later writes, any part may be there, sector by sector, in any order.
//! * A name is there for certain after [`Disk::sync_directory`] of its directory; a file's own sync says nothing
//!   about its name. A rename is whole or not at all.
//! * Within one boot the page cache is the truth, whatever process dies.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::FallocateFlags;
use xebec_kernel::file::FileIdentity;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To read one that is there.
    Read,
    /// To read and write one that is there.
    Write,
    /// To read and write it; it is made, empty, if it is not there.
    Create,
}

/// A file system.
pub trait Disk: Send + Sync + Debug {
    /// Opens a file.
    ///
    /// # Errors
    /// Those of `open(2)`.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>>;

    /// How many bytes may still be written below `path`; `None` if the file system does not say.
    ///
    /// # Errors
    /// Those of `statvfs(3)`.
    fn free(&self, path: &Path) -> io::Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }

    /// The whole contents of a file.
    ///
    /// # Errors
    /// Those of `open(2)` and `read(2)`.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Makes a directory and its parents; nothing happens if it is there.
    ///
    /// # Errors
    /// Those of `mkdir(2)`.
    fn create_directories(&self, path: &Path) -> io::Result<()>;

    /// Gives a file or directory another name. An existing file there is replaced, an existing directory only if
    /// it is empty.
    ///
    /// # Errors
    /// Those of `rename(2)`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name.
    ///
    /// # Errors
    /// Those of `unlink(2)`.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of `rmdir(2)`.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with what is in it.
    ///
    /// # Errors
    /// Those of its parts; some of it may be gone then.
    fn remove_all(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// Those of `fsync(2)`.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;

    /// The names in a directory.
    ///
    /// # Errors
    /// Those of `readdir(3)`.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Whether a file or directory has that name.
    fn exists(&self, path: &Path) -> bool;

    /// When a file was last changed, or [`Disk::set_modified`].
    ///
    /// # Errors
    /// Those of `stat(2)`.
    fn modified(&self, path: &Path) -> io::Result<SystemTime>;

    /// Sets a file's time.
    ///
    /// # Errors
    /// Those of `utimensat(2)`.
    fn set_modified(&self, path: &Path, time: SystemTime) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Send + Sync + Debug {
    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` beyond the end; those of `pread(2)`.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Those of `pwrite(2)`.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file or extends it by a hole.
    ///
    /// # Errors
    /// Those of `ftruncate(2)`.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Gives the room of a range back; it reads as zeros from then on.
    ///
    /// # Errors
    /// Those of `fallocate(2)`; `Unsupported` where the file system has no holes.
    fn punch(&self, range: Range<u64>) -> io::Result<()>;

    /// Makes contents and length durable.
    ///
    /// # Errors
    /// Those of `fdatasync(2)`. Bytes written since the last success may then be lost although they read well.
    fn sync_data(&self) -> io::Result<()>;

    /// Length in bytes.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    fn length(&self) -> io::Result<u64>;

    /// Device and inode number.
    ///
    /// # Errors
    /// Those of `fstat(2)`.
    fn identity(&self) -> io::Result<FileIdentity>;

    /// The descriptor, if the file is one of the kernel's.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// The kernel's file systems.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let file = match access {
            Access::Read => File::open(path)?,
            Access::Write => OpenOptions::new().read(true).write(true).open(path)?,
            Access::Create => OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?,
        };
        Ok(Arc::new(RealFile(file)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn free(&self, path: &Path) -> io::Result<Option<u64>> {
        let told = rustix::fs::statvfs(path)?;
        // Blocks reserved for root count: the daemon is root. Some file systems do not report their size.
        Ok((told.f_blocks > 0).then(|| told.f_bfree.saturating_mul(told.f_frsize)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_all(&self, path: &Path) -> io::Result<()> {
        xebec_kernel::remove::remove_tree(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(path)?
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.collect())
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn modified(&self, path: &Path) -> io::Result<SystemTime> {
        fs::metadata(path)?.modified()
    }

    fn set_modified(&self, path: &Path, time: SystemTime) -> io::Result<()> {
        File::open(path)?.set_modified(time)
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let length = range.end.saturating_sub(range.start);
        Ok(rustix::fs::fallocate(&self.0, flags, range.start, length)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        FileIdentity::of(&self.0)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_a_file_system_is_known_if_it_has_a_size() {
        let directory = tempfile::tempdir().unwrap();
        let free = RealDisk.free(directory.path()).unwrap();
        assert!(free.is_some_and(|free| free > 4096), "{free:?}");
        // A full one is none of unknown size: /proc says that it has no blocks at all.
        assert_eq!(RealDisk.free(Path::new("/proc")).unwrap(), None);
        assert!(RealDisk.free(&directory.path().join("missing")).is_err());
    }

    #[test]
    fn a_sync_that_the_kernel_refuses_fails() {
        let null = RealDisk.open(Path::new("/dev/null"), Access::Write).unwrap();
        assert_eq!(null.sync_data().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let missing = RealDisk.sync_directory(Path::new("/proc/missing"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_hole_keeps_the_length_and_reads_as_zeros() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let file = RealDisk.open(&path, Access::Create).unwrap();
        file.write_all_at(&[7; 12288], 0).unwrap();
        file.punch(8192..16384).unwrap();
        file.punch(0..4096).unwrap();
        assert_eq!(file.length().unwrap(), 12288);
        let bytes = RealDisk.read(&path).unwrap();
        assert!(bytes[4096..8192].iter().all(|byte| *byte == 7));
        assert!(bytes[..4096].iter().chain(&bytes[8192..]).all(|byte| *byte == 0));
    }
}
