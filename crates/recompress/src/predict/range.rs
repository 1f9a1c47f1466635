//! What bits cost when the range coder of `bitstream` codes them.

pub(super) use xebec_bitstream::range::{Coder, Decoder, Encoder, ONE};

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
    fn the_price_of_a_bit_is_its_logarithm() {
        for probability in [1, 2, 3, 100, 1000, 20_000, 32_768, 50_000, 65_535] {
            let exact = -(f64::from(probability) / 65_536.0).log2();
            let price = Price::cost(probability) as f64 / 65_536.0;
            assert!((exact - price).abs() < 0.02, "{probability}: {exact} {price}");
        }
    }
}
