//! Where a container's files are.
//!
//! ```text
//! <state>/<id>/container.json the record of the container for as long as it exists
//!              upper          its layer
//!              work           scratch directory of overlayfs
//!              log, log.1 …   what it wrote, if it is detached
//!              exit-codes     its exit codes since its last start by a user
//!              stop           exists if a user stopped it: its restart policy rests
//!              remove         exists if the directory is removed with the container (--rm), or is being removed
//!              frozen-for-commit  exists while `xebec commit` has it frozen, or was killed then
//!              volumes.json   the volumes that the container uses, if there are any
//! <root>/volumes/             the volumes ([`xebec_volume`])
//! <run>/containers/           the records; a cleanup locks this directory
//!              <id>.json      the container's record
//!              <id>.tty       the socket on which the runtime sends the container's terminal
//! <run>/bundles/<id>/merged   the container's root: mount point of the overlay, perhaps of an automount first
//!              config.json    the OCI bundle's configuration; perhaps a link to a pipe first
//!              etc/           resolv.conf, hosts and hostname, mounted over those of the image
//!              pid            the process id of the container's first process, written by the runtime
//!              runtime.log    the runtime's log
//! <run>/runtime/<id>          the runtime's own state
//! ```
//!
//! A start must not wait for the disk (`docs/decisions/0015-no-start-waits-for-the-disk.md`), so the bundle is in the run directory,
//! which is in memory on most hosts. On a disk a start would wait: runc syncs the file with the process id
//! (`createPidFile`, `utils_linux.go`), and creating or renaming a file can wait for the journal of its file system.

use std::path::{Path, PathBuf};

use xebec_network::Places;
use xebec_volume::VolumeStore;

/// The record of a container, in its directory.
pub(crate) const CONTAINER: &str = "container.json";

/// The marker of a container that a user stopped.
pub(crate) const STOP_MARKER: &str = "stop";

/// The file of a container's exit codes.
pub(crate) const EXIT_CODES: &str = "exit-codes";

/// The container's layer, and the scratch directory of overlayfs.
pub(crate) const UPPER: &str = "upper";
pub(crate) const WORK: &str = "work";

/// The marker of a directory that is removed with its container.
pub(crate) const REMOVE_MARKER: &str = "remove";

/// The marker of a container that is frozen only while its layer is read.
pub(crate) const FROZEN_MARKER: &str = "frozen-for-commit";

/// The name of the mount point of a container's root.
pub(crate) const MERGED: &str = "merged";

/// The name of the file that tells the runtime what to create (runtime-spec, `bundle.md`).
pub(crate) const CONFIG: &str = "config.json";

/// The name of the file into which the runtime writes the process id.
pub(crate) const PID_FILE: &str = "pid";

/// The name of the runtime's log.
pub(crate) const RUNTIME_LOG: &str = "runtime.log";

/// Where containers are kept. Each run directory belongs to one state directory: a cleanup covers both.
#[derive(Clone, Debug)]
pub struct Directories {
    /// `<root>/containers`: one directory per container, with its layer.
    pub state: PathBuf,
    /// `<run>`: one record per container below `containers/`, its bundle with its mount point below
    /// `bundles/`, and the runtime's own state below `runtime/`. A tmpfs is best, so that nothing in it
    /// outlives the processes that it describes.
    pub run: PathBuf,
}

impl Directories {
    /// The volumes of these containers: `<root>/volumes`, beside the state directory.
    pub fn volumes(&self) -> VolumeStore {
        VolumeStore::new(self.state.with_file_name("volumes"), self.state.clone())
    }

    /// Where networks and the containers' attachments to them are: `<root>/networks` is beside the directory of
    /// the containers.
    pub(crate) fn network_places(&self) -> Places {
        Places {
            networks: self.state.with_file_name("networks"),
            run: self.run.clone(),
        }
    }

    /// The directory of all bundles.
    pub(crate) fn bundles(&self) -> PathBuf {
        self.run.join("bundles")
    }

    /// The directory in which runtimes keep their state: one directory per container.
    pub(crate) fn runtime_state(&self) -> PathBuf {
        self.run.join("runtime")
    }

    /// The socket on which the runtime sends a container's terminal. It is in the run directory because a
    /// socket's path must be short (`unix(7)`).
    pub(crate) fn console_socket(&self, id: &str) -> PathBuf {
        records(&self.run).join(format!("{id}.tty"))
    }
}

/// The directory of all records, in a run directory.
pub(crate) fn records(run: &Path) -> PathBuf {
    run.join("containers")
}
