//! What was changed on a host, so that it can be taken back: `<root>/installed.json`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;
use xebec_host::failure::Failure;

use crate::keys::Change;

/// What was changed. Paths are as the host sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Files that were written whole, and what was written.
    pub files: BTreeMap<PathBuf, Digest>,
    /// Keys that were set in files of others, in that order.
    pub keys: BTreeMap<PathBuf, Vec<Change>>,
    /// Files of others that were not there before.
    pub made: Vec<PathBuf>,
}

impl Record {
    /// Reads it; nothing was changed when it is not there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(file: &Path) -> Result<Self, Failure> {
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
            Failure::new(xebec_host::failure::FailureKind::Host, what)
        })
    }

    /// Adds changes of keys. One that was changed before keeps what it was then, unless somebody changed it since.
    pub fn add_keys(&mut self, file: &Path, changes: Vec<Change>) {
        let known = self.keys.entry(file.to_owned()).or_default();
        for change in changes {
            let is_same = |old: &Change| old.key == change.key && old.ours == change.ours;
            known.retain(|old| !is_same(old));
            known.push(change);
        }
    }
}
