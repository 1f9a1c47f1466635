//! Reasons why a directory is of no use, and why one is too open.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::RawMode;

/// A directory cannot be kept from other users.
#[derive(Debug, thiserror::Error)]
pub enum ClosedError {
    /// The system refused.
    #[error("cannot {doing} {}: {source}{}", .path.display(), advice(.source))]
    File {
        /// The action that failed, as a verb.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is somebody else's.
    #[error(
        "{} belongs to user {owner}, who could read and change what Xebec keeps there; make it user {own}'s (chown), or \
         choose another directory by --root and --run", .path.display()
    )]
    Owner {
        /// The directory, or the file in it.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// The user id that it should have.
        own: u32,
    },
    /// Somebody else could put another in its place.
    #[error(
        "{} is below {}, which {why}: another directory could be put in its place; let only root and this user change what is above \
         it (chown, chmod), or choose another directory by --root and --run", .path.display(), .above.display()
    )]
    Above {
        /// The directory.
        path: PathBuf,
        /// The directory or link on the way to it.
        above: PathBuf,
        /// The fault of that, in words.
        why: String,
    },
    /// Somebody else could put another file in the place of one that the configuration names.
    #[error(
        "{}, which trust.toml or registries.toml names, is below {}, which {why}: another file could be put in its place; let only \
         root and this user change what is on the way to it (chown, chmod), or move it beside the file that names it", .path.display(),
        .above.display()
    )]
    Named {
        /// The file.
        path: PathBuf,
        /// The directory or link on the way to it.
        above: PathBuf,
        /// The fault of that, in words.
        why: String,
    },
    /// It is open, and closing it may harm others.
    #[error(
        "{} is open to other users (mode {mode:04o}) and holds what is not Xebec's, as {found}; choose an empty directory by \
         --root and --run, or if this one is meant, close it: chmod 0700 {}", .path.display(), .path.display()
    )]
    Stranger {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// The name in it that is not Xebec's.
        found: String,
    },
    /// It is somebody's, though it is closed.
    #[error(
        "{} holds what is not Xebec's, as {found}; choose an empty directory by --root and --run", .path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// The name in it that is not Xebec's.
        found: String,
    },
    /// Others could have written the settings that Xebec is to obey.
    #[error(
        "other users may write to {} (mode {mode:04o}), and could have changed what it says; look at it, then run: chmod go-w {}",
        .path.display(), .path.display()
    )]
    Writable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is a run directory, and was given as the root, or the other way round.
    #[error(
        "{} is a {is} directory of Xebec's (it holds {found}), and cannot be the {asked} directory, too; give each its own by \
         --root and --run", .path.display()
    )]
    Exchanged {
        /// The directory.
        path: PathBuf,
        /// Its use: `root` or `run`.
        is: &'static str,
        /// The name in it that shows its use.
        found: String,
        /// The use that it was given for: `root` or `run`.
        asked: &'static str,
    },
    /// One is in the other.
    #[error(
        "the run directory {} and the root directory {} are the same or one is in the other; give each its own by --root and \
         --run", .run.display(), .root.display()
    )]
    Nested {
        /// The root directory.
        root: PathBuf,
        /// The run directory.
        run: PathBuf,
    },
    /// It is on another host, or may be.
    #[error(
        "{} is on {filesystem}, which Xebec cannot use: it guards no pages, and others may write to it; choose a directory of a \
         local disk by --root and --run", .path.display()
    )]
    Elsewhere {
        /// The directory.
        path: PathBuf,
        /// The file system.
        filesystem: &'static str,
    },
    /// Its file system knows no permissions.
    #[error(
        "{} stays open to other users (mode {mode:04o}): its file system does not take permissions; choose another directory \
         by --root and --run", .path.display()
    )]
    Stays {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// The remedy for an error of the system.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
            "; Xebec needs root: run it with sudo"
        }
        _ => "; other directories can be given by --root and --run",
    }
}

/// Permissions by which other users change files that are not theirs.
pub(super) const OTHERS_WRITE: RawMode = 0o022;

pub(super) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ClosedError {
    let path = path.to_owned();
    move |source| ClosedError::File { doing, path, source }
}
