//! Whether the root directory takes files: a fault of the directory is reported as one of the directory, and not of the kernel.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use rustix::io::Errno;

use super::check::{Outcome, Trouble};
use super::scratch::Scratch;

/// More than all checks together write.
const NEEDED: usize = 256 << 10;
/// With less room than this the next layer may not fit.
const LITTLE: u64 = 256 << 20;

/// Writes to a directory and looks how much room is left.
pub(super) fn check(directory: &Path) -> Result<(Outcome, String), Trouble> {
    write(directory).map_err(|error| why(directory, &error))?;
    let room = rustix::fs::statvfs(directory).map_err(|errno| why(directory, &errno.into()))?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let outcome = match free < LITTLE {
        true => Outcome::Poor,
        false => Outcome::Good,
    };
    Ok((
        outcome,
        format!("{}, {} MB free", directory.display(), free / 1_000_000),
    ))
}

fn write(directory: &Path) -> io::Result<()> {
    let scratch = Scratch::new(directory)?;
    let mut file = File::create(scratch.path().join("data"))?;
    file.write_all(&vec![1; NEEDED])?;
    // Some file systems look for room only when they write.
    file.sync_all()
}

fn why(directory: &Path, error: &io::Error) -> Trouble {
    let path = directory.display();
    let (text, advice) = match Errno::from_io_error(error) {
        Some(Errno::ROFS) => (
            format!("{path} is on a read-only file system"),
            "mount it writable, or choose another directory by --root",
        ),
        Some(Errno::NOSPC) => (
            format!("the file system of {path} is full"),
            "free room there (`xebec cache gc --to SIZE`, `xebec rmi`), or choose another directory by --root",
        ),
        Some(Errno::DQUOT) => (
            format!("the quota of the file system of {path} is used up"),
            "free room there (`xebec cache gc --to SIZE`, `xebec rmi`), or raise the quota",
        ),
        Some(Errno::ACCESS | Errno::PERM) => (
            format!(
                "user {} may not write to {path}",
                rustix::process::geteuid().as_raw()
            ),
            "run as root (sudo), or choose another directory by --root",
        ),
        Some(Errno::NOENT) => (
            format!("{path} is not there"),
            "make it, or choose another directory by --root",
        ),
        _ => (
            format!("cannot write to {path}: {error}"),
            "choose another directory by --root",
        ),
    };
    Trouble {
        text,
        advice: Some(advice),
    }
}
