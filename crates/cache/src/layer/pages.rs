//! Pages of ranges of bytes.

use std::ops::Range;

use xebec_format::PAGE_SIZE;

/// The pages that a range of bytes touches.
pub(super) fn pages_of(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE)
}
