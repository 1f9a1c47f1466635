//! How much memory the start of an image takes for a layer index, about. Code that decodes foreign indexes keeps a budget by it,
//! and refuses an index before it holds all of it.

use super::check::xattr_bytes;
use super::{Entry, EntryKind, Extent, LayerIndex, Piece, Span};
use crate::PAGE_SIZE;

/// Whether so many bytes more may be held.
pub type Room<'a> = dyn FnMut(u64) -> bool + 'a;

/// Memory that the allocator takes for a block besides its bytes.
const BLOCK: usize = 16;
/// Memory for merging an entry and writing it to an EROFS image, besides the entry itself: its node and name, its inode and name
/// once more, and up to 100 bytes of the image, whose buffer doubles. Counted over the structures: 400 to 500 bytes.
pub const MERGED_ENTRY: u64 = 512;
/// Bits that are kept in memory for a page of a layer that is served: present, durable, unverified, wrong, touched.
const BITS: u64 = 5;

/// Memory of an entry and of merging it, in bytes.
pub(super) fn of_entry(entry: &Entry) -> u64 {
    let kind = match &entry.kind {
        EntryKind::File { extents, .. } if extents.is_empty() => 0,
        // Those of the merged tree are larger.
        EntryKind::File { extents, .. } => (extents.len() * 2 + 1) * size_of::<Extent>() + 2 * BLOCK,
        EntryKind::Symlink { target } => 2 * (target.len() + BLOCK),
        EntryKind::Hardlink { target } => target.as_bytes().len() + BLOCK,
        _ => 0,
    };
    let own = size_of::<Entry>() + entry.path.as_bytes().len() + BLOCK + kind;
    own as u64 + 2 * xattr_bytes(&entry.metadata.xattrs) + MERGED_ENTRY
}

/// Memory of so many pieces and spans, in bytes, with the copy that the fill service has.
pub(super) fn of_table(pieces: usize, spans: usize) -> u64 {
    2 * (pieces * size_of::<Piece>() + spans * size_of::<Span>()) as u64
}

/// Memory for serving a data space of so many bytes.
pub(super) fn of_data(data_size: u64) -> u64 {
    // Divided first: the size is what somebody wrote, and is checked later.
    (data_size / PAGE_SIZE * BITS).div_ceil(8)
}

impl LayerIndex {
    /// About how many bytes of memory the start of an image takes for this index. Never less than the index itself takes.
    pub fn weight(&self) -> u64 {
        let entries: u64 = self.entries.iter().map(of_entry).sum();
        entries + of_table(self.pieces.len(), self.spans.len()) + of_data(self.data_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_size_of_data_is_beyond_counting() {
        assert_eq!(of_data(0), 0);
        assert_eq!(of_data(PAGE_SIZE), 1);
        assert_eq!(of_data(8 * PAGE_SIZE), 5);
        assert_eq!(of_data(u64::MAX), (u64::MAX / PAGE_SIZE * 5).div_ceil(8));
    }
}
