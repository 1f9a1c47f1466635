//! Entries that a source passes to a sink: one file, directory or link at a time.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use xebec_kernel::file::FileIdentity;

use super::error::CopyError;

/// The attributes that a copy keeps of every file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    /// The permissions, with the bits of `chmod(1)` above them.
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// When it was changed last, in seconds since 1970 and nanoseconds.
    pub(super) modified: (i64, u32),
}

/// The contents of a file.
pub(super) enum Content<'a> {
    /// Of a file of that size. Its holes are kept.
    File(&'a File, u64),
    /// Of a stream, to its end.
    Stream(&'a mut dyn Read),
}

/// The kind of an entry, with its contents.
pub(super) enum Kind<'a> {
    Directory,
    File(Content<'a>),
    /// A symbolic link.
    Link(&'a OsStr),
    /// Another name of a file that was passed before.
    Same(&'a Path),
    Fifo,
    /// A device of this major and minor number.
    Device {
        is_block: bool,
        number: (u32, u32),
    },
}

/// One file, directory or link.
pub(super) struct Entry<'p, 'k> {
    /// Its path below the destination; never empty, without `..`.
    pub(super) path: &'p Path,
    pub(super) meta: Meta,
    pub(super) kind: Kind<'k>,
}

/// The receiver of entries. A directory comes before the entries in it.
pub(super) trait Sink {
    /// Takes an entry. Returns why it was left out, if it was.
    fn add(&mut self, entry: Entry<'_, '_>) -> Result<Option<Skipped>, CopyError>;

    /// Whether a directory is the destination.
    fn is_destination(&self, _directory: FileIdentity) -> bool {
        false
    }
}

/// Why a file was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// It is a device.
    Device,
    /// It is a socket, which is nothing without the process that listens.
    Socket,
    /// It is on a file system that the kernel makes up, such as /proc.
    OfTheKernel,
    /// It is of a kind that tar streams may have and file systems do not.
    Unknown,
}

/// A file was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its path below the destination.
    pub path: PathBuf,
    /// Why.
    pub reason: Skipped,
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Self::Device => "it is a device",
            Self::Socket => "it is a socket",
            Self::OfTheKernel => "its file system is the kernel's own",
            Self::Unknown => "it is of an unknown kind",
        })
    }
}
