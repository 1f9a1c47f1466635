//! Bits of a compressed stream. In deflate (RFC 1951, 3.1.1) and in the heads of zstd (RFC 8878) the lowest bit of a byte comes first.
//! [`range`] codes bits of which one is likelier than the other.
//!
//! Promise: a writer may begin in the middle of a byte, and a reader that passes the end of its input says so, and never panics.
//!
//! May use: nothing.

pub mod range;

/// Gathers bits into bytes.
#[derive(Debug, Clone, Default)]
pub struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet, and up to seven bytes before them.
    pending: u64,
    pending_bits: u32,
    /// Bits of the stream before `bytes`.
    before: u64,
}

impl BitWriter {
    /// The most bits that [`BitWriter::put`] takes at once.
    pub const MOST: u32 = 56;

    /// A writer that goes on at bit `position` of a stream. `partial` holds the bits of the byte there that come before it.
    pub fn resume(position: u64, partial: u8) -> BitWriter {
        let pending_bits = (position % 8) as u32;
        BitWriter {
            bytes: Vec::new(),
            pending: u64::from(partial) & ((1 << pending_bits) - 1),
            pending_bits,
            before: position - u64::from(pending_bits),
        }
    }

    /// Appends the lowest `count` bits of `value`, whose other bits are zero. `count` is [`BitWriter::MOST`] at most.
    #[inline]
    pub fn put(&mut self, value: u64, count: u32) {
        debug_assert!(count <= Self::MOST && value >> count == 0);
        self.pending |= value << self.pending_bits;
        self.pending_bits += count;
        if self.pending_bits >= 8 {
            let whole = (self.pending_bits / 8) as usize;
            self.bytes.extend_from_slice(&self.pending.to_le_bytes()[..whole]);
            self.pending = if whole == 8 {
                0
            } else {
                self.pending >> (8 * whole)
            };
            self.pending_bits %= 8;
        }
    }

    /// Appends zero bits up to the next byte.
    pub fn align(&mut self) {
        if self.pending_bits > 0 {
            self.put(0, 8 - self.pending_bits);
        }
    }

    /// Appends whole bytes. The writer is at the beginning of a byte.
    pub fn put_bytes(&mut self, bytes: &[u8]) {
        debug_assert_eq!(self.pending_bits, 0);
        self.bytes.extend_from_slice(bytes);
    }

    /// How many bits the stream has up to here.
    pub fn position(&self) -> u64 {
        self.before + 8 * self.bytes.len() as u64 + u64::from(self.pending_bits)
    }

    /// The bits after the last whole byte, in the lowest places.
    pub fn partial(&self) -> u8 {
        self.pending as u8
    }

    /// Takes the whole bytes out.
    pub fn take(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.bytes);
        self.before += 8 * bytes.len() as u64;
        bytes
    }

    /// The whole bytes that nobody has taken yet.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads bits of a slice. What lies after its end reads as zero; [`BitReader::is_past_end`] tells of it.
#[derive(Debug, Clone, Copy)]
pub struct BitReader<'a> {
    bytes: &'a [u8],
    /// The next bit, counted from the beginning of `bytes`.
    pub bit: usize,
}

impl<'a> BitReader<'a> {
    /// A reader whose next bit is the one with this number.
    pub fn at(bytes: &'a [u8], bit: usize) -> BitReader<'a> {
        BitReader { bytes, bit }
    }

    /// The next 56 bits or more.
    #[inline]
    pub fn peek(&self) -> u64 {
        let byte = self.bit / 8;
        let word = match self.bytes.get(byte..byte + 8) {
            Some(eight) => u64::from_le_bytes(eight.try_into().unwrap_or_default()),
            None => {
                let mut eight = [0; 8];
                let rest = self.bytes.get(byte..).unwrap_or_default();
                eight[..rest.len()].copy_from_slice(rest);
                u64::from_le_bytes(eight)
            }
        };
        word >> (self.bit % 8)
    }

    /// Passes over bits.
    #[inline]
    pub fn skip(&mut self, count: u32) {
        self.bit += count as usize;
    }

    /// Takes `count` bits, 56 at most.
    #[inline]
    pub fn take(&mut self, count: u32) -> u64 {
        let value = self.peek() & ((1 << count) - 1);
        self.skip(count);
        value
    }

    /// The whole bytes from here on. The reader is at the beginning of a byte.
    pub fn rest(&self) -> &'a [u8] {
        debug_assert_eq!(self.bit % 8, 0);
        self.bytes.get(self.bit / 8..).unwrap_or_default()
    }

    /// Whether bits were taken that the slice does not have.
    pub fn is_past_end(&self) -> bool {
        self.bit > 8 * self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_come_back_as_they_were_put(values in prop::collection::vec((any::<u64>(), 0..=BitWriter::MOST), 0..200)) {
            let values: Vec<(u64, u32)> = values.into_iter().map(|(value, count)| (value & ((1 << count) - 1), count)).collect();
            let mut writer = BitWriter::default();
            for (value, count) in &values {
                writer.put(*value, *count);
            }
            let all: u64 = values.iter().map(|(_, count)| u64::from(*count)).sum();
            prop_assert_eq!(writer.position(), all);
            writer.align();
            let bytes = writer.take();
            let mut reader = BitReader::at(&bytes, 0);
            for (value, count) in &values {
                prop_assert_eq!(reader.take(*count), *value);
            }
            prop_assert!(!reader.is_past_end());
        }

        #[test]
        fn a_writer_goes_on_where_another_ended(first in prop::collection::vec((any::<u64>(), 0..30u32), 0..20),
                                                second in prop::collection::vec((any::<u64>(), 0..30u32), 0..20)) {
            let cut = |all: Vec<(u64, u32)>| -> Vec<(u64, u32)> { all.into_iter().map(|(value, count)| (value & ((1 << count) - 1), count)).collect() };
            let (first, second) = (cut(first), cut(second));
            let mut whole = BitWriter::default();
            let mut before = BitWriter::default();
            for (value, count) in &first {
                whole.put(*value, *count);
                before.put(*value, *count);
            }
            let mut after = BitWriter::resume(before.position(), before.partial());
            for (value, count) in &second {
                whole.put(*value, *count);
                after.put(*value, *count);
            }
            prop_assert_eq!(after.position(), whole.position());
            let mut both = before.take();
            both.extend(after.take());
            prop_assert_eq!(both, whole.take());
        }
    }
}
