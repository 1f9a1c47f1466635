//! Changes to a `daemon.json`, as a record keeps them.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use xebec_format::digest::Digest;

/// The changes to a `daemon.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DockerChange {
    /// Which file.
    pub file: PathBuf,
    /// Its contents before, if it was there.
    pub before: Option<String>,
    /// Whether nobody but the installation has changed the file since, so that it can be put back word for word.
    #[serde(default = "yes")]
    pub is_whole: bool,
    /// The digest of the contents that the installation wrote.
    pub written: Digest,
    /// The keys: which, what it was, what was written.
    pub keys: Vec<(Vec<String>, Option<Value>, Value)>,
}

/// Records that do not say it are of installations that did not ask.
fn yes() -> bool {
    true
}

/// The changes of a record: a list, or the only one, as it was when one file was kept.
pub(crate) fn changes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<DockerChange>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Kept {
        Some(Vec<DockerChange>),
        One(DockerChange),
    }
    Ok(match Option::<Kept>::deserialize(from)? {
        None => Vec::new(),
        Some(Kept::Some(changes)) => changes,
        Some(Kept::One(change)) => vec![change],
    })
}

impl DockerChange {
    /// Takes in that the file was changed again, when `text` was in it.
    pub(super) fn add(
        &mut self,
        text: &str,
        changes: Vec<(Vec<String>, Option<Value>, Value)>,
        written: Digest,
    ) {
        // The value before the first change comes back in the end, unless somebody else wrote in the file since.
        self.is_whole &= Digest::of(text.as_bytes()) == self.written;
        self.written = written;
        for (key, before, ours) in changes {
            match self.keys.iter_mut().find(|(old, ..)| *old == key) {
                Some(old) => {
                    if before.as_ref() != Some(&old.2) {
                        old.1 = before;
                    }
                    old.2 = ours;
                }
                None => self.keys.push((key, before, ours)),
            }
        }
    }
}
