//! The record of changes on a host, so that they can be taken back: `<root>/installed.json`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;
use xebec_kernel::file::write_privately;
use xebec_protocol::closed;
use xebec_protocol::failure::Failure;

use crate::docker::{self, DockerChange};
use crate::keys::Change;

/// The changes on a host. Paths are as the host sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Files that were written whole, and what was written.
    pub files: BTreeMap<PathBuf, Digest>,
    /// Keys that were set in files of others, in that order.
    pub keys: BTreeMap<PathBuf, Vec<Change>>,
    /// Files of others that were not there before.
    pub made: Vec<PathBuf>,
    /// The changes for Docker, by file.
    #[serde(default, deserialize_with = "docker::changes")]
    pub docker: Vec<DockerChange>,
    /// Commands that what was changed needs and that have not succeeded yet, in order.
    #[serde(default)]
    pub pending: Vec<Vec<String>>,
}

impl Record {
    /// Reads it; nothing was changed when it is not there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let bytes = match std::fs::read(file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Failure::host(format!("read {}", file.display()), error)),
        };
        serde_json::from_slice(&bytes).map_err(|error| {
            let what = format!(
                "{} does not say what was installed ({error}); remove it to install again",
                file.display()
            );
            Failure::new(xebec_protocol::failure::FailureKind::Host, what)
        })
    }

    /// Writes it.
    ///
    /// # Errors
    /// When it cannot be written; the old one is there still.
    pub(crate) fn write(&self, file: &Path) -> Result<(), Failure> {
        let failed =
            |error: &dyn std::fmt::Display| Failure::host(format!("write {}", file.display()), error);
        let bytes = self.to_bytes()?;
        if std::fs::read(file).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        // The root directory, which this may be the first to make.
        if let Some(folder) = file.parent() {
            closed::make(folder).map_err(|error| failed(&error))?;
        }
        write_privately(file, &bytes).map_err(|error| failed(&error))
    }

    /// The contents of the file.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, Failure> {
        serde_json::to_vec_pretty(self).map_err(|error| Failure::host("write down what was installed", error))
    }

    /// Whether there is something to take back.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.keys.is_empty() && self.docker.is_empty()
    }

    /// Adds changes of keys. One that was changed before keeps what it was then, unless somebody changed it since.
    pub(crate) fn add_keys(&mut self, file: &Path, changes: Vec<Change>) {
        let known = self.keys.entry(file.to_owned()).or_default();
        for change in changes {
            // The value before the first of them comes back in the end.
            if let Some(old) = known.iter_mut().rfind(|old| change.replaces(old)) {
                old.ours = change.ours;
                continue;
            }
            let is_same = |old: &Change| old.key == change.key && old.ours == change.ours;
            known.retain(|old| !is_same(old));
            known.push(change);
        }
    }
}
