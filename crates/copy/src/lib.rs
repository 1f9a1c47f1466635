//! Copies files between a host and containers that run: `xebec cp`.
//!
//! A copy has a source, which passes one `Entry` after the other to a sink. A tree of files
//! (`tree_source`, `tree_sink`) and a tar stream (`tar_source`, `tar_sink`) can be either. Nothing is
//! held whole, so sizes are unbounded.
//!
//! # Promises
//!
//! A container is an attacker: it may replace any name by a link at any moment, and a directory of the host
//! may be a volume of it. So:
//!
//! * A path in a container is looked up with the container's root as the root (`place`): no link leads out
//!   of it.
//! * Below the directory that is copied, or copied into, each name is opened in its directory, which is open, and never through a link.
//!   The copy examines and reads the opened file, and does not look its name up again.
//! * A file appears under a temporary name and is then renamed, so no link in its place is followed.
//! * Device files are never made. On the host, bits that let a program run as its owner are dropped unless
//!   everything is to be kept (`-a`).
//! * Trees deeper than 1,000 directories are refused.
//!
//! # Crates that it may use
//!
//! `kernel`, and no other crate of Xebec. It knows no containers: its caller opens the root directory of one ([`ContainerRoot`]).
//!
//! # Where to look
//!
//! | module | what it has |
//! | --- | --- |
//! | `place` | finding source and destination, by docker's rules |
//! | `tree_source`, `tar_source` | what passes entries on |
//! | `tree_sink`, `tar_sink` | what takes them |
//! | `entry` | what they pass to each other |
//! | `limits`, `error` | how deep a tree may be; why a copy fails |

mod entry;
mod error;
mod limits;
mod place;
mod tar_sink;
mod tar_source;
mod tree_sink;
mod tree_source;

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::AtFlags;
use xebec_kernel::file::FileIdentity;
use xebec_kernel::process::raise_open_file_limit;

pub use self::entry::{Note, Skipped};
pub use self::error::CopyError;
use self::place::{Destination, Root, Source};
use self::tar_sink::TarSink;
use self::tree_sink::{Rules, TreeSink};
use self::tree_source::walk;

/// The root directory of a container that runs.
#[derive(Debug)]
pub struct ContainerRoot {
    /// The container's name, for messages.
    pub name: String,
    /// The directory with all its mounts, as the container sees it (`O_PATH`).
    pub directory: OwnedFd,
}

/// Where files are copied from or to.
#[derive(Clone, Copy, Debug)]
pub enum Side<'a> {
    /// A path of the host.
    Host(&'a Path),
    /// A path of a container that runs.
    Container(&'a ContainerRoot, &'a Path),
}

/// How files are copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyOptions {
    /// Keep owners. Otherwise files belong to the caller, or to the container's root.
    pub archive: bool,
    /// If the source is a link, copy the file to which it leads.
    pub follow_link: bool,
}

/// Copies a file or a directory.
///
/// # Errors
/// [`CopyError`]. Files that were copied before stay.
pub fn copy(
    from: Side<'_>,
    to: Side<'_>,
    options: CopyOptions,
    on_note: &mut dyn FnMut(Note),
) -> Result<(), CopyError> {
    let (from_root, from_path) = begin(from);
    let (to_root, to_path) = begin(to);
    let rules = Rules::new(options.archive, matches!(to, Side::Host(_)));
    copy_between(
        (&from_root, from_path),
        (&to_root, to_path),
        options.follow_link,
        rules,
        on_note,
    )
}

/// Writes a file or a directory as a tar stream.
///
/// # Errors
/// [`CopyError`].
pub fn copy_to_tar(
    from: Side<'_>,
    to: impl Write,
    options: CopyOptions,
    on_note: &mut dyn FnMut(Note),
) -> Result<(), CopyError> {
    let (root, path) = begin(from);
    raise_limit();
    let source = Source::open(&root, path, options.follow_link)?;
    let prefix = source.name.clone().map(PathBuf::from);
    let mut sink = TarSink::new(to);
    walk(source, prefix.as_deref(), &mut sink, on_note)?;
    sink.finish()
}

/// Extracts a tar stream into a directory that exists.
///
/// # Errors
/// [`CopyError`]. Files that were extracted before stay.
pub fn copy_from_tar(
    from: impl Read,
    to: Side<'_>,
    options: CopyOptions,
    on_note: &mut dyn FnMut(Note),
) -> Result<(), CopyError> {
    let (root, path) = begin(to);
    let Destination::Directory(base) = Destination::find(&root, path)? else {
        return Err(CopyError::NoDirectory(root.label(path)));
    };
    raise_limit();
    let rules = Rules::new(options.archive, matches!(to, Side::Host(_)));
    let mut sink = TreeSink::new(base, root.label(path), rules);
    tar_source::read(from, &mut sink, on_note)?;
    sink.finish()
}

/// Where a path begins, and the path.
fn begin(side: Side<'_>) -> (Root<'_>, &Path) {
    match side {
        Side::Host(path) => (Root::Host, path),
        Side::Container(root, path) => (Root::Within(root.directory.as_fd(), &root.name), path),
    }
}

/// Copies with docker's rules about what exists at the destination.
fn copy_between(
    (from_root, from): (&Root<'_>, &Path),
    (to_root, to): (&Root<'_>, &Path),
    follow_link: bool,
    rules: Rules,
    on_note: &mut dyn FnMut(Note),
) -> Result<(), CopyError> {
    let source = Source::open(from_root, from, follow_link)?;
    let (base, prefix) = target(&source, from_root.label(from), to_root, to)?;
    if is_source(&source, &base, prefix.as_deref()) {
        return Err(CopyError::IntoItself {
            from: from_root.label(from),
            to: to_root.label(to),
        });
    }
    raise_limit();
    let mut sink = TreeSink::new(base, to_root.label(to), rules);
    walk(source, prefix.as_deref().map(Path::new), &mut sink, on_note)?;
    sink.finish()
}

/// The directory into which a source is copied, and its name there; without a name, its contents are copied.
fn target(
    source: &Source,
    from: String,
    root: &Root<'_>,
    to: &Path,
) -> Result<(OwnedFd, Option<OsString>), CopyError> {
    match Destination::find(root, to)? {
        Destination::Directory(directory) => Ok((directory, source.name.clone())),
        Destination::Name { exists: true, .. } if source.is_directory => Err(CopyError::DirectoryOntoFile {
            from,
            to: root.label(to),
        }),
        Destination::Name {
            must_be_directory: true,
            ..
        } if !source.is_directory => Err(CopyError::NoDirectory(root.label(to))),
        Destination::Name { directory, name, .. } => Ok((directory, Some(name))),
    }
}

/// Whether the destination is the source.
fn is_source(source: &Source, base: &OwnedFd, prefix: Option<&OsStr>) -> bool {
    let name = prefix.unwrap_or(OsStr::new("."));
    let found = rustix::fs::statat(base, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| {
        FileIdentity::of(&source.opened).is_ok_and(|own| own == FileIdentity::from(&found))
    })
}

/// Each level of a tree takes three open files.
fn raise_limit() {
    if let Err(error) = raise_open_file_limit() {
        tracing::debug!(%error, "cannot raise the limit of open files");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
