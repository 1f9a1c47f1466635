//! Bits, each in a context that learns how often the bit is set, coded by the range coder of `bitstream`.
//!
//! [`Coder`] is both its writing and its reading side: code that says what it expects is written once, and runs the same on both sides.

pub(crate) use xebec_bitstream::range::{Decoder as Reader, Encoder as Writer};

/// How likely a bit is set: the mean of a guess that learns fast and one that learns slowly, each in parts of 65,536.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bit {
    fast: u16,
    slow: u16,
}

impl Default for Bit {
    fn default() -> Bit {
        Bit::new(1 << 15)
    }
}

impl Bit {
    const FAST: u32 = 4;
    const SLOW: u32 = 7;

    /// A context that begins with this chance.
    pub(crate) const fn new(chance: u16) -> Bit {
        Bit {
            fast: chance,
            slow: chance,
        }
    }

    /// The chance in parts of 65,536, never none and never all.
    #[inline]
    fn chance(self) -> u32 {
        ((u32::from(self.fast) + u32::from(self.slow)) >> 1).clamp(24, 65_536 - 24)
    }

    #[inline]
    fn learn(&mut self, bit: bool) {
        if bit {
            self.fast += (u16::MAX - self.fast) >> Bit::FAST;
            self.slow += (u16::MAX - self.slow) >> Bit::SLOW;
        } else {
            self.fast -= self.fast >> Bit::FAST;
            self.slow -= self.slow >> Bit::SLOW;
        }
    }
}

/// One side of the coder. The writing side writes what it is given and returns it; the reading side returns what was written, whatever it is given.
pub(crate) trait Coder {
    /// One bit in a context.
    fn bit(&mut self, context: &mut Bit, bit: bool) -> bool;

    /// The lowest `count` bits, 32 at most, as likely set as not.
    fn direct(&mut self, value: u32, count: u32) -> u32;
}

impl<C: xebec_bitstream::range::Coder> Coder for C {
    #[inline]
    fn bit(&mut self, context: &mut Bit, bit: bool) -> bool {
        let bit = self.code(bit, context.chance());
        context.learn(bit);
        bit
    }

    fn direct(&mut self, value: u32, count: u32) -> u32 {
        self.code_even(value, count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> impl Strategy<Value = Vec<(u8, bool, u32)>> {
        prop::collection::vec((0..4_u8, prop::bool::weighted(0.1), any::<u32>()), 0..2000)
    }

    fn run<C: Coder>(coder: &mut C, message: &[(u8, bool, u32)]) -> Vec<(bool, u32)> {
        let mut contexts = [Bit::default(); 3];
        let said = message.iter().map(|&(kind, bit, value)| match kind {
            3 => (false, coder.direct(value >> (value % 32), 32 - value % 32)),
            _ => (coder.bit(&mut contexts[usize::from(kind)], bit != (kind == 1)), 0),
        });
        said.collect()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(message in message()) {
            let mut writer = Writer::default();
            let written = run(&mut writer, &message);
            let bytes = writer.finish();
            // The reading side is told nothing but the kinds and widths.
            let blind: Vec<(u8, bool, u32)> = message.iter().map(|&(kind, _, value)| (kind, false, if kind == 3 { value } else { 0 })).collect();
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(run(&mut reader, &blind), written);
            prop_assert!(!reader.is_past_end());
        }

        #[test]
        fn the_end_is_noticed(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let mut reader = Reader::new(&bytes);
            for _ in 0..40 {
                reader.direct(0, 8);
            }
            prop_assert!(reader.is_past_end());
        }
    }

    #[test]
    fn what_is_always_so_costs_little() {
        let mut writer = Writer::default();
        let mut context = Bit::default();
        for _ in 0..100_000 {
            writer.bit(&mut context, true);
        }
        let length = writer.finish().len();
        assert!(length < 40, "{length}");
    }
}
