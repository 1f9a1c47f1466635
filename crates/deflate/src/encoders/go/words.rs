//! Helpers of both matchers: reading several bytes at once, comparing, hashing, and tables.

/// Four bytes from `at` on, the first one lowest.
#[inline]
pub(super) fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default())
}

/// Eight bytes from `at` on, the first one lowest.
#[inline]
pub(super) fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
}

/// How many bytes from `one` and from `other` on are the same, `most` at most. Both places have `most` bytes.
#[inline]
pub(super) fn common(bytes: &[u8], one: usize, other: usize, most: usize) -> usize {
    let (one, other) = (&bytes[one..one + most], &bytes[other..other + most]);
    let mut same = 0;
    while same + 8 <= most {
        let difference = eight(one, same) ^ eight(other, same);
        if difference != 0 {
            return same + (difference.trailing_zeros() / 8) as usize;
        }
        same += 8;
    }
    while same < most && one[same] == other[same] {
        same += 1;
    }
    same
}

/// Spreads four bytes over a word; the hash is in the highest bits.
#[inline]
pub(super) fn spread(four: u32) -> u32 {
    four.wrapping_mul(0x1e35_a7bd)
}

/// A table of zeros, made on the heap.
pub(super) fn zeroed<T: Copy + Default, const N: usize>() -> Box<[T; N]> {
    Box::try_from(vec![T::default(); N]).unwrap_or_else(|_| Box::new([T::default(); N]))
}
