//! Streams of bits that are read from their end (RFC 8878, 4.1): the last byte has a bit that marks where they begin.

use xebec_bitstream::BitWriter;

/// Reads such a stream. Bits before its first one read as zero; [`BackBits::is_past_end`] tells of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BackBits<'a> {
    bytes: &'a [u8],
    /// How many bits are left, counted from the beginning of `bytes`. Negative if more were taken than there are.
    left: i64,
}

impl<'a> BackBits<'a> {
    /// A reader of the whole slice, or `None` if its last byte has no mark.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<BackBits<'a>> {
        let last = *bytes.last()?;
        let unused = i64::from(last.leading_zeros()) + 1;
        (last != 0).then(|| BackBits {
            bytes,
            left: 8 * bytes.len() as i64 - unused,
        })
    }

    /// The next bits in the highest places, 57 of them or more.
    #[inline]
    pub(crate) fn peek(&self) -> u64 {
        let end = (self.left + 7) >> 3;
        let beyond = (8 * end - self.left) as u32;
        if end >= 8
            && let Some(eight) = self.bytes.get(end as usize - 8..end as usize)
        {
            return u64::from_le_bytes(eight.try_into().unwrap_or_default()) << beyond;
        }
        if end <= 0 {
            return 0;
        }
        let mut eight = [0; 8];
        let rest = self.bytes.get(..end as usize).unwrap_or_default();
        eight[8 - rest.len()..].copy_from_slice(rest);
        u64::from_le_bytes(eight) << beyond
    }

    /// Passes over bits.
    #[inline]
    pub(crate) fn skip(&mut self, count: u32) {
        self.left -= i64::from(count);
    }

    /// Takes `count` bits, 56 at most.
    #[inline]
    pub(crate) fn take(&mut self, count: u32) -> u64 {
        let value = (self.peek() >> 1) >> (63 - count);
        self.skip(count);
        value
    }

    /// Whether all bits were taken, and none beside them.
    pub(crate) fn is_at_end(&self) -> bool {
        self.left == 0
    }

    /// Whether bits were taken that the slice does not have.
    pub(crate) fn is_past_end(&self) -> bool {
        self.left < 0
    }
}

/// Ends such a stream: the mark, and zeros up to the next byte.
pub(crate) fn close(bits: &mut BitWriter) {
    bits.put(1, 1);
    bits.align();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stream_without_a_mark_is_none() {
        assert!(BackBits::new(&[]).is_none());
        assert!(BackBits::new(&[1, 0]).is_none());
        assert!(BackBits::new(&[1]).is_some_and(|bits| bits.is_at_end()));
    }

    proptest! {
        #[test]
        fn bits_come_back_last_first(values in prop::collection::vec((any::<u64>(), 0..=56_u32), 0..100)) {
            let values: Vec<(u64, u32)> = values.into_iter().map(|(value, count)| (value & ((1 << count) - 1), count)).collect();
            let mut writer = BitWriter::default();
            for &(value, count) in &values {
                writer.put(value, count);
            }
            close(&mut writer);
            let bytes = writer.take();
            let mut bits = BackBits::new(&bytes).unwrap();
            for &(value, count) in values.iter().rev() {
                prop_assert_eq!(bits.take(count), value);
            }
            prop_assert!(bits.is_at_end());
            prop_assert_eq!(bits.take(5), 0);
            prop_assert!(bits.is_past_end());
        }
    }
}
