//! Views as the daemon names them: the holder of a view, and its layers.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xebec_cache::store::LayerKey;
use xebec_container::Record;
use xebec_format::digest::Digest;
use xebec_kernel::process;

use crate::failure::{Failure, FailureKind};

/// Who uses a view; it is unmounted when nobody does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Holder {
    /// A mount made by `xebec mount`.
    Directory {
        /// Where it is.
        path: PathBuf,
    },
    /// A container of `xebec run`, or another process that says when it is done.
    Process {
        /// The container's name.
        name: String,
        /// The process; when it is gone, so is its claim.
        pid: u32,
        /// Its start time in clock ticks since boot, so that a reused process id is not taken for it.
        start_time: u64,
    },
    /// A snapshot of containerd, until it is removed.
    Snapshot {
        /// Its key.
        key: String,
    },
}

impl Holder {
    /// This process, which may hold several views under names that begin with `what`. When it dies without a word, the
    /// daemon notices.
    ///
    /// # Errors
    /// When `/proc` does not show this process.
    pub fn this_process(what: &str) -> Result<Self, Failure> {
        let pid = std::process::id();
        let start_time = process::start_time(pid)
            .ok_or_else(|| Failure::new(FailureKind::Host, "/proc is not mounted, or not this machine's"))?;
        Ok(Self::Process {
            name: format!("{what}-{pid}-{start_time}"),
            pid,
            start_time,
        })
    }
}

/// Who uses the view that is mounted at `view`, by names that users gave: containers and mount points. `containers` are those of
/// this host.
pub fn users(view: &Path, holders: &[Holder], containers: &[Record]) -> Vec<String> {
    let on_it = containers.iter().filter(|record| record.view == view);
    let mut users: Vec<String> = on_it
        .clone()
        .map(|record| format!("container {}", record.id))
        .collect();
    // A supervisor and its container are one.
    let is_supervisor = |pid: u32| {
        on_it
            .clone()
            .any(|record| record.supervisor.unsigned_abs() == pid)
    };
    let others = holders.iter().filter(|holder| match holder {
        Holder::Process { pid, .. } => !is_supervisor(*pid),
        Holder::Directory { .. } | Holder::Snapshot { .. } => true,
    });
    users.extend(others.map(ToString::to_string));
    users
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { path } => write!(f, "the mount on {}", path.display()),
            Self::Process { name, pid, .. } => write!(f, "{name} (process {pid})"),
            Self::Snapshot { key } => write!(f, "containerd's snapshot {key}"),
        }
    }
}

/// A layer and its index, as it is written to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerPair {
    /// The layer blob.
    pub layer: Digest,
    /// Its index.
    pub index: Digest,
}

impl From<LayerPair> for LayerKey {
    fn from(pair: LayerPair) -> Self {
        Self {
            layer: pair.layer,
            index: pair.index,
        }
    }
}
