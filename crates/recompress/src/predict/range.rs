//! A binary range coder: each bit costs what its probability says, in whole bytes only at the end.
//!
//! Writing and reading go through the same trait, [`Coder`], so a model of what is coded is written down once and both directions follow it: a coder
//! that writes takes the bit that it is given, one that reads ignores it, and both answer with the bit that the stream has.
//!
//! The interval arithmetic is the one of LZMA (a carry runs back through bytes that are held). Two things differ: the byte that such a stream begins
//! with, which is always zero, is left out, and so are zero bytes at the end. The reader takes zeros for all that follows the end.

/// Probabilities are fractions of this.
pub(super) const ONE: u32 = 1 << 16;
/// The interval is widened below this.
const NARROW: u32 = 1 << 24;

/// Codes bits.
pub(super) trait Coder {
    /// Whether `code` gives back what it is told.
    const WRITES: bool;

    /// Codes one bit whose probability of being set is `probability` / [`ONE`], which is neither 0 nor 1. Returns the bit that the stream has.
    fn code(&mut self, bit: bool, probability: u32) -> bool;

    /// Codes the lowest `count` bits of a number, 16 at most, each as likely as not.
    fn code_even(&mut self, value: u32, count: u32) -> u32 {
        (0..count).rev().fold(0, |read, place| {
            read << 1 | u32::from(self.code(value >> place & 1 == 1, ONE / 2))
        })
    }
}

/// Writes.
#[derive(Debug, Clone)]
pub(super) struct Encoder {
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

    /// The bytes. Of all numbers in the interval the one with most zeros at its end is taken, and these zeros are left out.
    pub(super) fn finish(mut self) -> Vec<u8> {
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
        self.bytes.truncate(used);
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

/// Reads. The bytes may be anything: each gives some bits.
#[derive(Debug, Clone)]
pub(super) struct Decoder {
    bytes: Vec<u8>,
    next: usize,
    range: u32,
    code: u32,
}

impl Decoder {
    pub(super) fn new(bytes: Vec<u8>) -> Decoder {
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

    #[inline]
    fn byte(&mut self) -> u32 {
        let byte = self.bytes.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        u32::from(byte)
    }
}

impl Coder for Decoder {
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

/// Writes nothing, and counts what it would cost.
#[derive(Debug, Clone, Default)]
pub(super) struct Price {
    /// Millionths of a bit, roughly.
    total: u64,
}

impl Price {
    /// The cost so far, in bits.
    pub(super) fn bits(&self) -> u64 {
        self.total / u64::from(ONE)
    }

    /// -log2 of a probability, in fractions of [`ONE`]: the whole part exactly, the rest by a parabola that is off by 0.01 at most.
    fn cost(probability: u32) -> u64 {
        let whole = probability.ilog2();
        let fraction = (u64::from(probability) << 16 >> whole) - u64::from(ONE);
        let bend = fraction * (u64::from(ONE) - fraction) / u64::from(ONE) * 22_500 / u64::from(ONE);
        u64::from(16 - whole) * u64::from(ONE) - fraction - bend
    }
}

impl Coder for Price {
    const WRITES: bool = true;

    #[inline]
    fn code(&mut self, bit: bool, probability: u32) -> bool {
        self.total += Price::cost(if bit { probability } else { ONE - probability });
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
        fn likely_bits_come_back_and_cost_what_the_price_says(wrong in prop::collection::vec(0..20_000_usize, 0..20)) {
            let bits: Vec<(bool, u32)> = (0..20_000).map(|place| (!wrong.contains(&place), ONE - 30)).collect();
            let bytes = coded(&bits);
            let mut decoder = Decoder::new(bytes.clone());
            let mut price = Price::default();
            for &(bit, probability) in &bits {
                price.code(bit, probability);
                prop_assert_eq!(decoder.code(!bit, probability), bit);
            }
            prop_assert!(8 * bytes.len() as u64 <= price.bits() + 48, "{} bytes, {} bits", bytes.len(), price.bits());
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

    #[test]
    fn the_price_of_a_bit_is_its_logarithm() {
        for probability in [1, 2, 3, 100, 1000, 20_000, 32_768, 50_000, 65_535] {
            let exact = -(f64::from(probability) / 65_536.0).log2();
            let price = Price::cost(probability) as f64 / 65_536.0;
            assert!((exact - price).abs() < 0.02, "{probability}: {exact} {price}");
        }
    }
}
