//! Why readers waited, as the daemon tells it, and `xebec explain` and `xebec daemon status` show it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;

/// The subject of a question, and the waits that belong to it, in the order in which they began.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The meaning that the name was taken in, for people.
    pub subject: String,
    /// The oldest wait that is remembered began then, of whatever subject, in milliseconds since 1970; when the daemon's worker
    /// started, if none is older.
    pub since_ms: u64,
    /// Other containers of the same name that waits are remembered of, newest first: each by a name that `xebec explain` knows.
    #[serde(default)]
    pub others: Vec<String>,
    /// A wait longer than this is slow, in milliseconds.
    pub slow_ms: u64,
    /// The waits. Reads of pages that were there already are none.
    pub waits: Vec<WaitReport>,
}

/// One reader's wait.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WaitReport {
    /// When it began, as RFC 3339 has it.
    #[serde(default)]
    pub began: String,
    /// The same in milliseconds since 1970.
    pub began_ms: u64,
    /// How long it took, or has taken.
    pub waited_ms: f64,
    /// How it ended.
    pub state: WaitState,
    /// The process, as the host numbers it.
    pub pid: i32,
    /// Its name, as the kernel has it (15 bytes at most); empty when it was gone before it could be looked at.
    pub comm: String,
    /// The container that the process is in; `None` for one outside of all.
    pub container: Option<String>,
    /// The random part of the name of that container's control group, which tells it from others of its name.
    #[serde(default)]
    pub container_run: Option<String>,
    /// The layer; `None` when a worker died before it was known.
    pub layer: Option<Digest>,
    /// Its index, by which the file is found.
    #[serde(default)]
    pub index: Option<Digest>,
    /// The file, as its path in the image; `None` when the layer's index has none there.
    pub file: Option<String>,
    /// First byte, in the layer's data space.
    pub offset: u64,
    /// Number of bytes, those that were read ahead included.
    pub count: u64,
    /// Spans that were missing.
    pub spans: usize,
    /// How many of them were on their way for another reader.
    pub joined: usize,
    /// Tries that failed.
    pub retries: u32,
    /// The times of its phases, in milliseconds by the names of [`xebec_cache::progress::Phase`]; they add up to `waited_ms`.
    pub waited_for_ms: BTreeMap<String, f64>,
    /// The phase that it is in, or was in last.
    pub phase: String,
    /// Where the bytes came from: registries and mirrors, `spool` for a blob that came whole, `cache` for bytes that were kept.
    pub sources: Vec<String>,
    /// Why it was refused, or why the latest try failed.
    pub problem: Option<String>,
}

impl WaitReport {
    /// The key that tells it from all other waits. No process waits twice at a time, threads for different places.
    pub fn identity(&self) -> (u64, i32, Option<Digest>, u64) {
        (self.began_ms, self.pid, self.layer, self.offset)
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitState {
    /// The reader got its bytes.
    Served,
    /// The reader got an error.
    Refused,
    /// It goes on.
    Waiting,
}
