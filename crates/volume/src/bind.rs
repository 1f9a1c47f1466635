//! A mount in the form of the runtime's configuration.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::request::{Propagation, Submounts, Volume};

/// A bind mount of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindMount {
    /// The path on the host.
    pub source: PathBuf,
    /// The path in the container.
    pub target: PathBuf,
    /// Where later mounts appear.
    pub propagation: Propagation,
    read_only: bool,
    submounts: Submounts,
}

impl BindMount {
    /// The mount for `volume`, whose contents are at `source`.
    pub fn of(volume: &Volume, source: PathBuf) -> Self {
        Self {
            source,
            target: volume.target.clone(),
            propagation: volume.propagation,
            read_only: volume.read_only,
            submounts: volume.submounts,
        }
    }

    /// In the form of the runtime's configuration.
    pub fn to_json(&self) -> Value {
        let bind = match self.submounts {
            Submounts::Hidden => "bind",
            Submounts::Follow | Submounts::Writable => "rbind",
        };
        let mode = if self.read_only { "ro" } else { "rw" };
        let mut options = vec![bind, self.propagation.name(), mode];
        if self.read_only && self.submounts == Submounts::Follow {
            // `ro` does not change file systems that are mounted below the source.
            options.push("rro");
        }
        json!({ "destination": self.target, "type": "bind", "source": self.source, "options": options })
    }
}
