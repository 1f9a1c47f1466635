//! Where networks and attachments are kept.
//!
//! ```text
//! <root>/networks/NAME.conflist       a network; a change of networks locks this directory
//! <run>/networks/lock                 held by a process that rewrites names
//! <run>/networks/attachments/ID.json  one container's attachment; a process that detaches another's locks this directory
//! <run>/networks/ipam/NAME/           the addresses that are taken, by the plugin host-local
//! <run>/netns/ID                      the mount point of an attachment's namespace
//! ```
//!
//! Addresses are kept in the run directory, beside the attachments that give them back. After a reboot both
//! are gone together, so no address stays taken by a container that the reboot ended.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use xebec_kernel::lock::{lock_directory, lock_file, try_lock_directory};

use crate::NetworkError;

/// The directories of a root and a run directory.
#[derive(Clone, Debug)]
pub struct Places {
    /// `<root>/networks`.
    pub networks: PathBuf,
    /// `<run>`.
    pub run: PathBuf,
}

impl Places {
    /// Those of this root and this run directory.
    pub fn new(root: &Path, run: &Path) -> Self {
        Places {
            networks: root.join("networks"),
            run: run.to_owned(),
        }
    }

    pub(crate) fn attachments(&self) -> PathBuf {
        self.run.join("networks/attachments")
    }

    /// Where host-local keeps the addresses that are taken.
    pub(crate) fn addresses(&self) -> PathBuf {
        self.run.join("networks/ipam")
    }

    pub(crate) fn namespaces(&self) -> PathBuf {
        self.run.join("netns")
    }

    /// Until the file is dropped, no other process makes or removes a network, or begins to use one.
    pub(crate) fn lock_networks(&self) -> Result<File, NetworkError> {
        make(&self.networks)?;
        lock_directory(&self.networks).map_err(NetworkError::file("lock", &self.networks))
    }

    /// Until the file is dropped, no other process detaches containers whose supervisors are gone. `None` if one does, or
    /// if no container was ever attached.
    pub fn try_lock_attachments(&self) -> Option<File> {
        try_lock_directory(&self.attachments()).ok()
    }

    /// Until the file is dropped, no other process rewrites the names of containers.
    pub(crate) fn lock_names(&self) -> Result<File, NetworkError> {
        let path = self.run.join("networks/lock");
        lock_file(&path, 0o600).map_err(NetworkError::file("lock", &path))
    }
}

/// Makes a directory that only its owner enters, unless it is there.
pub(crate) fn make(path: &Path) -> Result<(), NetworkError> {
    let mut builder = std::fs::DirBuilder::new();
    match builder.recursive(true).mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(NetworkError::file("create", path)(error))
        }
        _ => Ok(()),
    }
}
