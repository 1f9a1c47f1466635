//! Bits of pages in memory, least significant first, and how many are set.

use std::ops::Range;

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
        for page in range.start..range.end.min(self.pages) {
            if self.has(page) != value {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
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
