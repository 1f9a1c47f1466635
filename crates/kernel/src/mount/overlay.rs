//! overlayfs: a container's writable layer over one or more read-only directories.
//!
//! Every directory is given by descriptor where the kernel takes one (Linux 6.13), by `lowerdir+`, `upperdir`
//! and `workdir`: no escaping of `:` and `,`, no limit on length. `redirect_dir` and `metacopy` are off and not
//! followed either, because a lower layer is other people's data: its `trusted.overlay.*` attributes must not
//! say where a directory's contents come from.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::{Attributes, Context, Detached, MountError};

/// An overlay to be mounted.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    lower: Vec<PathBuf>,
    upper: Option<(PathBuf, PathBuf)>,
    options: Vec<(String, Option<String>)>,
}

impl Overlay {
    /// An overlay of nothing; add at least one lower directory.
    pub fn new() -> Overlay {
        Overlay::default()
    }

    /// Adds a lower directory below those already added: the first one is the topmost.
    #[must_use]
    pub fn lower(mut self, path: impl Into<PathBuf>) -> Overlay {
        self.lower.push(path.into());
        self
    }

    /// Makes the overlay writable. `upper` and `work` are directories of one file system; `work` is empty.
    #[must_use]
    pub fn upper(mut self, upper: impl Into<PathBuf>, work: impl Into<PathBuf>) -> Overlay {
        self.upper = Some((upper.into(), work.into()));
        self
    }

    /// Adds an option, `volatile` for example; the last value of an option counts.
    #[must_use]
    pub fn option(mut self, key: &str, value: Option<&str>) -> Overlay {
        self.options.push((key.to_owned(), value.map(str::to_owned)));
        self
    }

    /// Creates the overlay and mounts it detached; read-only when it has no upper directory.
    ///
    /// # Errors
    /// [`MountError::Create`] with the parameter that was refused and the kernel's explanation.
    pub fn mount(&self, attributes: Attributes) -> Result<Detached, MountError> {
        let origin = self
            .lower
            .first()
            .map(|path| path.display().to_string())
            .unwrap_or_default();
        let mut context = Context::open("overlay", origin)?;
        context.set_option("source", "overlay")?;
        for lower in &self.lower {
            set_directory(&mut context, "lowerdir+", lower)?;
        }
        if let Some((upper, work)) = &self.upper {
            set_directory(&mut context, "upperdir", upper)?;
            set_directory(&mut context, "workdir", work)?;
        }
        for (key, value) in [
            ("redirect_dir", "nofollow"),
            ("metacopy", "off"),
            ("index", "off"),
        ] {
            context.set_option(key, value)?;
        }
        for (key, value) in &self.options {
            match value {
                Some(value) => context.set_option(key, value)?,
                None => context.set_flag(key)?,
            }
        }
        context.mount(attributes)
    }

    /// Whether an overlay has `upper` for its upper directory: one that is mounted in any namespace, or one that
    /// only processes have open. Changes nothing.
    ///
    /// The kernel locks the upper directory before it looks at the work directory (`ovl_get_upper` and
    /// `ovl_get_workdir`, `fs/overlayfs/super.c`), and with `index` it refuses one that is locked. A work directory
    /// that is the upper one is always refused.
    ///
    /// # Errors
    /// [`MountError::Create`] if the kernel refuses for another reason.
    pub fn is_upper_in_use(upper: &Path) -> Result<bool, MountError> {
        let mut context = Context::open("overlay", upper.display().to_string())?;
        for key in ["lowerdir+", "upperdir", "workdir"] {
            set_directory(&mut context, key, upper)?;
        }
        context.set_option("index", "on")?;
        match rustix::mount::fsconfig_create(&context.fd) {
            Err(rustix::io::Errno::BUSY) => Ok(true),
            Err(rustix::io::Errno::INVAL) => Ok(false),
            Err(errno) => Err(context.error("create".to_owned(), errno)),
            // It is mounted nowhere, and goes with its descriptor.
            Ok(()) => Ok(false),
        }
    }

    /// As [`Overlay::mount`], attached at `target`.
    ///
    /// # Errors
    /// [`MountError::Create`], [`MountError::Attach`].
    pub fn mount_at(&self, target: &Path, attributes: Attributes) -> Result<Detached, MountError> {
        let detached = self.mount(attributes)?;
        detached.attach(target)?;
        Ok(detached)
    }
}

fn set_directory(context: &mut Context, key: &str, path: &Path) -> Result<(), MountError> {
    let step = || format!("{key}={}", path.display());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| context.error(step(), errno))?;
    match rustix::mount::fsconfig_set_fd(&context.fd, key, directory.as_fd()) {
        Ok(()) => Ok(()),
        // Before Linux 6.13 these parameters are strings only.
        Err(rustix::io::Errno::INVAL) => context.set_path(key, path),
        Err(errno) => Err(context.error(step(), errno)),
    }
}
