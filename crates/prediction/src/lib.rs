//! Which pages of a new version of an image its services will read, by what was recorded of an earlier version.
//!
//! A recording names pages of layers. A page belongs to a file; the file is in the new version, too, or another one is in its place.
//!
//! * [`files`]: the files of an image: the merged tree, and the digest of each file's contents.
//! * [`pages`]: from a page of the earlier version to a page of the new one.
//! * [`command`]: from a command line of the earlier version to that of the new one.
//! * [`services`]: all of it: from recorded services to predicted ones.
//!
//! Promises: no page is named that the new version's indexes do not have. The order of first access is kept. What recordings and
//! indexes say decides which pages are named and nothing else: work and memory are bounded for hostile ones.
//!
//! May use: `format`. No I/O: callers read recordings and indexes, and bring the pages.

pub mod command;
pub mod files;
pub mod pages;
pub mod services;
