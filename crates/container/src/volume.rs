//! Files and directories of the host that a container sees: `--volume SRC:DST[:ro|rw]`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::RunError;

/// A file or directory of the host that is bind-mounted into the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Absolute path on the host. It must exist.
    pub source: PathBuf,
    /// Absolute path in the container. The runtime creates it if it is missing.
    pub target: PathBuf,
    /// Whether the container can only read it.
    pub read_only: bool,
}

/// `SRC:DST`, `SRC:DST:ro` or `SRC:DST:rw`. Both paths are absolute.
impl FromStr for Volume {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, RunError> {
        let wrong = |reason| RunError::Volume {
            volume: text.to_owned(),
            reason,
        };
        let mut parts = text.split(':');
        let (Some(source), Some(target)) = (parts.next(), parts.next()) else {
            return Err(wrong("write it as SRC:DST or SRC:DST:ro"));
        };
        let read_only = match parts.next() {
            None | Some("rw") => false,
            Some("ro") => true,
            Some(_) => return Err(wrong("the only modes are ro and rw")),
        };
        if parts.next().is_some() {
            return Err(wrong(
                "a path cannot hold a colon; write it as SRC:DST or SRC:DST:ro",
            ));
        }
        let volume = Volume {
            source: source.into(),
            target: target.into(),
            read_only,
        };
        volume.check_paths()?;
        Ok(volume)
    }
}

impl Volume {
    /// Refuses a volume whose paths are not absolute, or whose source does not exist.
    pub(crate) fn check(&self) -> Result<(), RunError> {
        self.check_paths()?;
        let found = std::fs::metadata(&self.source);
        found.map(drop).map_err(|source| RunError::File {
            doing: "find the volume's source",
            path: self.source.clone(),
            source,
        })
    }

    fn check_paths(&self) -> Result<(), RunError> {
        let wrong = |reason| RunError::Volume {
            volume: format!("{}:{}", self.source.display(), self.target.display()),
            reason,
        };
        if !self.source.is_absolute() || !self.target.is_absolute() {
            return Err(wrong("both paths must be absolute"));
        }
        if self.target == Path::new("/") {
            return Err(wrong("the container's root cannot be replaced"));
        }
        Ok(())
    }
}
