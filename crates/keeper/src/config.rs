//! The configuration of a keeper.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use xebec_kernel::journal::DEFAULT_DEATHS_ALLOWED;

/// The settings of a keeper.
#[derive(Clone, Debug)]
pub struct KeeperConfig {
    /// The root directory; `layers` below it is guarded.
    pub root: PathBuf,
    /// The run directory: `guarded`, `xebec.sock`, `keeper.pid` and `daemon.lock` are below it.
    pub run: PathBuf,
    /// Where containerd connects, if it is served.
    pub snapshots: Option<PathBuf>,
    /// The program of the worker; this executable when absent.
    pub worker: Option<PathBuf>,
    /// Arguments of the worker.
    pub worker_arguments: Vec<OsString>,
    /// How many workers an event may kill before it is denied.
    pub deaths_allowed: u32,
    /// Longest wait before a worker is started again; the first restart does not wait at all.
    pub longest_delay: Duration,
}

impl KeeperConfig {
    /// A keeper of these directories, whose worker is this executable with `arguments`.
    pub fn new(root: impl Into<PathBuf>, run: impl Into<PathBuf>, arguments: Vec<OsString>) -> KeeperConfig {
        KeeperConfig {
            root: root.into(),
            run: run.into(),
            snapshots: None,
            worker: None,
            worker_arguments: arguments,
            deaths_allowed: DEFAULT_DEATHS_ALLOWED,
            longest_delay: Duration::from_secs(1),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.run.join("xebec.sock")
    }

    pub(crate) fn guarded(&self) -> PathBuf {
        self.run.join("guarded")
    }

    pub(crate) fn pid_file(&self) -> PathBuf {
        self.run.join("keeper.pid")
    }

    pub(crate) fn worker_pid_file(&self) -> PathBuf {
        self.run.join("worker.pid")
    }
}
