//! A binary range coder: each bit costs what its probability says, in whole bytes only at the end.
//!
//! Writing and reading go through the same trait, [`Coder`], so a model of what is coded is written down once and both directions follow it: a coder
//! that writes takes the bit that it is given, one that reads ignores it, and both answer with the bit that the stream has.
//!
//! The interval arithmetic is the one of LZMA (a carry runs back through bytes that are held). Two things differ: the byte that such a stream begins
//! with, which is always zero, is left out, and so are zero bytes at the end, eight at most. The reader takes zeros for all that follows the end.

/// Probabilities are fractions of this.
pub const ONE: u32 = 1 << 16;
/// The interval is widened below this.
const NARROW: u32 = 1 << 24;
/// A writer leaves out so many zero bytes at most at the end: a reader that needs more reads what was not written.
const LEFT_OUT: usize = 8;

/// One side of the coder.
pub trait Coder {
    /// Whether `code` gives back what it is told.
    const WRITES: bool;

    /// Codes one bit whose probability of being set is `probability` / [`ONE`], which is neither 0 nor 1. Returns the bit that the stream has.
    fn code(&mut self, bit: bool, probability: u32) -> bool;

    /// Codes the lowest `count` bits of a number, 32 at most, each as likely as not. Returns those that the stream has.
    fn code_even(&mut self, value: u32, count: u32) -> u32 {
        (0..count).rev().fold(0, |read, place| {
            read << 1 | u32::from(self.code(value >> place & 1 == 1, ONE / 2))
        })
    }
}

/// The side that writes.
#[derive(Debug, Clone)]
pub struct Encoder {
    bytes: Vec<u8>,
    low: u64,
    range: u32,
    /// The last byte, which a carry may still change, and how many bytes of 255 follow it. `None` before the first.
    held: Option<u8>,
    full: u64,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder {
            bytes: Vec::new(),
            low: 0,
            range: u32::MAX,
            held: None,
            full: 0,
        }
    }
}

impl Encoder {
    fn shift(&mut self) {
        let carry = self.low > u64::from(u32::MAX);
        let top = (self.low >> 24) as u8;
        if carry || top != u8::MAX {
            let carry = u8::from(carry);
            if let Some(held) = self.held {
                self.bytes.push(held.wrapping_add(carry));
            }
            let full = u8::MAX.wrapping_add(carry);
            self.bytes.extend(std::iter::repeat_n(full, self.full as usize));
            (self.held, self.full) = (Some(top), 0);
        } else if self.held.is_none() {
            // No carry can come before the first byte: the interval begins at zero.
            self.held = Some(top);
        } else {
            self.full += 1;
        }
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    /// The bytes. Of all numbers in the interval the one with most zeros at its end is taken, and of these zeros eight bytes at most are left out.
    pub fn finish(mut self) -> Vec<u8> {
        let end = self.low + u64::from(self.range) - 1;
        for zeros in (0..=32).rev() {
            let rounded = (self.low + ((1_u64 << zeros) - 1)) >> zeros << zeros;
            if rounded <= end {
                self.low = rounded;
                break;
            }
        }
        for _ in 0..5 {
            self.shift();
        }
        let used = self
            .bytes
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        let least = self.bytes.len().saturating_sub(LEFT_OUT);
        self.bytes.truncate(used.max(least));
        self.bytes
    }
}

impl Coder for Encoder {
    const WRITES: bool = true;

    #[inline]
    fn code(&mut self, bit: bool, probability: u32) -> bool {
        debug_assert!(probability > 0 && probability < ONE);
        let bound = (self.range >> 16) * probability;
        if bit {
            self.range = bound;
        } else {
            self.low += u64::from(bound);
            self.range -= bound;
        }
        while self.range < NARROW {
            self.range <<= 8;
            self.shift();
        }
        bit
    }
}

/// The side that reads. The bytes may be anything: each gives some bits.
#[derive(Debug, Clone)]
pub struct Decoder<B> {
    bytes: B,
    next: usize,
    range: u32,
    code: u32,
}

impl<B: AsRef<[u8]>> Decoder<B> {
    /// A reader of what a writer has finished.
    pub fn new(bytes: B) -> Decoder<B> {
        let mut decoder = Decoder {
            bytes,
            next: 0,
            range: u32::MAX,
            code: 0,
        };
        for _ in 0..4 {
            decoder.code = decoder.code << 8 | decoder.byte();
        }
        decoder
    }

    /// Whether more was read than a writer leaves out: what was read since then is not what was written.
    pub fn is_past_end(&self) -> bool {
        self.next > self.bytes.as_ref().len() + LEFT_OUT
    }

    #[inline]
    fn byte(&mut self) -> u32 {
        let byte = self.bytes.as_ref().get(self.next).copied().unwrap_or_default();
        self.next += 1;
        u32::from(byte)
    }
}

impl<B: AsRef<[u8]>> Coder for Decoder<B> {
    const WRITES: bool = false;

    #[inline]
    fn code(&mut self, _: bool, probability: u32) -> bool {
        debug_assert!(probability > 0 && probability < ONE);
        let bound = (self.range >> 16) * probability;
        let bit = self.code < bound;
        if bit {
            self.range = bound;
        } else {
            self.code = self.code.wrapping_sub(bound);
            self.range -= bound;
        }
        while self.range < NARROW {
            self.range <<= 8;
            self.code = self.code << 8 | self.byte();
        }
        bit
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn coded(bits: &[(bool, u32)]) -> Vec<u8> {
        let mut encoder = Encoder::default();
        for &(bit, probability) in bits {
            encoder.code(bit, probability);
        }
        encoder.finish()
    }

    proptest! {
        #[test]
        fn bits_come_back(bits in prop::collection::vec((any::<bool>(), prop_oneof![1..ONE, Just(1), Just(ONE - 1)]), 0..2000)) {
            let mut decoder = Decoder::new(coded(&bits));
            for &(bit, probability) in &bits {
                prop_assert_eq!(decoder.code(!bit, probability), bit);
            }
        }

        #[test]
        fn numbers_come_back_and_the_end_is_noticed(numbers in prop::collection::vec((any::<u32>(), 0..=32_u32), 0..500)) {
            let numbers: Vec<(u32, u32)> = numbers.into_iter().map(|(number, count)| (number & (u64::from(u32::MAX) >> (32 - count)) as u32, count)).collect();
            let mut encoder = Encoder::default();
            for &(number, count) in &numbers {
                encoder.code_even(number, count);
            }
            let bytes = encoder.finish();
            let mut decoder = Decoder::new(&bytes);
            for &(number, count) in &numbers {
                prop_assert_eq!(decoder.code_even(0, count), number);
            }
            prop_assert!(!decoder.is_past_end());
            for _ in 0..20 {
                decoder.code_even(0, 8);
            }
            prop_assert_eq!(decoder.is_past_end(), true);
        }
    }

    /// Their bytes are all zero.
    #[test]
    fn a_long_tail_of_set_bits_is_not_past_the_end() {
        for count in [1, 3, 40, 1000] {
            let mut encoder = Encoder::default();
            for _ in 0..count {
                encoder.code_even(u32::MAX, 32);
            }
            let bytes = encoder.finish();
            let mut decoder = Decoder::new(&bytes);
            for _ in 0..count {
                assert_eq!(decoder.code_even(0, 32), u32::MAX);
            }
            assert!(!decoder.is_past_end(), "{count}");
            decoder.code_even(0, 32);
            decoder.code_even(0, 32);
            assert!(decoder.is_past_end(), "{count}");
        }
    }

    #[test]
    fn a_carry_runs_back() {
        let bits: Vec<(bool, u32)> = (0..4000)
            .map(|place| (place % 97 == 96, ONE - 1 - place % 3))
            .collect();
        let mut decoder = Decoder::new(coded(&bits));
        for &(bit, probability) in &bits {
            assert_eq!(decoder.code(!bit, probability), bit);
        }
    }

    #[test]
    fn what_was_sure_is_free() {
        assert!(coded(&vec![(true, ONE - 1); 5_000]).len() <= 2);
    }
}
