//! The tables of the store, and the limits of what is in them.

use redb::TableDefinition;

pub(super) const SNAPSHOTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("snapshots");
pub(super) const CHILDREN: TableDefinition<'_, (u64, u64), &str> = TableDefinition::new("children");
pub(super) const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

/// The version that is written here. A store of another version is refused.
pub(super) const VERSION: u64 = 1;
/// Longest chain that is followed. Images have at most some hundreds of layers, overlayfs at most 500.
pub(super) const LONGEST_CHAIN: usize = 4096;
