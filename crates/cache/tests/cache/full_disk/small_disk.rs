//! A disk with little room, which tells the truth about it or does not.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use xebec_cache::disk::{Access, Disk, DiskFile, RealDisk};
use xebec_kernel::file::FileIdentity;

/// The value of `told` for a disk that reports what is really left.
pub(super) const TRUTH: u64 = u64::MAX;

/// What the disk refuses to do with the files beside data files.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    Nothing,
    /// To write, for this reason.
    Write(io::ErrorKind),
    Sync,
}

/// The real disk, whose data files may take `left` bytes more, and which says that `told` are free.
#[derive(Clone, Debug)]
pub(super) struct SmallDisk {
    pub(super) left: Arc<AtomicU64>,
    pub(super) told: Arc<AtomicU64>,
    refusal: Arc<Mutex<Refusal>>,
}

impl SmallDisk {
    pub(super) fn new(left: u64, told: u64) -> Self {
        Self {
            left: Arc::new(AtomicU64::new(left)),
            told: Arc::new(AtomicU64::new(told)),
            refusal: Arc::new(Mutex::new(Refusal::Nothing)),
        }
    }

    pub(super) fn refuse(&self, refusal: Refusal) {
        *self.refusal.lock() = refusal;
    }
}

impl Disk for SmallDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let file = RealDisk.open(path, access)?;
        match path.ends_with("data") {
            true => Ok(Arc::new(SmallFile(file, self.left.clone()))),
            false => Ok(Arc::new(FileBeside(file, self.refusal.clone()))),
        }
    }

    fn free(&self, _path: &Path) -> io::Result<Option<u64>> {
        let told = match self.told.load(Ordering::Relaxed) {
            TRUTH => &self.left,
            _ => &self.told,
        };
        Ok(Some(told.load(Ordering::Relaxed)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        RealDisk.read(path)
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_directories(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_directory(path)
    }

    fn remove_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_all(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(path)
    }

    fn exists(&self, path: &Path) -> bool {
        RealDisk.exists(path)
    }

    fn modified(&self, path: &Path) -> io::Result<SystemTime> {
        RealDisk.modified(path)
    }

    fn set_modified(&self, path: &Path, time: SystemTime) -> io::Result<()> {
        RealDisk.set_modified(path, time)
    }
}

#[derive(Debug)]
struct SmallFile(Arc<dyn DiskFile>, Arc<AtomicU64>);

impl DiskFile for SmallFile {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let length = bytes.len() as u64;
        let take = |left: u64| left.checked_sub(length);
        if self
            .1
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_err()
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_all_at(bytes, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        self.0.punch(range)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.0.identity()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}

#[derive(Debug)]
struct FileBeside(Arc<dyn DiskFile>, Arc<Mutex<Refusal>>);

impl DiskFile for FileBeside {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match *self.1.lock() {
            Refusal::Write(kind) => Err(kind.into()),
            _ => self.0.write_all_at(bytes, offset),
        }
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        self.0.punch(range)
    }

    fn sync_data(&self) -> io::Result<()> {
        match *self.1.lock() {
            Refusal::Sync => Err(io::Error::other("worn out")),
            _ => self.0.sync_data(),
        }
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.0.identity()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}
