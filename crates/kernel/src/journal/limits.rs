//! Limits of the journal.

/// Number of entries in the pending table: more readers than this never wait at one time, because reading of
/// events stops before. Each owed event holds a descriptor, and 16,384 is just below common limits of open
/// files (20,000 where this was developed).
pub const CAPACITY: usize = 16_384;

/// Size of the raw buffer. One page, so that it is either all there or not at all.
pub const RAW_BYTES: usize = 4096;
