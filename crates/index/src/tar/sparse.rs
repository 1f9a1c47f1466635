//! Sparse files: the three ways to write the map of their data, and where that data goes in the data space.
//!
//! Only pages that hold some data get a page of the data space, so segments that share a page of the file share one
//! there. The bytes between them in that page read as zeros.

use xebec_format::PAGE_SIZE;
use xebec_format::layer::Extent;

use super::error::SparseProblem;
use super::header::{Block, field};
use super::number::{decimal, numeric};
use super::pax::{PaxRecords, SPARSE_MAP};

/// A map as written: offset and length of each segment of data.
pub(crate) type RawMap = Vec<(i64, i64)>;

/// A run of stored contents and its place in the data space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) data_offset: u64,
    pub(crate) length: u64,
}

/// Where a file's contents go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) extents: Vec<Extent>,
    pub(crate) runs: Vec<Run>,
    /// End of the last page in the data space.
    pub(crate) data_end: u64,
}

/// Which PAX sparse format a file's records announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaxSparse {
    /// 0.0 and 0.1: the map is in the records.
    InRecords,
    /// 1.0: the map is in front of the contents.
    InContents,
}

/// Tells the format from the records, as Go and GNU tar do; `None` if the file is not sparse.
pub(super) fn pax_format(records: &PaxRecords) -> Option<PaxSparse> {
    let major = records.get(b"GNU.sparse.major");
    let minor = records.get(b"GNU.sparse.minor");
    match (major, minor) {
        (Some(b"0"), Some(b"0" | b"1")) => Some(PaxSparse::InRecords),
        (Some(b"1"), Some(b"0")) => Some(PaxSparse::InContents),
        (None, None) => records.get(SPARSE_MAP).map(|_| PaxSparse::InRecords),
        _ => None,
    }
}

/// The map in the records of formats 0.0 and 0.1.
pub(super) fn map_in_records(records: &PaxRecords, max: u64) -> Result<RawMap, SparseProblem> {
    let count = records.get(b"GNU.sparse.numblocks").and_then(decimal);
    let count = count.and_then(|count| u64::try_from(count).ok());
    let count = count.ok_or(SparseProblem::Malformed)?;
    if count > max {
        return Err(SparseProblem::TooLong);
    }
    let text = records.get(SPARSE_MAP).unwrap_or_default();
    let numbers: Option<Vec<i64>> = match text {
        b"" => Some(Vec::new()),
        text => text.split(|&byte| byte == b',').map(decimal).collect(),
    };
    let numbers = numbers.ok_or(SparseProblem::Malformed)?;
    let map = pairs(&numbers);
    if numbers.len() % 2 != 0 || map.len() as u64 != count {
        return Err(SparseProblem::Malformed);
    }
    Ok(map)
}

/// The map of format 1.0, read block by block from in front of the contents: lines with the number of segments,
/// then offset and length of each.
#[derive(Clone, Debug, Default)]
pub(super) struct MapText {
    text: Vec<u8>,
    lines: u64,
    wanted: Option<u64>,
}

impl MapText {
    /// Takes the next block; the map once it is complete.
    pub(super) fn push(&mut self, block: &Block, max_segments: u64) -> Result<Option<RawMap>, SparseProblem> {
        self.text.extend_from_slice(block);
        self.lines += block.iter().filter(|&&byte| byte == b'\n').count() as u64;
        if self.wanted.is_none() && self.lines > 0 {
            let count = self.numbers().next().flatten();
            let count = count.and_then(|count| u64::try_from(count).ok());
            let count = count.ok_or(SparseProblem::Malformed)?;
            if count > max_segments {
                return Err(SparseProblem::TooLong);
            }
            self.wanted = Some(count);
        }
        let Some(wanted) = self.wanted else {
            return Ok(None);
        };
        // No overflow: the limit on segments is far below.
        if self.lines < 1 + 2 * wanted {
            return Ok(None);
        }
        let numbers = self.numbers().skip(1).take(2 * wanted as usize);
        let numbers: Option<Vec<i64>> = numbers.collect();
        Ok(Some(pairs(&numbers.ok_or(SparseProblem::Malformed)?)))
    }

    /// Bytes taken so far.
    pub(super) fn len(&self) -> u64 {
        self.text.len() as u64
    }

    fn numbers(&self) -> impl Iterator<Item = Option<i64>> {
        self.text.split(|&byte| byte == b'\n').map(decimal)
    }
}

fn pairs(numbers: &[i64]) -> RawMap {
    let (pairs, _) = numbers.as_chunks::<2>();
    pairs.iter().map(|&[offset, length]| (offset, length)).collect()
}

/// Real size of an old GNU sparse file.
pub(super) fn old_real_size(header: &Block) -> Option<i64> {
    numeric(field(header, 483, 12))
}

/// Adds the four segments of an old GNU sparse header; whether an extension block follows.
pub(super) fn old_map_in_header(header: &Block, map: &mut RawMap) -> Result<bool, SparseProblem> {
    old_segments(field(header, 386, 96), map)?;
    Ok(field(header, 482, 1) != [0])
}

/// Adds the 21 segments of an extension block; whether another one follows.
pub(super) fn old_map_in_extension(block: &Block, map: &mut RawMap) -> Result<bool, SparseProblem> {
    old_segments(field(block, 0, 504), map)?;
    Ok(field(block, 504, 1) != [0])
}

fn old_segments(table: &[u8], map: &mut RawMap) -> Result<(), SparseProblem> {
    for segment in table.as_chunks::<24>().0 {
        let (offset, length) = segment.split_at(12);
        if offset.first() == Some(&0) {
            break;
        }
        let offset = numeric(offset).ok_or(SparseProblem::Malformed)?;
        let length = numeric(length).ok_or(SparseProblem::Malformed)?;
        map.push((offset, length));
    }
    Ok(())
}

/// Places a file of `size` bytes, of which the archive stores `stored`, from page boundary `data_start` on.
/// `map` is `None` for files that are not sparse. `None` if an offset overflows.
pub(crate) fn place(
    map: Option<&RawMap>,
    size: u64,
    stored: u64,
    data_start: u64,
) -> Result<Option<Placement>, SparseProblem> {
    let whole = [(0, size)];
    let checked;
    let segments: &[(u64, u64)] = match map {
        Some(map) => {
            checked = check(map, size, stored)?;
            &checked
        }
        None => &whole,
    };
    Ok(lay_out(segments, size, data_start))
}

/// Checks a map against the file's size and what is stored; segments without data are dropped.
fn check(map: &RawMap, size: u64, stored: u64) -> Result<Vec<(u64, u64)>, SparseProblem> {
    let mut segments = Vec::with_capacity(map.len());
    let (mut end, mut mapped) = (0, 0);
    for &(offset, length) in map {
        let (Ok(offset), Ok(length)) = (u64::try_from(offset), u64::try_from(length)) else {
            return Err(SparseProblem::Negative);
        };
        // Both are below 2^63, so the sums cannot overflow; segments within the size add up to at most the size.
        if offset + length > size {
            return Err(SparseProblem::BeyondSize);
        }
        if offset < end {
            return Err(SparseProblem::Order);
        }
        end = offset + length;
        mapped += length;
        if length > 0 {
            segments.push((offset, length));
        }
    }
    if mapped != stored {
        return Err(SparseProblem::Total { mapped, stored });
    }
    Ok(segments)
}

/// Gives every page that a segment touches a page of the data space.
fn lay_out(segments: &[(u64, u64)], size: u64, data_start: u64) -> Option<Placement> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    let mut data_end = data_start;
    for &(offset, length) in segments.iter().filter(|(_, length)| *length > 0) {
        let first_page = offset / PAGE_SIZE * PAGE_SIZE;
        let pages_end = offset.checked_add(length)?.checked_next_multiple_of(PAGE_SIZE)?;
        let continues = |last: &&mut Extent| first_page <= last.file_offset + last.length;
        let extent = match extents.last_mut().filter(continues) {
            Some(last) => {
                data_end = data_end.checked_add(pages_end - (last.file_offset + last.length))?;
                last.length = pages_end - last.file_offset;
                *last
            }
            None => {
                let extent = Extent {
                    file_offset: first_page,
                    data_offset: data_end,
                    length: pages_end - first_page,
                };
                data_end = data_end.checked_add(extent.length)?;
                extents.push(extent);
                extent
            }
        };
        runs.push(Run {
            data_offset: extent.data_offset + (offset - extent.file_offset),
            length,
        });
    }
    // The file's last page is not whole.
    if let Some(last) = extents.last_mut() {
        last.length = last.length.min(size - last.file_offset);
    }
    Some(Placement {
        extents,
        runs,
        data_end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_share_pages() {
        let map = vec![(10, 5), (4090, 10), (20480, 0), (40960, 3), (45056, 0)];
        let placed = place(Some(&map), 45056, 18, 8192).unwrap().unwrap();
        let extent = |file_offset, data_offset, length| Extent {
            file_offset,
            data_offset,
            length,
        };
        assert_eq!(
            placed.extents,
            [extent(0, 8192, 8192), extent(40960, 16384, 4096)]
        );
        let runs: Vec<_> = placed
            .runs
            .iter()
            .map(|run| (run.data_offset, run.length))
            .collect();
        assert_eq!(runs, [(8202, 5), (12282, 10), (16384, 3)]);
        assert_eq!(placed.data_end, 20480);
    }

    #[test]
    fn ordinary_files_have_one_extent_and_empty_ones_none() {
        let placed = place(None, 5000, 5000, 4096).unwrap().unwrap();
        assert_eq!(placed.extents.len(), 1);
        assert_eq!((placed.extents[0].length, placed.data_end), (5000, 12288));
        assert!(place(None, 0, 0, 4096).unwrap().unwrap().extents.is_empty());
        assert_eq!(place(None, u64::MAX, u64::MAX, 4096).unwrap(), None);
    }

    #[test]
    fn lying_maps_are_rejected_by_name() {
        let problem =
            |map: &[(i64, i64)], size, stored| place(Some(&map.to_vec()), size, stored, 0).unwrap_err();
        assert_eq!(problem(&[(-1, 2)], 9, 2), SparseProblem::Negative);
        assert_eq!(problem(&[(0, 5), (4, 1)], 9, 6), SparseProblem::Order);
        assert_eq!(problem(&[(8, 2)], 9, 2), SparseProblem::BeyondSize);
        assert_eq!(problem(&[(i64::MAX, i64::MAX)], 9, 2), SparseProblem::BeyondSize);
        assert!(matches!(
            problem(&[(0, 2)], 9, 3),
            SparseProblem::Total { mapped: 2, stored: 3 }
        ));
    }
}
