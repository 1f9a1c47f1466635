//! EROFS over files: a metadata image, and data files as its devices.
//!
//! The kernel opens every file once, when the file system is created, by the path given here: whether reads of
//! a data file are guarded is decided by which mount that path goes through (`fs/erofs/super.c`, file-backed
//! mounts, Linux 6.12). The metadata image is read without any event and must be complete.

use std::path::{Path, PathBuf};

use super::read_ahead::{self, BackingDevice};
use super::{Attributes, Context, Detached, MountError};

/// How often a mount is made again because another EROFS came up at the same moment.
const ATTEMPTS: usize = 8;

/// An EROFS file system to be mounted.
#[derive(Clone, Debug)]
pub struct Erofs {
    metadata: PathBuf,
    devices: Vec<PathBuf>,
    read_ahead_kib: Option<u32>,
}

impl Erofs {
    /// `metadata` is the path of the metadata image.
    pub fn new(metadata: impl Into<PathBuf>) -> Erofs {
        Erofs {
            metadata: metadata.into(),
            devices: Vec::new(),
            read_ahead_kib: None,
        }
    }

    /// Adds the next device. Devices are numbered from 1 in the order in which they are added.
    #[must_use]
    pub fn device(mut self, path: impl Into<PathBuf>) -> Erofs {
        self.devices.push(path.into());
        self
    }

    /// Sets the read-ahead; the kernel's default is 128 KiB. At 0 every event is exactly the touched page.
    #[must_use]
    pub fn read_ahead_kib(mut self, kib: u32) -> Erofs {
        self.read_ahead_kib = Some(kib);
        self
    }

    /// Creates the file system and mounts it detached and read-only.
    ///
    /// `attributes` are added to read-only: `NOSUID` and `NODEV` suit a mount that users of the host may come to. A container's
    /// root must have neither (device access is the cgroup's business), as in containerd; an overlay on this mount has its own.
    ///
    /// # Errors
    /// [`MountError::Create`] with the parameter that was refused and the kernel's explanation;
    /// [`MountError::ReadAhead`] when a read-ahead was asked for and could not be set.
    pub fn mount(&self, attributes: Attributes) -> Result<Detached, MountError> {
        let mut detached = self.create(attributes)?;
        for _ in 1..ATTEMPTS {
            if detached.backing.is_some() || self.read_ahead_kib.is_none() {
                break;
            }
            detached = self.create(attributes)?;
        }
        match (self.read_ahead_kib, &detached.backing) {
            (Some(kib), Some(backing)) => backing.set_read_ahead_kib(kib)?,
            (Some(_), None) => return Err(read_ahead::unknown_backing(&self.metadata)),
            (None, _) => {}
        }
        Ok(detached)
    }

    fn create(&self, attributes: Attributes) -> Result<Detached, MountError> {
        let mut context = Context::open("erofs", self.metadata.display().to_string())?;
        context.set_path("source", &self.metadata)?;
        for device in &self.devices {
            context.set_path("device", device)?;
        }
        context.set_flag("ro")?;
        let attributes = attributes | Attributes::MOUNT_ATTR_RDONLY;
        let (mounted, backing) = BackingDevice::appearing(|| context.mount(attributes));
        let mut detached = mounted?;
        detached.backing = backing;
        Ok(detached)
    }

    /// As [`Erofs::mount`], attached at `target`.
    ///
    /// # Errors
    /// [`MountError::Create`], [`MountError::Attach`].
    pub fn mount_at(&self, target: &Path, attributes: Attributes) -> Result<Detached, MountError> {
        let detached = self.mount(attributes)?;
        detached.attach(target)?;
        Ok(detached)
    }
}
