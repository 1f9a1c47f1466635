//! The log of a container in the background: what it wrote, in the format of Kubernetes' container runtime interface (CRI).
//!
//! A line is `TIME STREAM TAG TEXT`. `TIME` is in the form of RFC 3339 with nanoseconds, and `STREAM` is `stdout` or `stderr`. `TAG`
//! is `F` for a full line, or `P` for a part of one that goes on in the next line of the same stream. The files are `log`, `log.1`
//! and so on in the container's directory, the newest first.
//!
//! The supervisor of a container writes by a [`LogWriter`], with a [`LogStream`] for each of its two streams. Any other process
//! reads the same directory by a [`LogReader`], also while it is written, and also after the container has ended.
//!
//! # Promises
//!
//! * A container never fails by its log. Output that a full disk refuses is counted, and noted in the log once there is room.
//! * The files have [`LogLimits::files`] times [`LogLimits::size`] bytes at most, and one write more.
//! * A line without an end takes no memory: it is written in parts of 16 KiB.
//! * A reader that follows sees each line once, over rotations, and passes over a line that is damaged.
//!
//! # Crates that it may use
//!
//! `kernel`, for the clock, and no other crate of Xebec. It knows no containers: it is given a directory.
//!
//! # Where to look
//!
//! | module | what it has |
//! | --- | --- |
//! | `entry` | one line |
//! | `writer` | writing, and rotation |
//! | `reader` | reading a part, and following |
//! | `time` | times as they are written, and as users give them |

mod entry;
mod reader;
mod time;
mod writer;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use entry::{Entry, Stream};
pub use reader::{Following, LogRange, LogReader};
pub use time::{Time, TimeParseError};
pub use writer::{LogStream, LogWriter};

/// The newest file of a log.
const LOG: &str = "log";

/// How much of a log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    /// The size at which a file of the log is full.
    pub size: u64,
    /// How many files are kept, the one that is written included.
    pub files: u32,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            size: 10 << 20,
            files: 3,
        }
    }
}

/// The path of a file of a log: number 0 is the one that is written.
fn path(directory: &Path, number: u32) -> PathBuf {
    match number {
        0 => directory.join(LOG),
        number => directory.join(format!("{LOG}.{number}")),
    }
}

/// The numbers of the files of a log that are there, the oldest first.
fn numbers(directory: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers: Vec<u32> = names
        .filter_map(|name| match name.strip_prefix(LOG)? {
            "" => Some(0),
            rest => rest.strip_prefix('.')?.parse().ok(),
        })
        .collect();
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    numbers
}
