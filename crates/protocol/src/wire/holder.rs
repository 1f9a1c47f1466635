//! Views as the daemon names them: the holder of a view, and its layers.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xebec_cache::store::LayerKey;
use xebec_container::Record;
use xebec_format::digest::Digest;
use xebec_kernel::process;

use crate::failure::{Failure, FailureKind};

/// A user of a view. The view is unmounted when it has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Holder {
    /// A mount made by `xebec mount`.
    Directory {
        /// The path of the directory.
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

    /// Whether this is the process that supervises a container.
    pub fn supervises(&self, container: &Record) -> bool {
        match self {
            Self::Process { pid, start_time, .. } => container.is_supervised_by(*pid, *start_time),
            Self::Directory { .. } | Self::Snapshot { .. } => false,
        }
    }
}

/// The users of the view that is mounted at `view`, by the names that people gave them: containers and mount points. `containers` are
/// those of this host.
pub fn users(view: &Path, holders: &[Holder], containers: &[Record]) -> Vec<String> {
    let on_it = containers.iter().filter(|record| record.view == view);
    let mut users: Vec<String> = on_it
        .clone()
        .map(|record| format!("container {}", record.id))
        .collect();
    // A supervisor and its container are one.
    let is_supervisor = |holder: &Holder| on_it.clone().any(|record| holder.supervises(record));
    let others = holders.iter().filter(|holder| !is_supervisor(holder));
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    /// The supervisor was killed, its container runs on, and the kernel gave its id to another command, which holds the view, too.
    #[test]
    fn a_process_that_has_the_id_of_an_ended_supervisor_is_a_user_of_its_own() {
        let record: Record = serde_json::from_value(serde_json::json!({
            "id": "web", "image": "i", "pid": null, "pid_started": null, "supervisor": 7, "supervisor_started": 1,
            "runtime": "/r", "view": "/v", "state": "/s", "rm": false, "created": 0, "command": [],
        }))
        .unwrap();
        let holder = |name: &str, pid, start_time| Holder::Process {
            name: name.to_owned(),
            pid,
            start_time,
        };
        let holders = [
            holder("web", 7, 1),
            holder("record-7-2", 7, 2),
            holder("record-8-1", 8, 1),
            Holder::Directory { path: "/mnt".into() },
        ];
        assert_eq!(
            users(Path::new("/v"), &holders, &[record]),
            [
                "container web",
                "record-7-2 (process 7)",
                "record-8-1 (process 8)",
                "the mount on /mnt"
            ]
        );
    }
}
