//! Corrections of the lengths of code words, one by one, where a guess is not right.

use super::frequencies::{Frequencies, Lengths};
use super::mix::Mixer;
use super::model::{Bit, Tree};
use super::range::Coder;

/// Steps of the ideal length of a word, four to a bit.
const IDEALS: usize = 80;

/// What was learned of one decision.
#[derive(Debug, Clone)]
struct Decision {
    by_last: Box<[[Bit; 16]; 16]>,
    by_ideal: Box<[[Bit; IDEALS]; 16]>,
    by_before: Box<[[Bit; 16]; 16]>,
    mixers: Box<[Mixer<3>; 16]>,
}

impl Default for Decision {
    fn default() -> Decision {
        Decision {
            by_last: Box::default(),
            by_ideal: Box::new([[Bit::default(); IDEALS]; 16]),
            by_before: Box::default(),
            mixers: Box::default(),
        }
    }
}

/// What the lengths around a symbol say.
#[derive(Debug, Clone, Copy)]
struct Context {
    guess: usize,
    last: usize,
    ideal: usize,
    /// How the two symbols before were met.
    before: usize,
}

impl Decision {
    fn code(&mut self, coder: &mut impl Coder, context: Context, bit: bool) -> bool {
        let guess = context.guess % 16;
        let bits = [
            &mut self.by_last[guess][context.last % 16],
            &mut self.by_ideal[guess][context.ideal],
            &mut self.by_before[guess][context.before % 16],
        ];
        self.mixers[guess].code(coder, bits, bit)
    }
}

/// What was learned of the differences.
#[derive(Debug, Clone, Default)]
pub(super) struct LengthModel {
    right: Decision,
    none: Decision,
    longer: Decision,
    more: [Decision; 2],
    /// By the length in the last block: the length of what has none by the guess.
    other: Box<[Tree<16>; 16]>,
}

impl LengthModel {
    /// Codes all lengths.
    pub(super) fn code(
        &mut self,
        coder: &mut impl Coder,
        guess: &Lengths,
        last: &Lengths,
        frequencies: &Frequencies,
        actual: &Lengths,
    ) -> Lengths {
        let mut all = *guess;
        let sums = [
            frequencies.literals.iter().sum::<u32>(),
            frequencies.distances.iter().sum(),
        ];
        let counts = frequencies.literals.iter().map(|count| (*count, sums[0]));
        let counts = counts.chain(frequencies.distances.iter().map(|count| (*count, sums[1])));
        let mut before = 0;
        for (symbol, (count, sum)) in counts.enumerate() {
            let context = Context {
                guess: usize::from(guess[symbol]),
                last: usize::from(last[symbol]),
                ideal: ideal(count, sum),
                before,
            };
            let length = self.one(coder, context, usize::from(actual[symbol]));
            let met = match length.cmp(&context.guess) {
                std::cmp::Ordering::Equal => usize::from(context.guess > 0),
                std::cmp::Ordering::Less => 2,
                std::cmp::Ordering::Greater => 3,
            };
            before = before << 2 & 0xf | met;
            all[symbol] = length as u8;
        }
        all
    }

    fn one(&mut self, coder: &mut impl Coder, context: Context, actual: usize) -> usize {
        let guess = context.guess;
        if self.right.code(coder, context, actual == guess) {
            return guess;
        }
        if guess == 0 {
            return self.other[context.last % 16].code(coder, actual);
        }
        if self.none.code(coder, context, actual == 0) {
            return 0;
        }
        let is_longer = self.longer.code(coder, context, actual > guess);
        let mut length = guess;
        loop {
            length = if is_longer { length + 1 } else { length - 1 };
            if length <= 1 || length >= 15 {
                return length.clamp(1, 15);
            }
            let context = Context {
                before: length.abs_diff(guess),
                ..context
            };
            if !self.more[usize::from(is_longer)].code(coder, context, length != actual) {
                return length;
            }
        }
    }
}

/// How long the word of a symbol should be, by its frequency; the fourth parts by a chord of the logarithm.
fn ideal(count: u32, sum: u32) -> usize {
    if count == 0 {
        return IDEALS - 1;
    }
    let logarithm = |value: u32| {
        let whole = value.ilog2();
        8 * whole + (((u64::from(value) << 3) >> whole) as u32 - 8)
    };
    ((logarithm(sum.max(count)) - logarithm(count)) / 2).min(IDEALS as u32 - 2) as usize
}
