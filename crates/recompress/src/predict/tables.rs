//! Corrections of the head of a dynamic block: the lengths of its codes' words, and how they are told.

use super::build::{BUILDERS, lengths};
use super::frequencies::{Frequencies, Lengths, SYMBOLS};
use super::lengths::LengthModel;
use super::model::{Bit, Tree};
use super::range::Coder;
use xebec_deflate::format::inflate::CodeTables;
use xebec_deflate::format::{CODE_LENGTH_ORDER, LITERAL_SYMBOLS, huffman};

/// The longest word of the code of code lengths.
const LONGEST_TOLD: usize = 7;

/// A limit of words' lengths that leaves room for all symbols.
const LEAST_LIMIT: usize = 9;

/// The lengths that a block's tables tell.
pub(super) fn lengths_of(tables: &CodeTables) -> Lengths {
    let mut all = [0; SYMBOLS];
    for (length, told) in all.iter_mut().zip(&tables.literals) {
        *length = *told;
    }
    for (length, told) in all[LITERAL_SYMBOLS..].iter_mut().zip(&tables.distances) {
        *length = *told;
    }
    all
}

/// Those of a fixed block.
pub(super) fn fixed() -> Lengths {
    let (literals, distances) = huffman::fixed_lengths();
    lengths_of(&CodeTables {
        literals,
        distances,
        ..CodeTables::default()
    })
}

/// By what the lengths are guessed: one of [`BUILDERS`], or the last dynamic block.
const SAME: usize = BUILDERS.len();

/// What was learned of the tables of a stretch.
#[derive(Debug, Clone)]
pub(super) struct TableModel {
    pub(super) last: Lengths,
    way: [Tree<4>; 4],
    last_way: usize,
    /// The longest words that the encoder allows itself: of literals and lengths, of distances.
    limits: [Tree<16>; 2],
    last_limits: [usize; 2],
    exact: [Bit; 4],
    lengths: LengthModel,
    literal_count: Bit,
    distance_count: Bit,
    count: [Tree<64>; 2],
    told: ToldModel,
}

impl Default for TableModel {
    fn default() -> TableModel {
        TableModel {
            last: fixed(),
            way: Default::default(),
            last_way: 0,
            limits: Default::default(),
            last_limits: [huffman::LONGEST; 2],
            exact: [Bit::default(); 4],
            lengths: LengthModel::default(),
            literal_count: Bit::rare(6),
            distance_count: Bit::rare(6),
            count: Default::default(),
            told: ToldModel::default(),
        }
    }
}

impl TableModel {
    /// Codes the head of a dynamic block. `frequencies` are those of its tokens, or near them.
    pub(super) fn code<C: Coder>(
        &mut self,
        coder: &mut C,
        frequencies: &Frequencies,
        is_near: bool,
        actual: &CodeTables,
    ) -> CodeTables {
        let actual_lengths = lengths_of(actual);
        let way = self.code_way(coder, frequencies, &actual_lengths);
        let guess = self.guess(way, frequencies, self.last_limits);
        let all = if !is_near && self.exact[way].code(coder, guess == actual_lengths) {
            guess
        } else {
            self.lengths
                .code(coder, &guess, &self.last, frequencies, &actual_lengths)
        };
        self.last = all;
        let (mut literals, mut distances) =
            (all[..LITERAL_SYMBOLS].to_vec(), all[LITERAL_SYMBOLS..].to_vec());
        literals.truncate(self.code_count(coder, 0, &literals, 257, actual.literals.len()));
        distances.truncate(self.code_count(coder, 1, &distances, 1, actual.distances.len()));
        let (symbols, code_lengths) = self.told.code(coder, &literals, &distances, actual);
        CodeTables {
            code_lengths,
            symbols,
            literals,
            distances,
        }
    }

    /// The writer takes the way with the fewest differences.
    fn code_way<C: Coder>(&mut self, coder: &mut C, frequencies: &Frequencies, actual: &Lengths) -> usize {
        let mut best = (0, self.last_limits);
        if C::WRITES {
            // The last way first: it costs least to name.
            let ways = std::iter::once(self.last_way).chain(0..=SAME);
            let limits = ways.map(|way| (way, self.fitting_limits(way, frequencies, actual)));
            let mut fewest = usize::MAX;
            for (way, limits) in limits {
                let guess = self.guess(way, frequencies, limits);
                let count = guess
                    .iter()
                    .zip(actual)
                    .filter(|(guess, actual)| guess != actual)
                    .count();
                if count < fewest {
                    (best, fewest) = ((way, limits), count);
                }
                if fewest == 0 {
                    break;
                }
            }
        }
        let way = self.way[self.last_way].code(coder, best.0);
        self.last_way = way;
        if way != SAME {
            for ((limit, model), best) in self.last_limits.iter_mut().zip(&mut self.limits).zip(best.1) {
                *limit = model.code(coder, best).max(LEAST_LIMIT);
            }
        }
        way
    }

    /// The limits that a builder must have had, if it was this one.
    fn fitting_limits(&self, way: usize, frequencies: &Frequencies, actual: &Lengths) -> [usize; 2] {
        let mut limits = self.last_limits;
        let free = self.guess(way, frequencies, [huffman::LONGEST; 2]);
        let parts = [0..LITERAL_SYMBOLS, LITERAL_SYMBOLS..SYMBOLS];
        for (limit, part) in limits.iter_mut().zip(parts) {
            let longest = |lengths: &Lengths| {
                usize::from(lengths[part.clone()].iter().copied().max().unwrap_or_default())
            };
            let (free, actual) = (longest(&free), longest(actual));
            if actual < free {
                *limit = actual.max(LEAST_LIMIT);
            } else if free > *limit {
                *limit = huffman::LONGEST;
            }
        }
        limits
    }

    fn guess(&self, way: usize, frequencies: &Frequencies, limits: [usize; 2]) -> Lengths {
        let Some(&builder) = BUILDERS.get(way) else {
            return self.last;
        };
        lengths_of(&CodeTables {
            literals: lengths(builder, &frequencies.literals, limits[0]),
            distances: lengths(builder, &frequencies.distances, limits[1]),
            ..CodeTables::default()
        })
    }

    /// How many lengths are told: as a rule up to the last word, and `least`.
    fn code_count(
        &mut self,
        coder: &mut impl Coder,
        which: usize,
        lengths: &[u8],
        least: usize,
        actual: usize,
    ) -> usize {
        let used = lengths
            .iter()
            .rposition(|&length| length > 0)
            .map_or(0, |last| last + 1)
            .max(least);
        let other = if which == 0 {
            &mut self.literal_count
        } else {
            &mut self.distance_count
        };
        if !other.code(coder, used != actual) {
            return used;
        }
        let more = self.count[which].code(coder, actual.wrapping_sub(used) % 64);
        (used + more).min(lengths.len())
    }
}

/// What was learned of how lengths are told.
#[derive(Debug, Clone, Default)]
struct ToldModel {
    /// Whether runs end with the literals' lengths.
    parted: [Bit; 2],
    last_parted: bool,
    right: Box<[[[Bit; 16]; 4]; 2]>,
    symbol: [Tree<32>; 2],
    extra: Tree<128>,
    way: [Tree<4>; 4],
    last_way: usize,
    count: Bit,
    counts: Tree<32>,
    length_right: [Bit; 2],
    length: [Tree<8>; 8],
}

type Told = (Vec<(u8, u8)>, Vec<u8>);

impl ToldModel {
    fn code<C: Coder>(
        &mut self,
        coder: &mut C,
        literals: &[u8],
        distances: &[u8],
        actual: &CodeTables,
    ) -> Told {
        let all = [literals, distances].concat();
        let mut parted = false;
        if C::WRITES {
            parted = Self::told(&all, literals.len(), true).eq(actual.symbols.iter().copied())
                || self.last_parted
                    && !Self::told(&all, literals.len(), false).eq(actual.symbols.iter().copied());
        }
        let parted = self.parted[usize::from(self.last_parted)].code(coder, parted);
        self.last_parted = parted;
        let mut symbols = Vec::with_capacity(actual.symbols.len());
        let mut place = 0;
        let mut actual_symbols = actual.symbols.iter().copied();
        while place < all.len() {
            let actual = actual_symbols.next().unwrap_or_default();
            let (symbol, extra) = self.code_symbol(
                coder,
                &all,
                place,
                if parted { literals.len() } else { 0 },
                actual,
            );
            symbols.push((symbol, extra));
            place += Self::covered(symbol, extra);
        }
        let code_lengths = self.code_code(coder, &symbols, &actual.code_lengths);
        (symbols, code_lengths)
    }

    /// How many lengths a symbol tells.
    fn covered(symbol: u8, extra: u8) -> usize {
        match symbol {
            16 | 17 => 3 + usize::from(extra),
            18 => 11 + usize::from(extra),
            _ => 1,
        }
    }

    /// What follows at a place: the length, how often it comes up to the end or the part's end, and whether the one before is the same.
    fn run(all: &[u8], place: usize, part: usize) -> (u8, usize, bool) {
        let end = if place < part { part } else { all.len() };
        let length = all[place];
        let run = all[place..end].iter().take_while(|&&next| next == length).count();
        let follows = place > 0 && place != part && all[place - 1] == length;
        (length, run, follows)
    }

    /// As much as one symbol can tell.
    fn rule((length, run, follows): (u8, usize, bool)) -> (u8, u8) {
        match (length, run) {
            (0, 11..) => (18, (run.min(138) - 11) as u8),
            (0, 3..) => (17, run as u8 - 3),
            (1.., 3..) if follows => (16, run.min(6) as u8 - 3),
            _ => (length, 0),
        }
    }

    /// All symbols by the rule.
    fn told(all: &[u8], literals: usize, parted: bool) -> impl Iterator<Item = (u8, u8)> + '_ {
        let part = if parted { literals } else { 0 };
        let mut place = 0;
        std::iter::from_fn(move || {
            (place < all.len()).then(|| {
                let (symbol, extra) = Self::rule(Self::run(all, place, part));
                place += Self::covered(symbol, extra);
                (symbol, extra)
            })
        })
    }

    fn code_symbol(
        &mut self,
        coder: &mut impl Coder,
        all: &[u8],
        place: usize,
        part: usize,
        actual: (u8, u8),
    ) -> (u8, u8) {
        let run = Self::run(all, place, part);
        let guess = Self::rule(run);
        let kind = match guess.0 {
            16 => 1,
            17 => 2,
            18 => 3,
            _ => 0,
        };
        let context = &mut self.right[usize::from(run.0 == 0)][kind][run.1.min(15)];
        if context.code(coder, guess == actual) {
            return guess;
        }
        let symbol = self.symbol[usize::from(run.0 == 0)].code(coder, usize::from(actual.0)) as u8;
        let most = match symbol {
            16 => 3,
            17 => 7,
            18 => 127,
            _ => return (run.0, 0),
        };
        (
            symbol,
            (self.extra.code(coder, usize::from(actual.1)) as u8).min(most),
        )
    }

    /// The code by which the symbols are written.
    fn code_code<C: Coder>(&mut self, coder: &mut C, symbols: &[(u8, u8)], actual: &[u8]) -> Vec<u8> {
        let mut frequencies = [0; CODE_LENGTH_ORDER.len()];
        for &(symbol, _) in symbols {
            frequencies[usize::from(symbol).min(18)] += 1;
        }
        let guess = |way: usize| {
            let by_symbol = lengths(BUILDERS[way.min(BUILDERS.len() - 1)], &frequencies, LONGEST_TOLD);
            CODE_LENGTH_ORDER.map(|symbol| by_symbol[symbol])
        };
        let length_at = |place: usize| actual.get(place).copied().unwrap_or_default();
        let mut best = self.last_way;
        if C::WRITES {
            let differences = |way: usize| {
                (0..)
                    .zip(guess(way))
                    .filter(|&(place, guess)| guess != length_at(place))
                    .count()
            };
            for way in 0..BUILDERS.len() {
                if differences(way) < differences(best) {
                    best = way;
                }
            }
        }
        let way = self.way[self.last_way].code(coder, best).min(BUILDERS.len() - 1);
        self.last_way = way;
        let mut code_lengths = Vec::with_capacity(CODE_LENGTH_ORDER.len());
        let mut before = 0;
        for (place, guess) in guess(way).into_iter().enumerate() {
            let actual = length_at(place);
            if self.length_right[before].code(coder, guess == actual) {
                code_lengths.push(guess);
            } else {
                code_lengths.push(self.length[usize::from(guess) % 8].code(coder, usize::from(actual)) as u8);
                before = 1;
            }
        }
        let used = code_lengths
            .iter()
            .rposition(|&length| length > 0)
            .map_or(0, |last| last + 1)
            .max(4);
        let count = if self.count.code(coder, used != actual.len()) {
            self.counts
                .code(coder, actual.len())
                .clamp(4, CODE_LENGTH_ORDER.len())
        } else {
            used
        };
        code_lengths.truncate(count);
        code_lengths
    }
}
