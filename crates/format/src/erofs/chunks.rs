//! Maps a file's extents to chunks: ranges of one size, a power of two of blocks, each a run of blocks on one
//! device or a hole.
//!
//! An ordinary file is one chunk. A file in several runs gets the largest chunk size at which no chunk spans two
//! runs; runs that continue each other on one device count as one.

use super::disk::{BLOCK, BLOCK_BITS, CHUNK_INDEX_SIZE, NULL_ADDRESS, chunk_index};
use super::{Device, ErofsError, MAX_CHUNKS};
use crate::image::{FileExtent, InodeId};
use crate::layer::limits::MAX_FILE;
use crate::round_up_to_page;

/// Largest chunk: the format has five bits for the logarithm of its blocks.
const MAX_BITS: u32 = BLOCK_BITS + 31;

/// The chunks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    /// Logarithm of a chunk's size in bytes.
    pub(super) bits: u32,
    /// How many there are.
    pub(super) count: u64,
}

/// Chooses the chunk size of a file of `size` > 0 bytes, and checks its extents.
pub(super) fn plan(
    inode: InodeId,
    size: u64,
    extents: &[FileExtent],
    devices: &[Device],
) -> Result<Chunks, ErofsError> {
    check(size, extents, devices).ok_or(ErofsError::Extent(inode))?;
    let end = round_up_to_page(size).ok_or(ErofsError::Extent(inode))?;
    // Every offset at which one run ends and another or a hole starts: chunks must end there too.
    let mut boundaries = 0;
    let mut last: Option<&FileExtent> = None;
    for extent in extents {
        if !last.is_some_and(|last| continues(last, extent)) {
            boundaries |= extent.file_offset;
            boundaries |= last.map_or(0, end_of);
        }
        last = Some(extent);
    }
    boundaries |= last.map_or(0, end_of).checked_rem(end).unwrap_or(0);
    let whole = size.next_power_of_two().trailing_zeros();
    let bits = whole.min(boundaries.trailing_zeros()).clamp(BLOCK_BITS, MAX_BITS);
    let count = size.div_ceil(1 << bits);
    if count > MAX_CHUNKS {
        return Err(ErofsError::TooSparse {
            inode,
            size,
            chunks: count,
        });
    }
    Ok(Chunks { bits, count })
}

fn check(size: u64, extents: &[FileExtent], devices: &[Device]) -> Option<()> {
    if size > MAX_FILE {
        return None;
    }
    let mut file_end = 0;
    for extent in extents {
        let device = devices.get(usize::from(extent.device))?;
        let aligned = extent.file_offset % BLOCK == 0 && extent.data_offset % BLOCK == 0;
        let end = extent.file_offset.checked_add(extent.length)?;
        let data_end = extent.data_offset.checked_add(extent.length)?;
        let whole = extent.length % BLOCK == 0 || end == size;
        let inside = end <= size && data_end <= device.data_size;
        if !aligned || !whole || !inside || extent.length == 0 || extent.file_offset < file_end {
            return None;
        }
        file_end = end;
    }
    Some(())
}

/// Where a run ends in the file, as blocks see it.
fn end_of(extent: &FileExtent) -> u64 {
    (extent.file_offset + extent.length).next_multiple_of(BLOCK)
}

fn continues(last: &FileExtent, next: &FileExtent) -> bool {
    last.device == next.device
        && last.file_offset + last.length == next.file_offset
        && last.data_offset + last.length == next.data_offset
}

/// Writes the chunk indexes of a file to `out`, which has room for exactly those that [`plan`] counted.
pub(super) fn write(chunks: Chunks, extents: &[FileExtent], out: &mut [u8]) {
    let mut rest = extents;
    for (number, slot) in out.chunks_exact_mut(CHUNK_INDEX_SIZE as usize).enumerate() {
        let start = (number as u64) << chunks.bits;
        while let [first, others @ ..] = rest
            && end_of(first) <= start
        {
            rest = others;
        }
        let index = match rest.first() {
            Some(extent) if extent.file_offset <= start => {
                let block = (extent.data_offset + (start - extent.file_offset)) / BLOCK;
                chunk_index(extent.device + 1, block as u32)
            }
            _ => chunk_index(0, NULL_ADDRESS),
        };
        slot.copy_from_slice(&index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Device = Device {
        tag: [0; 64],
        data_size: 1 << 40,
    };

    fn extent(file_offset: u64, device: u16, data_offset: u64, length: u64) -> FileExtent {
        FileExtent {
            file_offset,
            device,
            data_offset,
            length,
        }
    }

    fn indexes(size: u64, extents: &[FileExtent]) -> (u32, Vec<(u16, u32)>) {
        let chunks = plan(InodeId(0), size, extents, &[DEVICE, DEVICE]).unwrap();
        let mut out = vec![0; (chunks.count * CHUNK_INDEX_SIZE) as usize];
        write(chunks, extents, &mut out);
        let index = |c: &[u8]| {
            (
                u16::from_le_bytes([c[2], c[3]]),
                u32::from_le_bytes([c[4], c[5], c[6], c[7]]),
            )
        };
        (chunks.bits, out.chunks(8).map(index).collect())
    }

    #[test]
    fn an_ordinary_file_is_one_chunk() {
        assert_eq!(indexes(1, &[extent(0, 0, 0, 1)]), (12, vec![(1, 0)]));
        assert_eq!(indexes(5000, &[extent(0, 1, 8192, 5000)]), (13, vec![(2, 2)]));
        assert_eq!(
            indexes(7 << 30, &[extent(0, 0, 4096, 7 << 30)]),
            (33, vec![(1, 1)])
        );
    }

    #[test]
    fn runs_that_continue_each_other_are_one() {
        let two = [extent(0, 0, 4096, 4096), extent(4096, 0, 8192, 100)];
        assert_eq!(indexes(4196, &two), (13, vec![(1, 1)]));
    }

    #[test]
    fn holes_have_no_address() {
        const HOLE: (u16, u32) = (0, NULL_ADDRESS);
        assert_eq!(indexes(1 << 40, &[]), (40, vec![HOLE]));
        let middle = [extent(8192, 0, 0, 8192)];
        assert_eq!(indexes(20000, &middle), (13, vec![HOLE, (1, 0), HOLE]));
        let end = [extent(4096, 0, 0, 10)];
        assert_eq!(indexes(4106, &end), (12, vec![HOLE, (1, 0)]));
        let start = [extent(0, 0, 0, 4096)];
        assert_eq!(indexes(4097, &start), (12, vec![(1, 0), HOLE]));
    }

    #[test]
    fn devices_may_change_at_any_page() {
        let mixed = [
            extent(0, 0, 0, 4096),
            extent(4096, 1, 4096, 4096),
            extent(8192, 0, 8192, 8192),
        ];
        assert_eq!(indexes(16384, &mixed), (12, vec![(1, 0), (2, 1), (1, 2), (1, 3)]));
    }

    #[test]
    fn what_is_out_of_bounds_or_too_sparse_is_refused() {
        let refused = |size, extents: &[FileExtent]| plan(InodeId(3), size, extents, &[DEVICE]).unwrap_err();
        let wrong = ErofsError::Extent(InodeId(3));
        assert_eq!(refused(4096, &[extent(0, 1, 0, 4096)]), wrong);
        assert_eq!(refused(4096, &[extent(0, 0, 512, 4096)]), wrong);
        assert_eq!(refused(8192, &[extent(0, 0, 0, 100)]), wrong);
        assert_eq!(refused(4096, &[extent(0, 0, 1 << 40, 4096)]), wrong);
        assert_eq!(refused(4096, &[extent(0, 0, u64::MAX - 4095, 4096)]), wrong);
        let twice = [extent(0, 0, 0, 4096), extent(0, 0, 0, 4096)];
        assert_eq!(refused(4096, &twice), wrong);
        assert!(matches!(
            refused(1 << 37, &[extent(4096, 0, 0, 4096)]),
            ErofsError::TooSparse {
                chunks: 0x200_0000,
                ..
            }
        ));
    }
}
