//! How pieces of a blob are read: those that are near by one read, of which what is between them is thrown away.

use std::ops::Range;

/// Pieces with no more bytes between them are read at once: that costs less than to open the blob again.
const READ_OVER: u64 = 128 << 10;

/// What an answer reads and throws away beyond as many bytes as it sends: gaps must not have a short answer read a long blob.
const SPARE: u64 = 1 << 20;

/// How many bytes an answer may still throw away.
#[derive(Clone, Debug)]
pub struct Reads {
    left: u64,
}

/// A range of a blob that is read, and what of it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceRead {
    /// The range.
    pub range: Range<u64>,
    /// Offset and length in the blob of each piece, ascending.
    pieces: Vec<(u64, u64)>,
}

impl Default for Reads {
    fn default() -> Self {
        Self { left: SPARE }
    }
}

impl Reads {
    /// The reads that bring these pieces of a blob of the answer, which ascend.
    pub fn of(&mut self, pieces: &[(u64, u64)]) -> Vec<PieceRead> {
        let wanted = pieces.iter().map(|(_, length)| *length);
        self.left = wanted.fold(self.left, u64::saturating_add);
        let mut reads: Vec<PieceRead> = Vec::new();
        for (offset, length) in pieces.iter().copied() {
            let end = offset.saturating_add(length);
            let most = READ_OVER.min(self.left);
            match reads.last_mut() {
                Some(read) if offset.saturating_sub(read.range.end) <= most => {
                    self.left -= offset.saturating_sub(read.range.end);
                    read.range.end = end;
                    read.pieces.push((offset, length));
                }
                _ => reads.push(PieceRead {
                    range: offset..end,
                    pieces: vec![(offset, length)],
                }),
            }
        }
        reads
    }
}

impl PieceRead {
    /// Which of `count` bytes that stand at `at` in the blob are sent.
    pub fn parts_of(&self, at: u64, count: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let end = at.saturating_add(count as u64);
        let from = self
            .pieces
            .partition_point(|(offset, length)| offset.saturating_add(*length) <= at);
        let here = self.pieces.get(from..).unwrap_or_default().iter();
        let here = here.take_while(move |(offset, _)| *offset < end);
        let place = move |offset: u64| (offset - at) as usize;
        here.map(move |(offset, length)| {
            let (from, to) = ((*offset).max(at), offset.saturating_add(*length).min(end));
            place(from)..place(to)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn near_pieces_are_read_at_once() {
        let far = 20 + READ_OVER;
        let ranges = Reads::default().of(&[(0, 10), (10, 5), (20, 10), (far + 10, 1), (3 * far, 1)]);
        let ranges: Vec<_> = ranges.into_iter().map(|read| read.range).collect();
        assert_eq!(ranges, [0..far + 11, 3 * far..3 * far + 1]);
    }

    #[test]
    fn no_more_is_thrown_away_than_is_wanted_and_a_little() {
        let pieces: Vec<(u64, u64)> = (0..100).map(|place| (place * READ_OVER, 1)).collect();
        let mut answer = Reads::default();
        let mut thrown = 0;
        for _ in 0..2 {
            let reads = answer.of(&pieces);
            let read: u64 = reads.iter().map(|read| read.range.end - read.range.start).sum();
            thrown += read - 100;
            assert_eq!(reads.iter().map(|read| read.pieces.len()).sum::<usize>(), 100);
        }
        assert!(thrown <= SPARE + 200 && thrown > SPARE / 2, "{thrown}");
    }

    proptest! {
        /// However a read is divided on its way.
        #[test]
        fn what_is_read_over_is_not_sent(
            gaps in prop::collection::vec((0_u64..9, 1_u64..9), 1..9),
            sizes in prop::collection::vec(1_usize..12, 1..40),
        ) {
            let mut end = 100;
            let pieces: Vec<(u64, u64)> = gaps
                .into_iter()
                .map(|(gap, length)| {
                    let offset = end + gap;
                    end = offset + length;
                    (offset, length)
                })
                .collect();
            let blob: Vec<u8> = (0..end).map(|at| at as u8).collect();
            let all = Reads::default().of(&pieces);
            prop_assert_eq!(all.len(), 1);
            let (mut at, mut sent) = (all[0].range.start, Vec::<u8>::new());
            for size in sizes.into_iter().cycle() {
                if at >= end {
                    break;
                }
                let size = size.min((end - at) as usize);
                let bytes = &blob[at as usize..at as usize + size];
                sent.extend(all[0].parts_of(at, size).flat_map(|part| &bytes[part]));
                at += size as u64;
            }
            let wanted = pieces.iter().flat_map(|(offset, length)| &blob[*offset as usize..(offset + length) as usize]);
            prop_assert!(sent.iter().copied().eq(wanted.copied()));
        }
    }
}
