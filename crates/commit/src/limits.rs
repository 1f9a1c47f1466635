//! What a layer of changes may have: what the index of a layer takes, and what a walk may take of memory.

use xebec_format::layer::limits;
use xebec_format::path;

/// How deep a tree may be, as for `xebec cp`: each level holds a directory open.
pub(crate) const LEVELS: usize = 1000;
/// Longest path in bytes: `PATH_MAX` of Linux less the terminating NUL. What unpacks layers opens a path at once.
pub(crate) const MAX_PATH: usize = 4095;
/// Longest name in bytes, that of a deletion too.
pub(crate) const MAX_NAME: usize = path::MAX_NAME;
/// Most entries: what the index of a layer takes.
pub(crate) const MAX_ENTRIES: u64 = limits::MAX_ENTRIES;
/// Most bytes of all paths together.
pub(crate) const MAX_PATH_BYTES: u64 = limits::MAX_PATH_BYTES;
/// Most bytes of the extended attributes of all files together, names and values.
pub(crate) const MAX_XATTR_BYTES: u64 = limits::MAX_XATTR_BYTES;
/// Most bytes of contents of all files together, each rounded up to [`PAGE`].
pub(crate) const MAX_DATA: u64 = limits::MAX_DATA;
/// Contents begin at a page in the data of a layer, in bytes.
pub(crate) const PAGE: u64 = 4096;
/// Most bytes of memory that all entries take while a layer is indexed (`TarLimits::TREE` of the crate `index`).
pub(crate) const MAX_TREE: u64 = 1 << 30;
/// Most bytes of the names of one directory and those above it, which are in memory to be sorted: about four million names.
pub(crate) const MAX_NAMES: usize = 128 << 20;
/// Most bytes of memory for the paths of files with several names: more than a million of usual length.
pub(crate) const MAX_LINKED: usize = 256 << 20;
/// Bytes of memory that such a path takes beside its own.
pub(crate) const LINKED: usize = 96;
/// All files together may claim so many times their bytes on the disk, as files do that compress well on the disk itself.
pub(crate) const CLAIMED_TIMES: u64 = 256;
/// So many bytes they may claim beside that, whatever is on the disk.
pub(crate) const MAY_BE_SPARSE: u64 = 1 << 30;
