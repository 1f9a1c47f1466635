//! Pages whose bytes failed the digest check, kept until they are reported.

use std::path::Path;

use crate::bits::Bits;
use crate::disk::Disk;

/// Name of the file with the mismatches that were not reported yet.
pub(super) const MISMATCHES: &str = "lies";

/// The mismatches that a process found and did not live to tell: numbers of pages, eight bytes each, least significant first.
/// One that is cut off, or beyond the layer, tells nothing.
pub(super) fn read_mismatches(disk: &dyn Disk, directory: &Path, pages: u64) -> Bits {
    let mut mismatches = Bits::zero(pages);
    let bytes = disk.read(&directory.join(MISMATCHES)).unwrap_or_default();
    let (numbers, _) = bytes.as_chunks::<8>();
    let numbers = numbers.iter().map(|number| u64::from_le_bytes(*number));
    for page in numbers.filter(|page| *page < pages) {
        mismatches.put(page, true);
    }
    mismatches
}
