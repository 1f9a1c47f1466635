//! The daemon's status: its processes, its counters, its mounted views and their holders.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::holder::Holder;
use crate::explain::WaitReport;

/// Counters of the network and of fills since the daemon's worker started.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Requests to registries.
    pub network_requests: u64,
    /// Bytes of their answers' bodies.
    pub network_bytes: u64,
    /// Requests that had to be tried again.
    pub network_retries: u64,
    /// Events that readers raised.
    pub events: u64,
    /// Events whose pages were there.
    pub hits: u64,
    /// Spans another reader was waiting for already.
    pub joins: u64,
    /// Spans written.
    pub spans: u64,
    /// Compressed bytes fetched for fills.
    pub bytes_fetched: u64,
    /// Plain bytes written to the cache.
    pub bytes_written: u64,
    /// Fills that failed; their readers got EIO.
    pub failures: u64,
}

/// The daemon's state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Version of the daemon's program.
    pub version: String,
    /// The keeper's process id.
    pub keeper_pid: u32,
    /// The worker's process id.
    pub worker_pid: u32,
    /// How often a worker died and was replaced.
    pub restarts: u64,
    /// Keepers so far; each upgrade and each keeper that died adds one.
    pub keepers: u32,
    /// Version of the journal, which only a program of the same version can take over.
    pub journal_version: u32,
    /// Events that are owed an answer.
    pub queue: u64,
    /// How long the oldest of them has waited, in milliseconds.
    pub oldest_wait_ms: Option<u64>,
    /// The reader that has waited longest for missing pages: its file, and the reasons for its wait.
    pub oldest_reader: Option<Box<WaitReport>>,
    /// Whether it was told to stop and stays for readers only, to whom it refuses pages that are missing.
    #[serde(default)]
    pub ending: bool,
    /// The size that the cache may have on its file system, in bytes, if a limit was set.
    pub cache_limit: Option<u64>,
    /// Counters.
    pub counters: Counters,
    /// Mounted views that somebody uses.
    pub views: Vec<ViewStatus>,
    /// How many more are mounted, which nobody uses any more, for the next start.
    #[serde(default)]
    pub lingering_views: usize,
    /// Old views that may have served zeros, because keeper and worker both died.
    pub suspects: Vec<SuspectStatus>,
    /// containerd's snapshots, if it is served.
    #[serde(default)]
    pub snapshots: Option<SnapshotStatus>,
    /// Why containerd is not served that should be.
    #[serde(default)]
    pub snapshots_problem: Option<String>,
}

/// The snapshots that are kept for containerd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotStatus {
    /// Snapshots that are written to.
    pub active: u64,
    /// Snapshots that are only read.
    pub views: u64,
    /// Layers and other committed snapshots.
    pub committed: u64,
    /// Of these, layers that are read where they are.
    pub committed_lazy: u64,
    /// Layers that this worker let containerd take without fetching them.
    pub lazy: u64,
    /// Layers that it left containerd to unpack, by reason.
    pub unpacked: BTreeMap<String, u64>,
}

/// A view that may have served zeros; it is unmounted, but processes may still be on it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SuspectStatus {
    /// Its name.
    pub view: String,
    /// The image it was made for.
    pub reference: String,
    /// Processes that are still on it. Restart them.
    pub processes: Vec<ProcessStatus>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Its id.
    pub pid: u32,
    /// Its name, as the kernel has it (15 bytes at most).
    pub command: String,
}

/// A mounted view and its users.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ViewStatus {
    /// Its name.
    pub view: String,
    /// The directory on which it is mounted.
    pub path: PathBuf,
    /// The image it was made for first.
    pub reference: String,
    /// Its holders.
    pub holders: Vec<Holder>,
    /// Layers, and how many are complete.
    pub layers: usize,
    /// Layers that need the daemon no more.
    pub complete_layers: usize,
}
