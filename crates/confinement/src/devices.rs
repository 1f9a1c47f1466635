//! Devices of the host that a container may use: `--device /dev/fuse`.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde_json::{Value, json};

use crate::error::ConfinementError;

/// Most devices of a directory; `/dev` has a few hundred.
const LIMIT: usize = 4096;

/// A device of the host, or a directory of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The path on the host.
    source: PathBuf,
    /// The path in the container.
    target: PathBuf,
    /// The permitted uses: read, write, make nodes (`rwm`).
    access: String,
}

/// `SRC`, `SRC:DST`, `SRC:rwm` or `SRC:DST:rwm`.
impl FromStr for Device {
    type Err = ConfinementError;

    fn from_str(text: &str) -> Result<Self, ConfinementError> {
        let wrong = |reason: &str| ConfinementError::Device {
            device: text.to_owned(),
            reason: reason.to_owned(),
        };
        let parts: Vec<&str> = text.split(':').collect();
        let (source, target, access) = match parts[..] {
            [source] => (source, source, "rwm"),
            [source, access] if is_access(access) => (source, source, access),
            [source, target] => (source, target, "rwm"),
            [source, target, access] if is_access(access) => (source, target, access),
            [_, _, _] => return Err(wrong("what it is used for is r, w and m, as rwm")),
            _ => return Err(wrong("write it as SRC[:DST][:rwm]")),
        };
        let is_path = |path: &str| {
            let path = Path::new(path);
            path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
        };
        if !is_path(source) || !is_path(target) {
            return Err(wrong("paths of devices are absolute, without .."));
        }
        Ok(Self {
            source: source.into(),
            target: target.into(),
            access: access.to_owned(),
        })
    }
}

fn is_access(text: &str) -> bool {
    !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| b"rwm".contains(&byte))
}

/// A device as the runtime makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    target: PathBuf,
    kind: &'static str,
    number: u64,
    mode: u32,
    owner: (u32, u32),
    access: String,
}

impl Device {
    /// The device, or those of the directory.
    pub(crate) fn nodes(&self) -> Result<Vec<DeviceNode>, ConfinementError> {
        let wrong = |reason: String| ConfinementError::Device {
            device: self.source.display().to_string(),
            reason,
        };
        let mut nodes = Vec::new();
        let mut left = vec![(self.source.clone(), self.target.clone())];
        while let Some((source, target)) = left.pop() {
            let status = fs::metadata(&source).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => wrong("this host has no such device; see what is in /dev".into()),
                _ => wrong(error.to_string()),
            })?;
            if status.is_dir() {
                for entry in fs::read_dir(&source)
                    .map_err(|error| wrong(error.to_string()))?
                    .flatten()
                {
                    // A link may lead anywhere.
                    if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                        left.push((entry.path(), target.join(entry.file_name())));
                    }
                }
            } else {
                nodes.extend(self.node(&status, target));
            }
            if nodes.len() + left.len() > LIMIT {
                return Err(wrong(format!(
                    "it has more than {LIMIT} devices; name those that are needed"
                )));
            }
        }
        match nodes.is_empty() {
            true => Err(wrong(
                "it is no device, and holds none; use --volume for files".into(),
            )),
            false => Ok(nodes),
        }
    }

    fn node(&self, status: &fs::Metadata, target: PathBuf) -> Option<DeviceNode> {
        let kind = status.file_type();
        let kind = match (kind.is_char_device(), kind.is_block_device()) {
            (true, _) => "c",
            (_, true) => "b",
            _ => return None,
        };
        Some(DeviceNode {
            target,
            kind,
            number: status.rdev(),
            mode: status.mode() & 0o7777,
            owner: (status.uid(), status.gid()),
            access: self.access.clone(),
        })
    }
}

impl DeviceNode {
    /// In the runtime's list of devices.
    pub fn to_json(&self) -> Value {
        json!({
            "path": self.target, "type": self.kind, "major": rustix::fs::major(self.number),
            "minor": rustix::fs::minor(self.number), "fileMode": self.mode, "uid": self.owner.0, "gid": self.owner.1,
        })
    }

    /// The rule that lets the container use it.
    pub fn rule(&self) -> Value {
        json!({
            "allow": true, "type": self.kind, "major": rustix::fs::major(self.number),
            "minor": rustix::fs::minor(self.number), "access": self.access,
        })
    }
}
