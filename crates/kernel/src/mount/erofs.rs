//! EROFS over files: a metadata image, and data files as its devices.
//!
//! The kernel opens every file once, when the file system is created, by the path given here: whether reads of
//! a data file are guarded is decided by which mount that path goes through (`fs/erofs/super.c`, file-backed
//! mounts, Linux 6.12). The metadata image is read without any event and must be complete.

use std::path::{Path, PathBuf};

use super::{Attributes, Context, Detached, MountError};

/// An EROFS file system to be mounted.
#[derive(Clone, Debug)]
pub struct Erofs {
    metadata: PathBuf,
    devices: Vec<PathBuf>,
}

impl Erofs {
    /// `metadata` is the path of the metadata image.
    pub fn new(metadata: impl Into<PathBuf>) -> Erofs {
        Erofs {
            metadata: metadata.into(),
            devices: Vec::new(),
        }
    }

    /// Adds the next device. Devices are numbered from 1 in the order in which they are added.
    #[must_use]
    pub fn device(mut self, path: impl Into<PathBuf>) -> Erofs {
        self.devices.push(path.into());
        self
    }

    /// Creates the file system and mounts it detached and read-only.
    ///
    /// `attributes` are added to read-only: `NOSUID` and `NODEV` suit a mount that users of the host can see;
    /// a container's root must have neither (device access is the cgroup's business), as in containerd.
    ///
    /// # Errors
    /// [`MountError::Create`] with the parameter that was refused and the kernel's explanation.
    pub fn mount(&self, attributes: Attributes) -> Result<Detached, MountError> {
        let context = Context::open("erofs", self.metadata.display().to_string())?;
        context.set_path("source", &self.metadata)?;
        for device in &self.devices {
            context.set_path("device", device)?;
        }
        context.set_flag("ro")?;
        context.mount(attributes | Attributes::MOUNT_ATTR_RDONLY)
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
