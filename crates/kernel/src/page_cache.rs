//! The pages of a file that are in the page cache, without mapping or reading it.
//!
//! `cachestat(2)` (Linux 6.5) counts the pages of a range that the kernel holds. A page that was never read is not there, so on a file
//! system that was mounted anew and reads nothing ahead, the pages that are there are those that somebody touched. Pages that were read
//! and had to go again since (memory is short) are counted apart, as far as the kernel remembers.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// The number of `cachestat` on every architecture whose numbers are the common ones
/// (`include/uapi/asm-generic/unistd.h`); the libc crate has it for few.
const SYS_CACHESTAT: libc::c_long = 451;

/// `struct cachestat_range` of `include/uapi/linux/mman.h`.
#[repr(C)]
struct RawRange {
    offset: u64,
    length: u64,
}

/// `struct cachestat` of the same file.
#[repr(C)]
#[derive(Default)]
struct RawCounts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// How many pages of a range were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cached {
    /// Pages that are in the page cache.
    pub pages: u64,
    /// Pages that were and had to go.
    pub evicted: u64,
}

/// Counts the pages of a file's byte range that are in the page cache. Reads nothing.
///
/// # Errors
/// `ENOSYS` before Linux 6.5, `EPERM` for another user's file, `EOPNOTSUPP` for a file on huge pages.
pub fn cached(file: impl AsFd, bytes: Range<u64>) -> io::Result<Cached> {
    if bytes.is_empty() {
        // The kernel would take a length of 0 for "to the end".
        return Ok(Cached::default());
    }
    let range = RawRange {
        offset: bytes.start,
        length: bytes.end - bytes.start,
    };
    let mut counts = RawCounts::default();
    let file = file.as_fd();
    // SAFETY: both structures are of the kernel's layout and live until it returns; it writes only the second.
    let status = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const range,
            &raw mut counts,
            0 as libc::c_uint,
        )
    };
    match status {
        0 => Ok(Cached {
            pages: counts.cached,
            evicted: counts.evicted,
        }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_was_written_is_there_and_a_hole_is_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 * 4096).unwrap();
        file.write_all_at(&[1; 2 * 4096], 4 * 4096).unwrap();
        let pages = |range: Range<u64>| cached(&file, range.start * 4096..range.end * 4096).unwrap().pages;
        assert_eq!(pages(4..6), 2);
        assert_eq!(pages(5..9), 1);
        assert_eq!(pages(8..16), 0);
        assert_eq!(pages(5..5), 0, "not to the end");
        assert_eq!(pages(0..16), 2);
    }
}
