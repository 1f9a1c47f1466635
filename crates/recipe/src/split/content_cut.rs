//! Where contents are cut: FastCDC, as its authors describe it in "The Design of Fast Content-Defined Chunking for Data Deduplication Based Storage
//! Systems" (2020), with normalized chunking of level 2 and without the rolling of two bytes at once.
//!
//! It is our own, so that no upgrade moves the cuts: the same contents would be kept twice then.

/// How long chunks are: at least, on average, at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    least: usize,
    average: usize,
    /// Bytes of a chunk, at most.
    pub(super) most: usize,
    /// Bits of the hash that are zero at a cut: before the average length, and after it.
    masks: [u64; 2],
}

impl Lengths {
    /// Those around an average, which is taken as the power of two below, from 4 KiB to 1 MiB.
    pub(super) fn around(average: u32) -> Lengths {
        let bits = average.clamp(4 << 10, 1 << 20).ilog2();
        // The highest bits depend on the most bytes.
        let mask = |bits: u32| u64::MAX << (64 - bits);
        Lengths {
            least: 1 << (bits - 2),
            average: 1 << bits,
            most: 1 << (bits + 2),
            masks: [mask(bits + 2), mask(bits - 2)],
        }
    }

    /// How long the chunk is with which these bytes begin. They are [`Lengths::most`] or more, or end where the contents end.
    pub(super) fn cut(&self, bytes: &[u8]) -> usize {
        let bytes = bytes.get(..self.most).unwrap_or(bytes);
        let mut hash = 0_u64;
        let mut at = self.least;
        for (end, mask) in [self.average, self.most].into_iter().zip(self.masks) {
            let end = end.min(bytes.len());
            for &byte in bytes.get(at..end).unwrap_or_default() {
                at += 1;
                hash = (hash << 1).wrapping_add(GEAR[usize::from(byte)]);
                if hash & mask == 0 {
                    return at;
                }
            }
        }
        bytes.len()
    }
}

/// A number for each byte, at random. Never change them: cuts would move.
static GEAR: [u64; 256] = gear();

const fn gear() -> [u64; 256] {
    let mut table = [0; 256];
    let mut state = u64::from_le_bytes(*b"XBRECIPE");
    let mut at = 0;
    while at < table.len() {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = state;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        table[at] = number ^ (number >> 31);
        at += 1;
    }
    table
}
