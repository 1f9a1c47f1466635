//! A range coder of bits, each in a context that learns how often the bit is set.
//!
//! [`Coder`] is both its writing and its reading side: code that says what it expects is written once, and runs the same on both sides.

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

/// The range is never smaller than this between two bits.
const SMALLEST: u32 = 1 << 24;

/// The writing side.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    low: u64,
    range: u32,
    /// A byte that a carry may still change, and how many of 255 follow it.
    held: u8,
    held_full: u64,
    is_first: bool,
    bytes: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Writer {
        Writer {
            low: 0,
            range: u32::MAX,
            held: 0,
            held_full: 0,
            is_first: true,
            bytes: Vec::new(),
        }
    }
}

impl Writer {
    /// The bytes. The last ones are left out where the reader takes zeros for them.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        // The highest number in the range with the most zeros at its end.
        let last = self.low + u64::from(self.range) - 1;
        let mut keep = 0;
        while (last & !(u64::MAX >> (32 + keep))) < self.low {
            keep += 8;
        }
        self.low = last & !(u64::MAX >> (32 + keep));
        for _ in 0..5 {
            self.shift();
        }
        while self.bytes.last() == Some(&0) {
            self.bytes.pop();
        }
        self.bytes
    }

    fn shift(&mut self) {
        if self.low < 0xff00_0000 || self.low > u64::from(u32::MAX) {
            let carry = (self.low >> 32) as u8;
            if !self.is_first {
                self.bytes.push(self.held.wrapping_add(carry));
            }
            self.is_first = false;
            for _ in 0..self.held_full {
                self.bytes.push(0xff_u8.wrapping_add(carry));
            }
            self.held_full = 0;
            self.held = (self.low >> 24) as u8;
        } else {
            self.held_full += 1;
        }
        self.low = (self.low & 0x00ff_ffff) << 8;
    }
}

impl Coder for Writer {
    #[inline]
    fn bit(&mut self, context: &mut Bit, bit: bool) -> bool {
        let bound = (self.range >> 16) * context.chance();
        if bit {
            self.range = bound;
        } else {
            self.low += u64::from(bound);
            self.range -= bound;
        }
        context.learn(bit);
        while self.range < SMALLEST {
            self.range <<= 8;
            self.shift();
        }
        bit
    }

    fn direct(&mut self, value: u32, count: u32) -> u32 {
        for place in (0..count).rev() {
            self.range >>= 1;
            if value >> place & 1 == 1 {
                self.low += u64::from(self.range);
            }
            while self.range < SMALLEST {
                self.range <<= 8;
                self.shift();
            }
        }
        value
    }
}

/// The reading side. After the end of its bytes it reads zeros.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    place: usize,
    code: u32,
    range: u32,
}

impl<'a> Reader<'a> {
    /// A reader of what a writer has finished.
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        let mut reader = Reader {
            bytes,
            place: 0,
            code: 0,
            range: u32::MAX,
        };
        for _ in 0..4 {
            reader.shift();
        }
        reader
    }

    /// Whether more was read than a writer leaves out: what was read since then is not what was written.
    pub(crate) fn is_past_end(&self) -> bool {
        self.place > self.bytes.len() + 8
    }

    #[inline]
    fn shift(&mut self) {
        let byte = self.bytes.get(self.place).copied().unwrap_or(0);
        self.code = self.code << 8 | u32::from(byte);
        self.place += 1;
    }
}

impl Coder for Reader<'_> {
    #[inline]
    fn bit(&mut self, context: &mut Bit, _: bool) -> bool {
        let bound = (self.range >> 16) * context.chance();
        let bit = self.code < bound;
        if bit {
            self.range = bound;
        } else {
            self.code -= bound;
            self.range -= bound;
        }
        context.learn(bit);
        while self.range < SMALLEST {
            self.range <<= 8;
            self.shift();
        }
        bit
    }

    fn direct(&mut self, _: u32, count: u32) -> u32 {
        let mut value = 0;
        for _ in 0..count {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            value = value << 1 | u32::from(bit);
            while self.range < SMALLEST {
                self.range <<= 8;
                self.shift();
            }
        }
        value
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
