//! Limits of a copy.

/// How deep a tree may be. A path of the kernel's longest size has twice as many levels, and no tree that
/// people make comes near.
pub(super) const LEVELS: usize = 1000;

/// How many files with several names are remembered, so that their other names become links to them. The rest
/// is copied once for each name.
pub(super) const LINKED_FILES: usize = 1 << 20;
