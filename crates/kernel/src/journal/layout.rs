//! The bytes of the journal, and the mapping of them.
//!
//! ```text
//! page 0        header: magic, version, limits, counters
//! page 1        raw events, exactly as read(2) delivered them; zeroed before each read
//! page 2 ...    pending table: CAPACITY entries of 64 bytes
//! ```
//!
//! The file is a sealed memfd of fixed size, mapped shared, prefaulted and locked: writing to it can neither
//! fail nor block, and it outlives a process that maps it as long as another one holds its descriptor. Integers are
//! in the machine's own byte order: the journal never leaves the host nor survives a boot.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use super::JournalError;
use super::limits::{CAPACITY, RAW_BYTES};

/// `XBCJRNL` and a NUL.
const MAGIC: u64 = u64::from_ne_bytes(*b"XBCJRNL\0");

/// Version of this layout, and of which numbers a worker's descriptors have that no event can have: workers of version 2
/// had one fewer, without containerd's socket. A worker of another version must not touch the journal.
pub(super) const VERSION: u32 = 3;

/// An entry is free: its other fields mean nothing.
pub(super) const FREE: u32 = 0;
/// The entry's event is owed an answer.
pub(super) const OWED: u32 = 1;
/// The entry's event is owed an answer, and a worker has begun to bring its bytes.
pub(super) const FILLING: u32 = 2;

#[repr(C, align(4096))]
pub(super) struct Layout {
    pub(super) header: Header,
    pub(super) raw: RawBuffer,
    pub(super) entries: [Entry; CAPACITY],
}

#[repr(C, align(4096))]
pub(super) struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    capacity: AtomicU32,
    /// An event whose handling was under way at this many deaths of a worker is denied.
    pub(super) deaths_allowed: AtomicU32,
    /// Workers that died.
    pub(super) deaths: AtomicU32,
    /// Workers that were started.
    pub(super) starts: AtomicU32,
    /// 1 when a stop was requested; a worker that starts later must know.
    pub(super) stopping: AtomicU32,
    /// The worker's report on its end; a [`super::LastWord`].
    pub(super) last_word: AtomicU32,
    /// 1 after a time in which nobody held the group, until a worker has looked for pages that may have been read.
    pub(super) unguarded: AtomicU32,
    /// A [`super::Custody`].
    pub(super) custody: AtomicU32,
    /// Keepers so far.
    pub(super) keepers: AtomicU32,
    pub(super) keeper_pid: AtomicI32,
    pub(super) worker_pid: AtomicI32,
    /// Inode of the socket's path, if a keeper made it; 0 if it came from elsewhere.
    pub(super) own_socket: AtomicU64,
    pub(super) serial: AtomicU64,
    pub(super) events: AtomicU64,
    pub(super) allowed: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) not_owed: AtomicU64,
    pub(super) adopted_pending: AtomicU64,
    pub(super) adopted_raw: AtomicU64,
    pub(super) overflows: AtomicU64,
}

#[repr(C, align(4096))]
pub(super) struct RawBuffer(pub(super) UnsafeCell<[u8; RAW_BYTES]>);

#[repr(C, align(64))]
pub(super) struct Entry {
    pub(super) state: AtomicU32,
    /// Number of the event's descriptor.
    pub(super) number: AtomicI32,
    pub(super) pid: AtomicI32,
    /// Workers that died while the entry was being filled.
    pub(super) deaths: AtomicU16,
    /// 1 when `dev` and `ino` name the file; 0 when its reader died before it looked.
    pub(super) file_known: AtomicU16,
    /// When it was first on record, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) since: AtomicU64,
    pub(super) dev: AtomicU64,
    pub(super) ino: AtomicU64,
    pub(super) offset: AtomicU64,
    pub(super) count: AtomicU64,
    pub(super) serial: AtomicU64,
}

/// The journal, mapped.
#[derive(Debug)]
pub(super) struct Mapping {
    file: OwnedFd,
    layout: NonNull<Layout>,
}

// SAFETY: the mapping is plain memory that belongs to no thread; everything in it is atomic except the raw
// buffer, which `Intake` alone touches, and there is one `Intake` per journal and process.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates the memfd and maps it.
    pub(super) fn create() -> Result<Mapping, JournalError> {
        let error = |errno: rustix::io::Errno| JournalError::Create { source: errno.into() };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("xebec-journal", flags).map_err(error)?;
        rustix::fs::ftruncate(&fd, size_of::<Layout>() as u64).map_err(error)?;
        // A file that cannot shrink can never turn an access to the mapping into SIGBUS.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals).map_err(error)?;
        let mapping = Mapping::map(fd).map_err(error)?;
        let header = &mapping.layout().header;
        header.version.store(VERSION, Ordering::Relaxed);
        header.capacity.store(CAPACITY as u32, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(mapping)
    }

    /// Maps a journal that another process created.
    pub(super) fn open(fd: OwnedFd) -> Result<Mapping, JournalError> {
        let error = |errno: rustix::io::Errno| JournalError::Open { source: errno.into() };
        let size = rustix::fs::fstat(&fd).map_err(error)?.st_size;
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(error)?;
        if size != size_of::<Layout>() as i64 || !seals.contains(SealFlags::SHRINK) {
            return Err(JournalError::Foreign {
                problem: "its size or its seals are not those of a journal",
            });
        }
        let mapping = Mapping::map(fd).map_err(error)?;
        let header = &mapping.layout().header;
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(JournalError::Foreign {
                problem: "it does not start with the mark of a journal",
            });
        }
        if header.version.load(Ordering::Relaxed) != VERSION
            || header.capacity.load(Ordering::Relaxed) != CAPACITY as u32
        {
            return Err(JournalError::Foreign {
                problem: "another version of Xebec wrote it",
            });
        }
        Ok(mapping)
    }

    pub(super) fn layout(&self) -> &Layout {
        // SAFETY: the mapping has the size of a `Layout`, is page-aligned as `Layout` asks, and lives until
        // drop. Any bytes are a valid `Layout`: it consists of integers, all of them atomic or in a cell.
        unsafe { self.layout.as_ref() }
    }

    /// The memfd.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn map(fd: OwnedFd) -> rustix::io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: the kernel chooses a free address range; nothing that exists is replaced.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                size_of::<Layout>(),
                protection,
                flags,
                &fd,
                0,
            )
        }?;
        let layout = NonNull::new(address.cast::<Layout>()).ok_or(rustix::io::Errno::NOMEM)?;
        let mapping = Mapping { file: fd, layout };
        // SAFETY: the range is the mapping that was just made.
        unsafe { rustix::mm::mlock(address, size_of::<Layout>()) }?;
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and no reference into it outlives `self`.
        let _: io::Result<()> =
            unsafe { rustix::mm::munmap(self.layout.as_ptr().cast(), size_of::<Layout>()) }
                .map_err(io::Error::from);
    }
}
