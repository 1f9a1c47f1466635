//! How a block tells its literals and tables, as far as that is not what was guessed.

use super::damaged::Damaged;
use crate::block::LiteralsKind;
use crate::entropy::{self, Habits, weights_table};
use crate::fse::Counts;
use crate::huffman::{self, LONGEST, Tree};
use crate::models::{Number, Symbol};
use crate::range_coder::{Bit, Coder};
use crate::sequences::{CODES, Sequence, Told, codes_of};

/// Contexts of literals and tables.
#[derive(Debug, Clone, Default)]
pub(super) struct Contexts {
    /// By the last kind.
    literals: [Symbol<4>; 4],
    last_literals: usize,
    /// By how many literals there are, and whether they are coded.
    format: [[Symbol<4>; 2]; 6],
    is_code: [Bit; 3],
    /// How the last code was sorted.
    sorts_quickly: bool,
    longest: Symbol<16>,
    /// By the length that was guessed.
    length: [Number; 16],
    is_weights: [Bit; 2],
    has_weights: Bit,
    /// By the kind of table and how the last one was told.
    told: [[Symbol<4>; 4]; 3],
    last_told: [usize; 3],
    is_table: [Bit; 3],
    counts: [CountsContexts; 4],
    is_carried: Bit,
}

#[derive(Debug, Clone, Default)]
struct CountsContexts {
    log: Symbol<16>,
    symbols: Number,
    count: Number,
}

impl CountsContexts {
    /// A table of up to `symbols` symbols that is told by its difference from a likely one.
    fn code<C: Coder>(
        &mut self,
        coder: &mut C,
        likely: Option<&Counts>,
        given: Option<&Counts>,
        log_most: u32,
        symbols: usize,
    ) -> Result<Counts, Damaged> {
        let log = self.log.code(coder, given.map_or(0, |given| given.log as usize)) as u32;
        let length = self
            .symbols
            .code(coder, given.map_or(0, |given| given.counts.len() as u32)) as usize;
        if length > symbols || log > log_most || (1..5).contains(&log) {
            return Err(Damaged::Value);
        }
        let mut counts = Vec::with_capacity(length);
        for symbol in 0..length {
            let of = |table: Option<&Counts>| {
                table
                    .and_then(|table| table.counts.get(symbol))
                    .copied()
                    .unwrap_or(0)
            };
            let likely = i32::from(of(likely));
            let count = self
                .count
                .code_signed(coder, i32::from(of(given)) - likely)
                .wrapping_add(likely);
            counts.push(i16::try_from(count).map_err(|_| Damaged::Value)?);
        }
        let counts = Counts { log, counts };
        if counts.is_whole() {
            Ok(counts)
        } else {
            Err(Damaged::Value)
        }
    }
}

impl Contexts {
    /// How a block tells its literals.
    pub(super) fn literals<C: Coder>(
        &mut self,
        coder: &mut C,
        literals: &[u8],
        given: Option<(&LiteralsKind, u8)>,
    ) -> Result<(LiteralsKind, u8), Damaged> {
        let kind = match given {
            None | Some((LiteralsKind::Raw, _)) => 0,
            Some((LiteralsKind::One, _)) => 1,
            Some((LiteralsKind::Coded(_), _)) => 2,
            Some((LiteralsKind::Repeat, _)) => 3,
        };
        let kind = self.literals[self.last_literals].code(coder, kind);
        self.last_literals = kind;
        let size = match literals.len() {
            0..32 => 0,
            32..256 => 1,
            256..1024 => 2,
            1024..4096 => 3,
            4096..16_384 => 4,
            _ => 5,
        };
        let format = &mut self.format[size][usize::from(kind >= 2)];
        let format = format.code(coder, given.map_or(0, |(_, format)| usize::from(format))) as u8;
        let kind = match kind {
            0 => LiteralsKind::Raw,
            1 => LiteralsKind::One,
            3 => LiteralsKind::Repeat,
            _ => {
                let given = if let Some((LiteralsKind::Coded(tree), _)) = given {
                    Some(tree)
                } else {
                    None
                };
                LiteralsKind::Coded(self.tree(coder, literals, given)?)
            }
        };
        Ok((kind, format))
    }

    // One function, since both sides take these steps in this order.
    fn tree<C: Coder>(
        &mut self,
        coder: &mut C,
        literals: &[u8],
        given: Option<&Tree>,
    ) -> Result<Tree, Damaged> {
        let mut counts = [0; 256];
        for &literal in literals {
            counts[usize::from(literal)] += 1;
        }
        let given_lengths = given.map(|given| given.lengths.as_slice());
        let (mut likely, mut is_right) = (None, false);
        for (number, quick) in [self.sorts_quickly, !self.sorts_quickly].into_iter().enumerate() {
            likely = entropy::code(&counts, entropy::longest(&counts), quick);
            is_right = coder.bit(&mut self.is_code[number], likely.as_deref() == given_lengths);
            if is_right {
                self.sorts_quickly = quick;
                break;
            }
        }
        if !is_right {
            let longest = given_lengths
                .and_then(|lengths| lengths.iter().max())
                .copied()
                .unwrap_or(0);
            let longest = self.longest.code(coder, usize::from(longest)) as u32;
            likely = if (1..=LONGEST).contains(&longest) {
                entropy::code(&counts, longest, true)
            } else {
                None
            };
            is_right = coder.bit(&mut self.is_code[2], likely.as_deref() == given_lengths);
        }
        let lengths = match likely {
            Some(likely) if is_right => likely,
            likely => self.lengths(coder, &likely.unwrap_or_default(), given_lengths)?,
        };
        let likely = likely_weights(&lengths);
        let given_table = given.map(|given| given.table.as_ref());
        let is_right = coder.bit(
            &mut self.is_weights[usize::from(likely.is_some())],
            given_table == Some(likely.as_ref()),
        );
        if is_right {
            return Ok(Tree {
                lengths,
                table: likely,
            });
        }
        let given_table = given_table.flatten();
        let has_table = coder.bit(&mut self.has_weights, given_table.is_some());
        let table = if has_table {
            let symbols = LONGEST as usize + 1;
            Some(self.counts[3].code(
                coder,
                likely.as_ref(),
                given_table,
                huffman::WEIGHTS_LOG_MOST,
                symbols,
            )?)
        } else {
            None
        };
        Ok(Tree { lengths, table })
    }

    /// The lengths of a code that is not what was guessed.
    fn lengths<C: Coder>(
        &mut self,
        coder: &mut C,
        likely: &[u8],
        given: Option<&[u8]>,
    ) -> Result<Vec<u8>, Damaged> {
        let mut lengths = Vec::with_capacity(256);
        for symbol in 0..256 {
            let of = |lengths: &[u8]| i32::from(lengths.get(symbol).copied().unwrap_or(0));
            let likely = of(likely);
            let given = given.map_or(0, of);
            let length = self.length[likely as usize & 15]
                .code_signed(coder, given - likely)
                .wrapping_add(likely);
            lengths.push(u8::try_from(length).map_err(|_| Damaged::Value)?);
        }
        let used = lengths
            .iter()
            .rposition(|&length| length > 0)
            .map_or(0, |last| last + 1);
        lengths.truncate(used);
        if huffman::is_whole(&lengths) {
            Ok(lengths)
        } else {
            Err(Damaged::Value)
        }
    }

    /// How a block tells the tables of its sequences.
    pub(super) fn tables<C: Coder>(
        &mut self,
        coder: &mut C,
        habits: &Habits,
        sequences: &[Sequence],
        given: Option<&[Told; 3]>,
    ) -> Result<[Told; 3], Damaged> {
        let mut told = [Told::Predefined, Told::Predefined, Told::Predefined];
        let (Some(&first), Some(&last)) = (sequences.first(), sequences.last()) else {
            return Ok(told);
        };
        let (first, last) = (codes_of(first), codes_of(last));
        let mut histograms = [[0_u32; 64]; 3];
        for &sequence in sequences {
            for (histogram, code) in histograms.iter_mut().zip(codes_of(sequence)) {
                histogram[usize::from(code)] += 1;
            }
        }
        for (kind, told) in told.iter_mut().enumerate() {
            let given = given.map(|given| &given[kind]);
            let mode = match given {
                None | Some(Told::Predefined) => 0,
                Some(Told::One(_)) => 1,
                Some(Told::Counts(_)) => 2,
                Some(Told::Repeat) => 3,
            };
            let mode = self.told[kind][self.last_told[kind]].code(coder, mode);
            self.last_told[kind] = mode;
            *told = match mode {
                0 => Told::Predefined,
                1 => Told::One(first[kind]),
                3 => Told::Repeat,
                _ => {
                    let given = if let Some(Told::Counts(counts)) = given {
                        Some(counts)
                    } else {
                        None
                    };
                    let likely = habits.table(kind, &histograms[kind], last[kind]);
                    Told::Counts(self.table(coder, kind, likely, given)?)
                }
            };
        }
        Ok(told)
    }

    fn table<C: Coder>(
        &mut self,
        coder: &mut C,
        kind: usize,
        likely: Option<Counts>,
        given: Option<&Counts>,
    ) -> Result<Counts, Damaged> {
        let is_right = coder.bit(&mut self.is_table[kind], likely.as_ref() == given);
        match likely {
            Some(likely) if is_right => Ok(likely),
            likely => {
                let most = crate::sequences::LOGS_MOST[kind];
                let counts = self.counts[kind].code(coder, likely.as_ref(), given, most, CODES[kind])?;
                if counts.log == 0 {
                    Err(Damaged::Value)
                } else {
                    Ok(counts)
                }
            }
        }
    }

    /// A code that an earlier stretch told.
    pub(super) fn carried_code<C: Coder>(
        &mut self,
        coder: &mut C,
        given: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, Damaged> {
        if coder.bit(&mut self.is_carried, given.is_some()) {
            self.lengths(coder, &[], given).map(Some)
        } else {
            Ok(None)
        }
    }

    /// A table that an earlier stretch told.
    pub(super) fn carried_table<C: Coder>(
        &mut self,
        coder: &mut C,
        kind: usize,
        given: Option<&Counts>,
    ) -> Result<Option<Counts>, Damaged> {
        if coder.bit(&mut self.is_carried, given.is_some()) {
            let most = crate::sequences::LOGS_MOST[kind];
            self.counts[kind]
                .code(coder, None, given, most, CODES[kind])
                .map(Some)
        } else {
            Ok(None)
        }
    }
}

/// The table of the weights of a code, if telling them by it is shorter than half a byte for each.
fn likely_weights(lengths: &[u8]) -> Option<Counts> {
    let table = weights_table(lengths)?;
    let tree = Tree {
        lengths: lengths.to_vec(),
        table: Some(table),
    };
    let mut bytes = Vec::new();
    tree.write(&mut bytes)?;
    let told = lengths.len() - 1;
    (bytes.len() > 2 && bytes.len() - 1 < told / 2)
        .then_some(tree.table)
        .flatten()
}
