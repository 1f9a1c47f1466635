//! Mixing: one probability out of several, by weights that learn which of them to trust (logistic mixing, as in the PAQ family of compressors).
//!
//! Logarithms of odds are in 1/256 of a natural unit, weights in 1/65,536.

use super::model::Bit;
use super::range::{Coder, ONE};

/// Logarithms of odds lie between this and its negative. e^11 is about 60,000.
const FARTHEST: i32 = 11 * 256;
/// The steps of the weights are this fraction, as a power of two.
const PACE: u32 = 18;

/// The probability of each logarithm of odds.
const PROBABILITIES: [u16; 2 * FARTHEST as usize + 1] = {
    // e^(-1/256), of 1 << 62.
    const STEP: u128 = 4_593_706_758_521_714_574;
    let mut table = [0; 2 * FARTHEST as usize + 1];
    let mut power: u128 = 1 << 62;
    let mut distance = 0;
    while distance <= FARTHEST as usize {
        let probability = ((ONE as u128) << 62) / ((1 << 62) + power);
        table[FARTHEST as usize + distance] = probability as u16;
        table[FARTHEST as usize - distance] = (ONE as u128 - probability) as u16;
        power = (power * STEP) >> 62;
        distance += 1;
    }
    table
};

/// The logarithm of the odds of each probability, of which twelve bits are kept.
const ODDS: [i16; 4096] = {
    let mut table = [0; 4096];
    let mut odds = 0;
    let mut probability = 0;
    while probability < table.len() {
        let exact = 16 * probability as u32 + 8;
        while odds < 2 * FARTHEST as usize && (PROBABILITIES[odds] as u32) < exact {
            odds += 1;
        }
        table[probability] = (odds as i32 - FARTHEST) as i16;
        probability += 1;
    }
    table
};

/// The probability of a logarithm of odds.
#[inline]
fn probability(odds: i32) -> u32 {
    u32::from(PROBABILITIES[(odds.clamp(-FARTHEST, FARTHEST) + FARTHEST) as usize]).clamp(1, ONE - 1)
}

/// A mixer of `INPUTS` opinions.
#[derive(Debug, Clone)]
pub(super) struct Mixer<const INPUTS: usize> {
    weights: [i32; INPUTS],
}

impl<const INPUTS: usize> Default for Mixer<INPUTS> {
    fn default() -> Self {
        Mixer {
            weights: [(1 << 16) * 4 / 3 / INPUTS as i32; INPUTS],
        }
    }
}

impl<const INPUTS: usize> Mixer<INPUTS> {
    /// Codes a bit of which each of `bits` has an opinion. All of them learn.
    #[inline]
    pub(super) fn code(&mut self, coder: &mut impl Coder, bits: [&mut Bit; INPUTS], bit: bool) -> bool {
        let mut odds = [0; INPUTS];
        let mut sum = 0_i64;
        for ((odds, bit), weight) in odds.iter_mut().zip(&bits).zip(&self.weights) {
            *odds = i32::from(ODDS[(bit.probability() >> 4) as usize]);
            sum += i64::from(*odds) * i64::from(*weight);
        }
        let mixed = probability((sum >> 16) as i32);
        let bit = coder.code(bit, mixed);
        let error = (i32::from(bit) << 16) - mixed as i32;
        for (odds, weight) in odds.iter().zip(&mut self.weights) {
            let step = (i64::from(*odds) * i64::from(error)) >> PACE;
            *weight = (*weight + step as i32).clamp(-(1 << 20), 1 << 20);
        }
        for each in bits {
            each.learn(bit, 255);
        }
        bit
    }
}
