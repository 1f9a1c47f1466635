//! Why a container's changes cannot become an image.

use std::io;
use std::path::{Path, PathBuf};

use xebec_kernel::file::during;
use xebec_kernel::terminal::printable;

use crate::limits::{LEVELS, MAX_ENTRIES, MAX_LINKED, MAX_NAME, MAX_NAMES, MAX_PATH};

/// Why a container's changes cannot become a layer, or an image cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// An operation on a file failed. Paths of changed files are those that the container sees.
    #[error("cannot {doing} {}: {source}", shown(path))]
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
        shown(.0)
    )]
    Shrunk(PathBuf),
    /// Something is mounted in the upper directory.
    #[error("something of this host is mounted on {} in the container's layer; unmount it first", shown(.0))]
    Mount(PathBuf),
    /// The overlay was mounted with features that leave contents in lower layers.
    #[error(
        "{} has the overlay attribute {attribute}, by which its contents are in a lower layer: the container's layer was not written \
         by Xebec, and cannot be committed",
        shown(path)
    )]
    Feature {
        /// The file.
        path: PathBuf,
        /// `trusted.overlay.redirect` or `trusted.overlay.metacopy`.
        attribute: &'static str,
    },
    /// The tree is too deep.
    #[error("{} is deeper than {LEVELS} directories; remove it from the container", shown(.0))]
    TooDeep(PathBuf),
    /// The layer would have too many entries.
    #[error("the container changed more than {MAX_ENTRIES} files, which no layer can have; remove some")]
    TooMany,
    /// Directories have too many names to sort them.
    #[error(
        "the names in {} and the directories above it take more than {MAX_NAMES} bytes; spread its files over several directories",
        shown(.0)
    )]
    TooManyNames(PathBuf),
    /// A path is too long.
    #[error("a path has more than {MAX_PATH} bytes, which no layer can have; rename or remove it: {}", shown(.0))]
    PathTooLong(PathBuf),
    /// The name of a deleted file is too long.
    #[error(
        "a layer cannot say that {} is deleted: the name has more than {} bytes; make a file of that name, even an empty one",
        shown(.0),
        MAX_NAME - 4
    )]
    DeletedName(PathBuf),
    /// All files together have too much of something.
    #[error(
        "the container's changes have more than {limit} bytes of {what}, which no layer can have; remove some"
    )]
    TooMuch {
        /// What.
        what: &'static str,
        /// The limit in bytes.
        limit: u64,
    },
    /// Too many files have several names.
    #[error(
        "the paths of files with several names (hard links) take more than {MAX_LINKED} bytes of memory; remove some"
    )]
    TooManyLinks,
    /// The files so far claim far more than is on the disk.
    #[error(
        "up to {} the changed files say that they have {claimed} bytes, and have {held} on the disk: a layer would hold all their zeros; \
         remove files with large holes, or make them shorter",
        shown(path)
    )]
    Sparse {
        /// The last of these files.
        path: PathBuf,
        /// Their sizes in bytes.
        claimed: u64,
        /// Their bytes on the disk.
        held: u64,
    },
    /// The extended attributes of a file do not fit into a layer.
    #[error(
        "{} has extended attributes of {size} bytes; a layer's entry has at most {limit}; remove some",
        shown(path)
    )]
    Attributes {
        /// The file.
        path: PathBuf,
        /// Their size: names and values, in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A document of a committed image is not what its name says.
    #[error("{}: {problem}; if a later version wrote it, use that version", shown(path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The list of committed images is damaged, or a later version wrote it.
    #[error(
        "{}: {problem}; if a later version wrote it, use that version. Otherwise put a copy of this file back, or move {} away: then this \
         host has no committed images, and others are as before (docs/formats/committed.md)",
        shown(path),
        shown(path.parent().unwrap_or(path))
    )]
    List {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// There are too many committed images.
    #[error("{0} committed images are kept on this host, and no more fit; remove some with `xebec rmi`")]
    TooManyImages(usize),
}

/// A path for a message. A container chooses its names, which must not steer the terminal.
pub(crate) fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

impl CommitError {
    /// The error of an operation on a file, for `map_err`.
    pub(crate) fn file<E: Into<io::Error>>(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self + use<E> {
        during(doing, path, |doing, path, source| Self::File {
            doing,
            path,
            source,
        })
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
