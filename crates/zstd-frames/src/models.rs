//! Contexts for what is larger than a bit.

use super::range_coder::{Bit, Coder};

/// A symbol of `2^WIDTH` ones, `SIZE` is as many: a tree of contexts.
#[derive(Debug, Clone)]
pub(crate) struct Symbol<const SIZE: usize>([Bit; SIZE]);

impl<const SIZE: usize> Default for Symbol<SIZE> {
    fn default() -> Symbol<SIZE> {
        Symbol([Bit::default(); SIZE])
    }
}

impl<const SIZE: usize> Symbol<SIZE> {
    const WIDTH: u32 = SIZE.ilog2();

    /// One symbol.
    pub(crate) fn code<C: Coder>(&mut self, coder: &mut C, symbol: usize) -> usize {
        let mut node = 1;
        for place in (0..Self::WIDTH).rev() {
            let bit = coder.bit(&mut self.0[node], symbol >> place & 1 == 1);
            node = node << 1 | usize::from(bit);
        }
        node - SIZE
    }
}

/// A number of up to 32 bits, of which small ones are likely: how many bits it has, the two bits below the highest, and the rest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Number {
    width: Symbol<64>,
    second: [[Bit; 3]; 32],
}

impl Number {
    /// One number.
    pub(crate) fn code<C: Coder>(&mut self, coder: &mut C, number: u32) -> u32 {
        let width = self
            .width
            .code(coder, (u32::BITS - number.leading_zeros()) as usize)
            .min(32) as u32;
        if width < 2 {
            return width;
        }
        let below = width - 1;
        let contexts = &mut self.second[below as usize];
        let top = coder.bit(&mut contexts[0], number >> (below - 1) & 1 == 1);
        let mut value = 2 | u32::from(top);
        let mut left = below - 1;
        if left > 0 {
            left -= 1;
            let next = coder.bit(&mut contexts[1 + usize::from(top)], number >> left & 1 == 1);
            value = value << 1 | u32::from(next);
        }
        if left == 0 {
            return value;
        }
        let rest = coder.direct(number & ((1 << left) - 1), left);
        value << left | rest
    }

    /// A number that may be below zero.
    pub(crate) fn code_signed<C: Coder>(&mut self, coder: &mut C, number: i32) -> i32 {
        let folded = (number << 1 ^ number >> 31) as u32;
        let folded = self.code(coder, folded);
        (folded >> 1) as i32 ^ -((folded & 1) as i32)
    }
}

/// Bytes one after another, with no context but what they are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bytes {
    length: Number,
    bytes: Box<Symbol<256>>,
}

impl Bytes {
    /// Bytes, `most` of them at most: the reading side stops there, and its caller notices that they are too many.
    pub(crate) fn code<C: Coder>(&mut self, coder: &mut C, bytes: &[u8], most: usize) -> Vec<u8> {
        let length = self.length.code(coder, bytes.len() as u32) as usize;
        let length = length.min(most.saturating_add(1));
        let mut given = bytes.iter();
        let coded = (0..length).map(|_| {
            let byte = given.next().copied().unwrap_or(0);
            self.bytes.code(coder, usize::from(byte)) as u8
        });
        coded.collect()
    }

    /// One byte.
    pub(crate) fn code_byte<C: Coder>(&mut self, coder: &mut C, byte: u8) -> u8 {
        self.bytes.code(coder, usize::from(byte)) as u8
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::range_coder::{Reader, Writer};

    #[derive(Default)]
    struct Models {
        symbol: Symbol<8>,
        number: Number,
        bytes: Bytes,
    }

    fn run<C: Coder>(coder: &mut C, values: &[(u32, u32, Vec<u8>)]) -> Vec<(u32, i32, usize, Vec<u8>)> {
        let mut models = Models::default();
        let coded = values.iter().map(|(value, shift, bytes)| {
            let value = value >> shift;
            (
                models.number.code(coder, value),
                models.number.code_signed(coder, value as i32),
                models.symbol.code(coder, value as usize % 8),
                models.bytes.code(coder, bytes, 30),
            )
        });
        coded.collect()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(values in prop::collection::vec((any::<u32>(), 0..32_u32, prop::collection::vec(any::<u8>(), 0..30)), 0..100)) {
            let mut writer = Writer::default();
            let written = run(&mut writer, &values);
            for (coded, (value, shift, bytes)) in written.iter().zip(&values) {
                let value = value >> shift;
                prop_assert_eq!(coded, &(value, value as i32, value as usize % 8, bytes.clone()));
            }
            let coded = writer.finish();
            let blind = vec![(0, 0, Vec::new()); values.len()];
            prop_assert_eq!(run(&mut Reader::new(&coded), &blind), written);
        }
    }
}
