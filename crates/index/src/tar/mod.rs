//! Tar as it exists in the wild: a push parser without I/O.
//!
//! [`TarParser`] takes the plain stream of a layer in slices of any size and hands every byte of it on to a
//! [`TarSink`], as *contents* of a regular file or as *frame* (everything else). The two, interleaved in the order
//! of the calls, are exactly the input. Contents are passed through without a copy and already have their place in
//! the layer's data space. Each entry is announced when its header is complete, before its contents.
//!
//! An archive is read as containerd's unpacker (`archive.Apply`) and the reader below it (Go's `archive/tar`) read it,
//! because image builders test against them: they decide which field wins, where the archive ends, and which types
//! carry data. In particular:
//!
//! * Global PAX headers are checked but do not apply to later entries, and drop a pending local header.
//! * A GNU long name wins over a PAX `path`; empty PAX values leave the header's value alone.
//! * Types 1 to 6 have no contents, whatever size they claim. Only type NUL with a trailing slash is a directory.
//! * One or two end blocks, or none, end an archive; even the last padding may be missing.
//! * Only `SCHILY.xattr.*` gives extended attributes, empty values included, and what containerd skips is skipped:
//!   `trusted.*`, namespaces that Linux does not have, `user.*` on links and devices. (umoci also skips empty values
//!   and `security.selinux`.)
//!
//! It differs from them on purpose where they are unsafe, lossy or undefined:
//!
//! * `..` in the path of an entry or a hard link is rejected; containerd resolves it inside the root.
//! * Old GNU sparse files (type `S`) and contiguous files (type `7`) are regular files; containerd refuses them.
//! * Times before 1970 are kept; containerd sets them to 1970.
//! * The root's own entry (`./`) is announced if it is a directory, and ignored otherwise; containerd ignores it
//!   always, umoci applies the directory and refuses everything else.
//! * Aufs bookkeeping (`.wh..wh.*` other than the opaque marker) is skipped.
//! * Numbers that containerd cuts down to 32 bits (owners, devices) are rejected when they do not fit.
//!
//! Whatever the input, memory is bounded by [`TarLimits`], and lies are rejected by name: see [`TarError`].

mod entry;
mod error;
mod header;
mod limits;
mod number;
mod parser;
mod pax;
mod sparse;
mod xattr;

pub use error::{EntryProblem, HeaderProblem, SparseProblem, TarError};
pub use limits::TarLimits;
pub use parser::TarParser;

pub(crate) use entry::{Announced, announce, memory_of};
pub(crate) use header::{Dialect, Header, kind};
pub(crate) use sparse::{RawMap, place};

use xebec_format::layer::Entry;

/// Receives what a [`TarParser`] finds, in the order of the stream.
pub trait TarSink {
    /// Bytes of the stream that are not file contents: headers, long names, PAX records, sparse maps, padding, end
    /// blocks, and what follows them.
    fn frame(&mut self, bytes: &[u8]);

    /// Contents of the regular file that was announced last; `data_offset` is the place of `bytes` in the data
    /// space. Offsets ascend over the whole archive.
    ///
    /// # Errors
    /// An error ends the parse and comes back as [`TarError::Sink`].
    fn content(&mut self, data_offset: u64, bytes: &[u8]) -> std::io::Result<()>;

    /// The next entry. Its contents follow, if it has any.
    fn entry(&mut self, entry: Entry);
}

/// Totals of a parsed archive, in bytes unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TarSummary {
    /// Length of the whole stream.
    pub plain_size: u64,
    /// How many of its bytes went to [`TarSink::content`]; the others went to [`TarSink::frame`].
    pub content_size: u64,
    /// Length of the data space; a multiple of the page size.
    pub data_size: u64,
    /// Number of entries announced.
    pub entries: u64,
}
