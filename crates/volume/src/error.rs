//! Why a volume cannot be used. Each message names the thing, and says what to do.

use std::io;
use std::path::{Path, PathBuf};

use xebec_kernel::file::during;

/// A defect of a volume, or of the request for it.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A `--volume` that cannot be understood.
    #[error("volume {volume:?}: {reason}")]
    Text {
        /// The volume as the user gave it.
        volume: String,
        /// The defect, in words.
        reason: String,
    },
    /// A `--mount` that cannot be understood.
    #[error("mount {mount:?}: {key}: {reason}")]
    Mount {
        /// The mount as the user gave it.
        mount: String,
        /// The key that is wrong.
        key: String,
        /// The defect, in words.
        reason: String,
    },
    /// A tmpfs that cannot be mounted.
    #[error("tmpfs {tmpfs:?}: {reason}")]
    Tmpfs {
        /// The tmpfs as the user gave it.
        tmpfs: String,
        /// The defect, in words.
        reason: String,
    },
    /// Two mounts at one place.
    #[error("two mounts have the target {}; leave one of them out", .0.display())]
    SameTarget(PathBuf),
    /// Not a name of a volume.
    #[error(
        "{0:?} cannot name a volume; use up to 200 letters, digits, '.', '_' and '-', the first a letter or digit"
    )]
    Name(String),
    /// There is no such volume.
    #[error("there is no volume named {0}; `xebec volume ls` lists those that there are")]
    Missing(String),
    /// A container uses it.
    #[error("volume {name} is used by {}; remove {} first", containers.join(", "),
        if containers.len() == 1 { "that container" } else { "those containers" })]
    Used {
        /// The volume.
        name: String,
        /// The containers, also those that have ended.
        containers: Vec<String>,
    },
    /// Nobody knows which volumes a container uses.
    #[error("cannot tell which volumes the container {container} uses ({}: {problem}); remove that container first", path.display())]
    Uses {
        /// The container.
        container: String,
        /// The file that should say so.
        path: PathBuf,
        /// The defect of the file, in words.
        problem: String,
    },
    /// A source that must be there.
    #[error("{} is not there, and a bind mount needs it; make it first, or use --volume, which makes a directory", .0.display())]
    NoSource(PathBuf),
    /// A mount whose source has to be on a shared mount.
    #[error(
        "{} is on {}, which is not {needed}; run `mount --make-r{needed} {}`, or leave {option} out",
        path.display(), mount.display(), mount.display()
    )]
    Propagation {
        /// The source.
        path: PathBuf,
        /// The mount that it is on.
        mount: PathBuf,
        /// The kind of mount that it has to be.
        needed: &'static str,
        /// The option that asks for it.
        option: &'static str,
    },
    /// The image has a file where a volume is to be.
    #[error("{} is no directory in the image, and a volume is one; choose another place", .0.display())]
    NotADirectory(PathBuf),
    /// The file that was mounted is not the one that was opened.
    #[error(
        "{} in the container is not {}: something replaced it while the container was created; see who can write there, and try again",
        target.display(), path.display()
    )]
    Replaced {
        /// The path in the container.
        target: PathBuf,
        /// The path on the host.
        path: PathBuf,
    },
    /// A directory whose label no container may change.
    #[error("{} belongs to the host, and is not relabelled for a container; leave z and Z out", .0.display())]
    HostsLabel(PathBuf),
    /// A signal asks the process to end.
    #[error("stopped by a signal while a volume was filled")]
    Interrupted,
    /// An operation on a file or directory failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// The operation.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl VolumeError {
    /// The error of an operation on a file, for `map_err`.
    pub(super) fn file<E: Into<io::Error>>(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self + use<E> {
        during(doing, path, |doing, path, source| Self::File {
            doing,
            path,
            source,
        })
    }
}
