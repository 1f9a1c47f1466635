//! How far ahead of a place the two kinds of parsers look.

/// Places that a search for the cheapest way plans at once,
pub(super) const PLANNED: u64 = 32 << 10;
/// and how many more it looks at, so that what lies behind hardly matters.
pub(super) const TAIL: u64 = 4 << 10;
/// How many bytes after a place it looks at.
pub(super) const OF_CHEAPEST: u64 = PLANNED + TAIL + 1024;
/// How many bytes after its place any other parser may look at.
pub(super) const OF_PARSER: u64 = 4608;
