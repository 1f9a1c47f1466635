//! Where things are on a host: state under the root directory, sockets and mounts under the run directory.
//!
//! Two roots never meet: every path that is shared between processes is below one of the two.

use std::path::{Path, PathBuf};

use crate::closed::{ClosedError, Use, check_apart, close};

/// The two directories of one installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    root: PathBuf,
    run: PathBuf,
}

impl Paths {
    /// Default root directory.
    pub const DEFAULT_ROOT: &'static str = "/var/lib/xebec";
    /// Default run directory.
    pub const DEFAULT_RUN: &'static str = "/run/xebec";

    /// Makes both directories, closes them to other users, and makes their paths absolute.
    ///
    /// # Errors
    /// When a directory cannot be made, is not Xebec's, or other users could get into it.
    pub fn create(root: &Path, run: &Path) -> Result<Self, ClosedError> {
        check_apart(root, run)?;
        Ok(Self {
            root: close(root, Use::Root)?,
            run: close(run, Use::Run)?,
        })
    }

    /// The state directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The run directory.
    pub fn run(&self) -> &Path {
        &self.run
    }

    /// The blob cache, by its ordinary path.
    pub fn layers(&self) -> PathBuf {
        self.root.join("layers")
    }

    /// The blob cache through the mount that raises events.
    pub fn guarded(&self) -> PathBuf {
        self.run.join("guarded")
    }

    /// The records of images: one file for each manifest.
    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// Recordings of services: a folder for each image.
    pub fn recordings(&self) -> PathBuf {
        self.root.join("runtime")
    }

    /// EROFS metadata images.
    pub fn views(&self) -> PathBuf {
        self.root.join("views")
    }

    /// Metadata of views that were unmounted and are still read, with the facts that their readers need.
    pub fn departed(&self) -> PathBuf {
        self.root.join("departed")
    }

    /// The directory of the views' mounts.
    pub fn mounts(&self) -> PathBuf {
        self.run.join("views")
    }

    /// Mounts of the blob cache through which views are recorded, one each.
    pub fn recording_mounts(&self) -> PathBuf {
        self.run.join("recordings")
    }

    /// Mounts of the blob cache by which views reach start-up pages that are still on their way, one each.
    pub fn arriving_mounts(&self) -> PathBuf {
        self.run.join("arriving")
    }

    /// Writable layers of containers.
    pub fn containers(&self) -> PathBuf {
        self.root.join("containers")
    }

    /// The images that were committed on this host: an OCI layout.
    pub fn committed(&self) -> PathBuf {
        self.root.join("committed")
    }

    /// The directory of the history: waits, starts, containers.
    pub fn history(&self) -> PathBuf {
        self.root.join("history")
    }

    /// Logins that the kubelet pulled with.
    pub fn logins(&self) -> PathBuf {
        self.root.join("logins.json")
    }

    /// Logins of pulls that are under way.
    pub fn tried_logins(&self) -> PathBuf {
        self.run.join("tried-logins.json")
    }

    /// Metadata and files of containerd's snapshots.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// Which keys and registries are trusted.
    pub fn trust(&self) -> PathBuf {
        self.root.join("trust.toml")
    }

    /// How registries are reached: mirrors, certificates, budgets.
    pub fn registries(&self) -> PathBuf {
        self.root.join("registries.toml")
    }

    /// The file of the facts that this host has learned about registries.
    pub fn registries_seen(&self) -> PathBuf {
        self.root.join("registries.json")
    }

    /// The file of the daemon's settings.
    pub fn settings(&self) -> PathBuf {
        self.root.join("daemon.toml")
    }

    /// The log of a daemon that a command started.
    pub fn daemon_log(&self) -> PathBuf {
        self.run.join("daemon.log")
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.run.join("xebec.sock")
    }
}
