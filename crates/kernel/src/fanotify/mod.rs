//! A fanotify group that is asked before the contents of guarded files are read.
//!
//! The group is of class `FAN_CLASS_PRE_CONTENT` (Linux 6.14): the kernel suspends a reader *before* it looks
//! at the page cache, queues an event that names the file and the byte range, and goes on when the group
//! answers. One mark on a private bind mount guards every file that is opened through it; the same file opened
//! by its ordinary path is not guarded, which is how the daemon writes.
//!
//! The kernel's promises, and their limits (settled by experiment):
//! * A mark has effect on files opened *after* it was set. An EROFS mount opens its devices once, so the mark
//!   comes first and the mount second.
//! * The queue of this group is unlimited. On overflow the kernel would *allow* the read, and the reader would
//!   see zeros.
//! * An event is owed an answer until it is answered, whichever process read it, as long as any process holds the group.
//!   It is named by the number of the descriptor that came with it. When the last holder is gone, the kernel
//!   allows everything: zeros again.
//!
//! Kernel source: `fs/notify/fanotify/fanotify_user.c`.

mod event;

pub use event::{Event, Events, MIN_EVENT_BYTES, MalformedEvent};

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec};

/// `FAN_PRE_ACCESS` of `include/uapi/linux/fanotify.h`; the libc crate does not have it yet.
const FAN_PRE_ACCESS: u64 = 0x0010_0000;

/// The errno of a denial is in bits 24 to 31 of the response (`FAN_DENY_ERRNO` of the kernel header).
const FAN_ERRNO_SHIFT: u32 = 24;

/// How many bytes of events [`Group::take`] takes at a time: some 80 events, each of which opens a descriptor.
const TAKEN_BYTES: usize = 4096;

/// An error of a group, a mark or an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FanotifyError {
    /// The group could not be created.
    #[error(
        "cannot create a fanotify group for pre-content events: {source}; \
         it needs Linux 6.14 with CONFIG_FANOTIFY_ACCESS_PERMISSIONS, and CAP_SYS_ADMIN"
    )]
    Create {
        /// The error of the kernel.
        source: io::Error,
    },
    /// A mark could not be added or removed.
    #[error("cannot {action} {target}: {source}")]
    Mark {
        /// The action that failed, as a verb with its object.
        action: &'static str,
        /// The path or descriptor.
        target: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// Events could not be read.
    #[error("cannot read fanotify events: {source}")]
    Read {
        /// The error of the kernel. `EMFILE` means that a reader was already denied with `EPERM`.
        source: io::Error,
    },
    /// The answer to an event was not accepted.
    #[error("cannot answer the event with descriptor {number}: {source}")]
    Answer {
        /// The number of the event's descriptor.
        number: RawFd,
        /// The error of the kernel.
        source: io::Error,
    },
}

/// The error that a denied reader gets; the kernel accepts only these (`process_access_response`).
///
/// In a page fault every one of them becomes `SIGBUS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// `EPERM`
    NotPermitted,
    /// `EIO`: the contents cannot be fetched.
    Io,
    /// `EBUSY`
    Busy,
    /// `ETXTBSY`
    TextBusy,
    /// `EAGAIN`
    TryAgain,
    /// `ENOSPC`: no room to fill the file.
    NoSpace,
    /// `EDQUOT`
    Quota,
}

impl Denial {
    /// The errno number, as the reader will see it.
    pub fn errno(self) -> i32 {
        match self {
            Denial::NotPermitted => libc::EPERM,
            Denial::Io => libc::EIO,
            Denial::Busy => libc::EBUSY,
            Denial::TextBusy => libc::ETXTBSY,
            Denial::TryAgain => libc::EAGAIN,
            Denial::NoSpace => libc::ENOSPC,
            Denial::Quota => libc::EDQUOT,
        }
    }

    fn response(self) -> u32 {
        libc::FAN_DENY | (self.errno().unsigned_abs() & 0xff) << FAN_ERRNO_SHIFT
    }
}

/// The fate of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The reader goes on.
    Delivered,
    /// No event with that number waits: a predecessor answered it before it died.
    NotOwed,
}

/// A fanotify group for pre-content events. Closing the last descriptor of it releases every reader.
#[derive(Debug)]
pub struct Group {
    fd: OwnedFd,
}

impl Group {
    /// Creates a group: pre-content class, unlimited queue and marks, non-blocking.
    ///
    /// # Errors
    /// [`FanotifyError::Create`] when the kernel is too old or the capability is missing.
    pub fn new() -> Result<Group, FanotifyError> {
        let flags = libc::FAN_CLASS_PRE_CONTENT
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_UNLIMITED_QUEUE
            | libc::FAN_UNLIMITED_MARKS;
        let event_flags = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC;
        // SAFETY: the call takes two integers and returns a new descriptor or -1.
        let raw = unsafe { libc::fanotify_init(flags, event_flags.cast_unsigned()) };
        if raw < 0 {
            return Err(FanotifyError::Create {
                source: io::Error::last_os_error(),
            });
        }
        // SAFETY: the kernel has just given this number to us and to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Group { fd })
    }

    /// Takes over a group that another process created and handed down.
    pub fn from_inherited(fd: OwnedFd) -> Group {
        Group { fd }
    }

    /// Asks before reads of every file that is opened through the mount at `path` from now on.
    ///
    /// Must come before any EROFS mount that uses a file of it: see the module's paragraph.
    ///
    /// # Errors
    /// [`FanotifyError::Mark`] with the path.
    pub fn mark_mount(&self, path: &Path) -> Result<(), FanotifyError> {
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT;
        self.mark("guard the mount", flags, Target::Path(path))
    }

    /// Stops asking for the whole mount at `path`, also for files that are already open.
    ///
    /// # Errors
    /// [`FanotifyError::Mark`] with the path.
    pub fn unmark_mount(&self, path: &Path) -> Result<(), FanotifyError> {
        let flags = libc::FAN_MARK_REMOVE | libc::FAN_MARK_MOUNT;
        self.mark("stop guarding the mount", flags, Target::Path(path))
    }

    /// Stops asking for one file, on every mount, until [`Group::unignore_file`] or the end of the group.
    ///
    /// For a file that is complete: from then on reading it costs nothing. The mark pins the inode in memory.
    ///
    /// # Errors
    /// [`FanotifyError::Mark`] with the descriptor.
    pub fn ignore_file(&self, file: impl AsFd) -> Result<(), FanotifyError> {
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_IGNORE_SURV;
        self.mark("stop asking for the file", flags, Target::File(file.as_fd()))
    }

    /// As [`Group::ignore_file`], for a file named by its path.
    ///
    /// # Errors
    /// [`FanotifyError::Mark`] with the path.
    pub fn ignore_path(&self, path: &Path) -> Result<(), FanotifyError> {
        let flags = libc::FAN_MARK_ADD | libc::FAN_MARK_IGNORE_SURV;
        self.mark("stop asking for the file", flags, Target::Path(path))
    }

    /// Asks again for a file that was ignored (its data was evicted).
    ///
    /// # Errors
    /// [`FanotifyError::Mark`] with the descriptor.
    pub fn unignore_file(&self, file: impl AsFd) -> Result<(), FanotifyError> {
        let flags = libc::FAN_MARK_REMOVE | libc::FAN_MARK_IGNORE;
        self.mark("ask again for the file", flags, Target::File(file.as_fd()))
    }

    /// Lets the reader of an event go on. `number` is the number of the event's descriptor.
    ///
    /// # Errors
    /// [`FanotifyError::Answer`]; the reader then still waits.
    pub fn allow(&self, number: RawFd) -> Result<Answered, FanotifyError> {
        self.answer(number, libc::FAN_ALLOW)
    }

    /// Makes the read of an event fail with `denial`.
    ///
    /// # Errors
    /// [`FanotifyError::Answer`]; the reader then still waits.
    pub fn deny(&self, number: RawFd, denial: Denial) -> Result<Answered, FanotifyError> {
        self.answer(number, denial.response())
    }

    /// Reads as many events as fit into `buffer`; 0 when none waits.
    ///
    /// Each event opens a descriptor in this process; [`Event::take_descriptor`] owns it.
    ///
    /// # Errors
    /// [`FanotifyError::Read`].
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, FanotifyError> {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut *buffer)) {
            Ok(bytes) => Ok(bytes),
            Err(rustix::io::Errno::AGAIN) => Ok(0),
            Err(errno) => Err(FanotifyError::Read { source: errno.into() }),
        }
    }

    /// Takes the events that wait, with the descriptors that came with them; none when none waits.
    ///
    /// For a group that only watches: its events are lost, and allowed, if this process dies. Each must be answered
    /// by its descriptor's number while that is open.
    ///
    /// # Errors
    /// [`FanotifyError::Read`].
    pub fn take(&self) -> Result<Vec<TakenEvent>, FanotifyError> {
        let mut buffer = [0; TAKEN_BYTES];
        let length = self.read(&mut buffer)?;
        let mut taken = Vec::new();
        for event in Events::new(buffer.get(..length).unwrap_or_default()) {
            let event = event.map_err(|error| FanotifyError::Read {
                source: io::Error::new(io::ErrorKind::InvalidData, error),
            })?;
            // SAFETY: the event was read a moment ago by this very process, and nobody else knows of its descriptor.
            if let Some(file) = unsafe { event.take_descriptor() } {
                taken.push(TakenEvent { event, file });
            }
        }
        Ok(taken)
    }

    /// Waits until an event can be read; false when `timeout` passed first.
    ///
    /// # Errors
    /// [`FanotifyError::Read`].
    pub fn wait(&self, timeout: std::time::Duration) -> Result<bool, FanotifyError> {
        let mut polled = [PollFd::new(&self.fd, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&timeout)))
            .map_err(|errno| FanotifyError::Read { source: errno.into() })?;
        Ok(ready > 0)
    }

    fn answer(&self, number: RawFd, response: u32) -> Result<Answered, FanotifyError> {
        // struct fanotify_response { __s32 fd; __u32 response; }
        let mut bytes = [0u8; 8];
        bytes[..4].copy_from_slice(&number.to_ne_bytes());
        bytes[4..].copy_from_slice(&response.to_ne_bytes());
        match rustix::io::retry_on_intr(|| rustix::io::write(&self.fd, &bytes)) {
            Ok(_) => Ok(Answered::Delivered),
            Err(rustix::io::Errno::NOENT) => Ok(Answered::NotOwed),
            Err(errno) => Err(FanotifyError::Answer {
                number,
                source: errno.into(),
            }),
        }
    }

    fn mark(&self, action: &'static str, flags: u32, target: Target<'_>) -> Result<(), FanotifyError> {
        let error = |source| FanotifyError::Mark {
            action,
            target: target.to_string(),
            source,
        };
        let path = match target {
            Target::Path(path) => {
                Some(CString::new(path.as_os_str().as_bytes()).map_err(|_| error(libc_error(libc::EINVAL)))?)
            }
            Target::File(_) => None,
        };
        let (directory, pointer) = match (&target, &path) {
            (Target::File(fd), _) => (fd.as_raw_fd(), std::ptr::null()),
            (Target::Path(_), path) => (
                libc::AT_FDCWD,
                path.as_ref().map_or(std::ptr::null(), |path| path.as_ptr()),
            ),
        };
        // SAFETY: the group is an open descriptor; `pointer` is null (then the mark is on `directory` itself)
        // or a NUL-terminated string that lives until the end of this function.
        let result =
            unsafe { libc::fanotify_mark(self.fd.as_raw_fd(), flags, FAN_PRE_ACCESS, directory, pointer) };
        if result < 0 {
            Err(error(io::Error::last_os_error()))
        } else {
            Ok(())
        }
    }
}

/// An event whose descriptor belongs to it.
#[derive(Debug)]
pub struct TakenEvent {
    /// The kernel's question.
    pub event: Event,
    /// The file that is read.
    pub file: OwnedFd,
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[derive(Clone, Copy)]
enum Target<'a> {
    Path(&'a Path),
    File(BorrowedFd<'a>),
}

impl std::fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Path(path) => write!(f, "{}", path.display()),
            Target::File(fd) => write!(f, "{}", descriptor_path(*fd).display()),
        }
    }
}

/// The path that `/proc` knows for a descriptor, or the descriptor's own name there.
fn descriptor_path(fd: BorrowedFd<'_>) -> PathBuf {
    let link = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    std::fs::read_link(&link).unwrap_or(link)
}

fn libc_error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}
