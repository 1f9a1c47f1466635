//! Options of an installation: what is installed, and where; what is there already.

use std::path::{Path, PathBuf};

use xebec_protocol::closed::{self, Use};
use xebec_protocol::failure::{Failure, FailureKind};

use crate::root;

/// Where the program goes when it is not where a package would have put it.
pub const PROGRAM: &str = "/usr/local/bin/xebec";
/// Where a package puts it.
pub const PACKAGED_PROGRAM: &str = "/usr/bin/xebec";
/// containerd's usual configuration.
pub const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";

/// Docker's usual configuration.
pub const DOCKER_CONFIG: &str = "/etc/docker/daemon.json";

/// The options of an installation.
#[derive(Clone, Debug)]
pub struct Options {
    /// The host's root directory; other than `/` when it is installed from a container, or into an image.
    pub sysroot: PathBuf,
    /// The program that is installed.
    pub program: PathBuf,
    /// State directory, as the host sees it.
    pub root: PathBuf,
    /// Run directory, as the host sees it.
    pub run: PathBuf,
    /// containerd's configuration, as the host sees it; `None` when containerd is not to be touched.
    pub containerd: Option<PathBuf>,
    /// Docker's configuration, as the host sees it, if Docker is to use lazy images.
    pub docker: Option<PathBuf>,
    /// Kubernetes and others that name no snapshotter get this one.
    pub is_default: bool,
    /// Restart containerd afterwards, if anything of it changed. Containers go on.
    pub restart_containerd: bool,
}

impl Options {
    /// A path of the host, as this process sees it.
    pub(crate) fn here(&self, path: &Path) -> PathBuf {
        root::resolve(&self.sysroot, path)
    }

    /// Whether what somebody named is there. A mistyped path would get a configuration that nobody reads.
    pub(crate) fn check_places(&self) -> Result<(), Failure> {
        self.check_sysroot()?;
        let refused = |message: String| Err(Failure::new(FailureKind::Usage, message));
        for (directory, of) in [(&self.root, Use::Root), (&self.run, Use::Run)] {
            closed::check(&self.here(directory), of)
                .map_err(|error| Failure::new(FailureKind::Usage, error.to_string()))?;
        }
        let usual = [Path::new(CONTAINERD_CONFIG), Path::new(DOCKER_CONFIG)];
        let named = [&self.containerd, &self.docker].into_iter().flatten();
        for file in named.filter(|file| !usual.contains(&file.as_path())) {
            let directory = file.parent().unwrap_or(file);
            if !self.here(directory).is_dir() {
                return refused(format!(
                    "{} is not there; name the configuration that is read, or make that directory first",
                    directory.display()
                ));
            }
        }
        Ok(())
    }

    /// Whether the host's root directory is there. Nothing is installed on one that is not.
    pub(crate) fn check_sysroot(&self) -> Result<(), Failure> {
        if self.sysroot.is_dir() {
            return Ok(());
        }
        let message = format!(
            "{} is no directory; name a host's root directory",
            self.sysroot.display()
        );
        Err(Failure::new(FailureKind::Usage, message))
    }

    /// Where the program is for the host: where a package put it, or where it is copied to.
    pub(crate) fn installed_program(&self) -> PathBuf {
        match self.is_packaged() {
            true => PACKAGED_PROGRAM.into(),
            false => PROGRAM.into(),
        }
    }
}
