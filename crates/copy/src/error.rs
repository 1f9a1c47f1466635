//! Why files could not be copied.

use std::io;
use std::path::{Path, PathBuf};

use xebec_kernel::file::during;

use super::limits::LEVELS;

/// Why files could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// There is no such source.
    #[error("{0}: no such file or directory")]
    Missing(String),
    /// A path that ends with `/` names no directory.
    #[error("{0} is not a directory; leave the '/' at its end out")]
    NotADirectory(String),
    /// The directory to copy into does not exist.
    #[error("{0}: the directory to copy into does not exist; create it first")]
    NoDirectory(String),
    /// The destination is a link that leads nowhere.
    #[error("{0} is a link that leads to no file; name another destination")]
    DanglingLink(String),
    /// A file or a directory would be copied to itself, or a directory into itself.
    #[error(
        "cannot copy {from} to {to}: the destination is the source, or is in it; name another destination"
    )]
    IntoItself {
        /// The source.
        from: String,
        /// The destination.
        to: String,
    },
    /// A directory would replace a file.
    #[error("cannot copy the directory {from} over the file {to}; name a directory")]
    DirectoryOntoFile {
        /// The source.
        from: String,
        /// The destination.
        to: String,
    },
    /// A file or a link is where a directory would go.
    #[error("{} in {destination} is a file or a link, and a directory would go there; remove it first", path.display())]
    InTheWay {
        /// Its path in the destination.
        path: PathBuf,
        /// The destination.
        destination: String,
    },
    /// A directory is where a file would go.
    #[error("{} in {destination} is a directory, and a file would go there; remove it first", path.display())]
    FileOntoDirectory {
        /// Its path in the destination.
        path: PathBuf,
        /// The destination.
        destination: String,
    },
    /// Something is mounted where a link or a special file would go.
    #[error("something is mounted on {} in {destination}; unmount it first", path.display())]
    MountInTheWay {
        /// Its path in the destination.
        path: PathBuf,
        /// The destination.
        destination: String,
    },
    /// A file of the kernel, which has no size.
    #[error(
        "{0} is not a file on a disk: the kernel makes it up (/proc, /sys); read it with `xebec exec NAME cat`"
    )]
    OfTheKernel(String),
    /// A device or a socket.
    #[error("{0} is a device or a socket, which cannot be copied")]
    Special(String),
    /// The tree is too deep.
    #[error("{} is deeper than {LEVELS} directories; copy a part of the tree", .0.display())]
    TooDeep(PathBuf),
    /// A path in a tar stream leads out of the destination.
    #[error("the tar stream has the path {:?}, which leads out of the destination; it was not extracted", .0.display())]
    Escaping(PathBuf),
    /// The tar stream cannot be read.
    #[error("cannot read the tar stream: {0}; if it is compressed, decompress it first (gzip -dc)")]
    ReadTar(io::Error),
    /// The tar stream cannot be written.
    #[error("cannot write the tar stream: {0}")]
    WriteTar(io::Error),
    /// An operation on a file failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl CopyError {
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

    /// Whether the reader of the tar stream has closed it.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::WriteTar(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
