//! Why a container's changes cannot become an image.

use std::io;
use std::path::{Path, PathBuf};

use crate::changes::{LEVELS, MAX_ENTRIES, MAX_NAMES};

/// Why a container's changes cannot become a layer, or an image cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// An operation on a file failed. Paths of changed files are those that the container sees.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The layer could not be written.
    #[error("cannot write the layer: {0}")]
    Write(io::Error),
    /// The caller wants no more of it.
    #[error("stopped: {0}")]
    Stopped(io::Error),
    /// A file has less than it had when its entry began.
    #[error(
        "{} became shorter while it was read; commit again without --no-pause, or stop the container first",
        .0.display()
    )]
    Shrunk(PathBuf),
    /// Something is mounted in the upper directory.
    #[error("something of this host is mounted on {} in the container's layer; unmount it first", .0.display())]
    Mount(PathBuf),
    /// The overlay was mounted with features that leave contents in lower layers.
    #[error(
        "{} has the overlay attribute {attribute}, by which its contents are in a lower layer: the container's layer was not written \
         by Xebec, and cannot be committed",
        path.display()
    )]
    Feature {
        /// The file.
        path: PathBuf,
        /// `trusted.overlay.redirect` or `trusted.overlay.metacopy`.
        attribute: &'static str,
    },
    /// The tree is too deep.
    #[error("{} is deeper than {LEVELS} directories; remove it from the container", .0.display())]
    TooDeep(PathBuf),
    /// The layer would have too many entries.
    #[error("the container changed more than {MAX_ENTRIES} files, which no layer can have; remove some")]
    TooMany,
    /// Directories have too many names to sort them.
    #[error(
        "the names in {} and the directories above it take more than {MAX_NAMES} bytes; spread its files over several directories",
        .0.display()
    )]
    TooManyNames(PathBuf),
    /// A file claims far more than is on the disk.
    #[error(
        "{} says it has {claimed} bytes, and has {held} on the disk: a layer would hold all its zeros; remove it, or make it shorter",
        path.display()
    )]
    Sparse {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        claimed: u64,
        /// Its bytes on the disk.
        held: u64,
    },
    /// The extended attributes of a file do not fit into a layer.
    #[error("{} has extended attributes of {size} bytes; a layer's entry has at most {limit}; remove some", path.display())]
    Attributes {
        /// The file.
        path: PathBuf,
        /// Their size: names and values, in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The list of committed images is not as this version writes it.
    #[error("{}: {problem}; if a later version wrote it, use that version", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// There are too many committed images.
    #[error("{0} committed images are kept on this host, and no more fit; remove some with `xebec rmi`")]
    TooManyImages(usize),
}

impl CommitError {
    /// The error of an operation on a file, for `map_err`.
    pub(crate) fn file<E: Into<io::Error>>(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self + use<E> {
        let path = path.to_owned();
        move |error| Self::File {
            doing,
            path,
            source: error.into(),
        }
    }

    /// The error of the disk, if that is why the image could not be written.
    pub fn of_disk(&self) -> Option<&io::Error> {
        match self {
            Self::Write(error) => Some(error),
            Self::File { source, .. } => Some(source),
            _ => None,
        }
    }
}
