//! Bits of pages in memory, least significant first, and how many are set.

use std::ops::Range;

/// Bits of which it is cheaper to write those between them as well than to write twice: two KiB.
const NEAR: u64 = 8 * 2048;

/// One bit for each page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bits {
    bytes: Vec<u8>,
    pages: u64,
    set: u64,
}

impl Bits {
    /// As many zero bits as there are pages.
    pub(crate) fn zero(pages: u64) -> Self {
        Self {
            bytes: vec![0; usize::try_from(pages.div_ceil(8)).unwrap_or(0)],
            pages,
            set: 0,
        }
    }

    /// Bits as a file has them; bits beyond the last page, which would make the count lie, are cleared.
    pub(crate) fn from_bytes(mut bytes: Vec<u8>, pages: u64) -> Self {
        if let (Some(last), rest @ 1..) = (bytes.last_mut(), pages % 8) {
            *last &= (1 << rest) - 1;
        }
        let set = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
        Self { bytes, pages, set }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of bits that are set.
    pub(crate) fn count(&self) -> u64 {
        self.set
    }

    pub(crate) fn has(&self, page: u64) -> bool {
        self.bytes
            .get((page / 8) as usize)
            .is_some_and(|byte| byte & (1 << (page % 8)) != 0)
    }

    /// Sets or clears one bit; one that is beyond the end is left out.
    pub(crate) fn put(&mut self, page: u64, value: bool) {
        if page >= self.pages {
            return;
        }
        if let Some(byte) = self.bytes.get_mut((page / 8) as usize) {
            let bit = 1 << (page % 8);
            match (*byte & bit != 0, value) {
                (false, true) => self.set += 1,
                (true, false) => self.set -= 1,
                _ => return,
            }
            *byte ^= bit;
        }
    }

    /// The runs inside `range` whose bits are `value`, ascending. Pages beyond the end are left out.
    pub(crate) fn runs(&self, range: Range<u64>, value: bool) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let end = range.end.min(self.pages);
        let mut page = range.start;
        while page < end {
            // Most bytes are all one thing or the other.
            let whole = page.is_multiple_of(8) && page + 8 <= end;
            let byte = self.bytes.get((page / 8) as usize).copied().unwrap_or_default();
            let (next, holds) = match byte {
                0 if whole => (page + 8, !value),
                0xff if whole => (page + 8, value),
                _ => (page + 1, self.has(page) == value),
            };
            match runs.last_mut() {
                Some(run) if holds && run.end == page => run.end = next,
                _ if holds => runs.push(page..next),
                _ => {}
            }
            page = next;
        }
        runs
    }

    /// The bytes that hold the bits of `range`, and where they start.
    pub(crate) fn bytes_of(&self, range: &Range<u64>) -> (u64, &[u8]) {
        let end = range.end.min(self.pages);
        if range.start >= end {
            return (0, &[]);
        }
        let (first, last) = (range.start / 8, (end - 1) / 8);
        let bytes = self.bytes.get(first as usize..=last as usize);
        (first, bytes.unwrap_or_default())
    }

    /// The ranges of pages, ascending, whose bytes are to be written when the bits of `runs` (ascending) have changed. Runs near to
    /// each other become one range.
    pub(crate) fn stretches(runs: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut stretches: Vec<Range<u64>> = Vec::new();
        for run in runs {
            match stretches.last_mut() {
                Some(last) if run.start <= last.end + NEAR => last.end = last.end.max(run.end),
                _ => stretches.push(run.clone()),
            }
        }
        stretches
    }

    /// Sets every bit that `other` has.
    pub(crate) fn add(&mut self, other: &Bits) {
        for (byte, more) in self.bytes.iter_mut().zip(&other.bytes) {
            *byte |= more;
        }
        self.recount();
    }

    /// Clears every bit that `other` has.
    pub(crate) fn remove(&mut self, other: &Bits) {
        for (byte, less) in self.bytes.iter_mut().zip(&other.bytes) {
            *byte &= !less;
        }
        self.recount();
    }

    fn recount(&mut self) {
        self.set = self.bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_to_write_are_those_with_bits_of_the_range() {
        let bits = Bits::from_bytes(vec![1, 2, 3, 4], 32);
        for (range, start, bytes) in [
            (0..32, 0, &[1, 2, 3, 4][..]),
            (0..8, 0, &[1]),
            (8..9, 1, &[2]),
            (15..17, 1, &[2, 3]),
            (24..99, 3, &[4]),
            (9..9, 0, &[]),
            (32..40, 0, &[]),
        ] {
            assert_eq!(bits.bytes_of(&range), (start, bytes), "{range:?}");
        }
    }

    #[test]
    fn what_is_near_is_written_together() {
        assert_eq!(NEAR / 8, 2 << 10, "bytes");
        let runs = [0..2, 5..6, 5 + NEAR..7 + NEAR, 8 + 2 * NEAR..9 + 2 * NEAR];
        let stretches = [0..7 + NEAR, 8 + 2 * NEAR..9 + 2 * NEAR];
        assert_eq!(Bits::stretches(&runs), stretches);
        assert_eq!(Bits::stretches(&[]), []);
    }

    #[test]
    fn runs_are_those_of_single_bits() {
        let mut random = 7u64;
        for pages in [1, 8, 9, 64, 203] {
            for _ in 0..50 {
                let mut bits = Bits::zero(pages);
                let mut page = 0;
                while page < pages {
                    // Long runs and short ones, so that whole bytes occur as well as parts.
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let length = 1 + (random >> 60) * u64::from(random >> 59 & 1 == 1);
                    let next = (page + length).min(pages);
                    (page..next).for_each(|page| bits.put(page, random >> 33 & 1 == 1));
                    page = next;
                }
                let (from, to) = (random % (pages + 1), pages + 3);
                for value in [false, true] {
                    let runs = bits.runs(from..to, value);
                    let one_by_one = (from..pages).filter(|page| bits.has(*page) == value);
                    assert!(
                        runs.iter().cloned().flatten().eq(one_by_one),
                        "{bits:?} {from} {runs:?}"
                    );
                    assert!(
                        runs.windows(2).all(|two| two[0].end < two[1].start),
                        "they are apart: {runs:?}"
                    );
                }
            }
        }
    }
}
