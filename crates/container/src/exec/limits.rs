//! The limit of open files of a command that joins a container.
//!
//! runc is written in Go. A program in Go raises its soft limit to the hard one when it begins, and sets both
//! back to their first values when it executes another program. `runc exec` does so after it has set the limits of
//! the container, so the command would have this process's limit. So the runtime finds the container's limit.
//! Go before 1.20 sets nothing back: there the soft limit may be the hard one, which is always the container's.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;
use serde_json::Value;
use xebec_kernel::process::has_capability;

/// The runtime itself needs some open files.
const LEAST: u64 = 64;

/// This process's limit of open files, changed to a container's. Dropped, it is as before.
pub(super) struct OpenFiles(Option<Rlimit>);

impl OpenFiles {
    /// Takes the limit of a process in the runtime's configuration.
    pub(super) fn of(process: &Value) -> Self {
        let limits = process["rlimits"].as_array().into_iter().flatten();
        let mut limits = limits.filter(|limit| limit["type"] == "RLIMIT_NOFILE");
        let Some(limit) = limits.next() else {
            return Self(None);
        };
        let number = |name: &str| limit[name].as_u64().map(|number| number.max(LEAST));
        let before = getrlimit(Resource::Nofile);
        // Without the capability a hard limit cannot be raised again.
        let maximum = match has_capability(CapabilitySet::SYS_RESOURCE) {
            true => number("hard"),
            false => before.maximum,
        };
        let current = number("soft").map(|soft| soft.min(maximum.unwrap_or(u64::MAX)));
        match setrlimit(Resource::Nofile, Rlimit { current, maximum }) {
            Ok(()) => Self(Some(before)),
            Err(error) => {
                tracing::debug!(%error, "cannot take the container's limit of open files");
                Self(None)
            }
        }
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        if let Some(before) = self.0.take()
            && let Err(error) = setrlimit(Resource::Nofile, before)
        {
            tracing::debug!(%error, "cannot set the limit of open files back");
        }
    }
}
