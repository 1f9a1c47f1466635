//! The read-ahead of a mounted EROFS: how much more than the touched page one fault asks for.
//!
//! At the kernel's default of 128 KiB a cold page asks for up to 32 pages; at 0 every event is exactly the page that was touched,
//! as a recording needs it. It is an attribute of the file system's backing device (bdi), shared by all mounts of one file system.
//!
//! A bdi that belongs to no block device is named `erofs-N`, where N counts such bdis since boot (`super_setup_bdi` in
//! `fs/super.c`). Nothing leads from a mount to that number, so it is told by the name that appears in sysfs while the file system
//! is created.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::MountError;

const DIRECTORY: &str = "/sys/class/bdi";

/// One mount at a time, so that the name that appears is not another thread's.
static CREATING: Mutex<()> = Mutex::new(());

/// The kernel's object that holds the read-ahead of a file system. Its name stays good until the last mount is gone, and no other file
/// system gets it before the next boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingDevice {
    name: String,
}

impl BackingDevice {
    /// The one that has a name noted earlier; `None` if there is none (any more).
    pub fn named(name: &str) -> Option<BackingDevice> {
        names().contains(name).then(|| BackingDevice {
            name: name.to_owned(),
        })
    }

    /// Its name in `/sys/class/bdi`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the read-ahead in KiB.
    ///
    /// # Errors
    /// [`MountError::ReadAhead`].
    pub fn set_read_ahead_kib(&self, kib: u32) -> Result<(), MountError> {
        fs::write(self.attribute(), kib.to_string()).map_err(|source| self.error("set", source))
    }

    /// The read-ahead in KiB.
    ///
    /// # Errors
    /// [`MountError::ReadAhead`].
    pub fn read_ahead_kib(&self) -> Result<u32, MountError> {
        let text = fs::read_to_string(self.attribute()).map_err(|source| self.error("read", source))?;
        text.trim()
            .parse()
            .map_err(|_| self.error("read", io::ErrorKind::InvalidData.into()))
    }

    /// Runs `create`, and gives the backing device that appeared meanwhile; `None` when none did, or when
    /// another process made a second one at the same moment.
    pub(super) fn appearing<T>(create: impl FnOnce() -> T) -> (T, Option<BackingDevice>) {
        let _one_at_a_time = CREATING.lock();
        let before = names();
        let created = create();
        let after = names();
        let mut new = after.difference(&before);
        let backing = match (new.next(), new.next()) {
            (Some(name), None) => Some(BackingDevice { name: name.clone() }),
            _ => None,
        };
        (created, backing)
    }

    fn attribute(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.name).join("read_ahead_kb")
    }

    fn error(&self, action: &'static str, source: io::Error) -> MountError {
        MountError::ReadAhead {
            action,
            device: self.name.clone(),
            source,
        }
    }
}

/// The error for a mount whose backing device could not be told.
pub(super) fn unknown_backing(metadata: &Path) -> MountError {
    let source = io::ErrorKind::NotFound.into();
    MountError::ReadAhead {
        action: "set",
        device: metadata.display().to_string(),
        source,
    }
}

fn names() -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(DIRECTORY) else {
        return BTreeSet::new();
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("erofs-")).collect()
}
