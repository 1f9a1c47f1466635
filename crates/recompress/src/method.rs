//! The encoders that are known, by what identifies them in a description, and which of them may have written a stream.

use std::fmt;

use crate::gzip::Fingerprint;
use xebec_deflate::encoders::gnu_gzip::GnuGzip;
use xebec_deflate::encoders::go::Go;
use xebec_deflate::encoders::klauspost::generation::Generation;
use xebec_deflate::encoders::klauspost::pgzip::Pgzip;
use xebec_deflate::encoders::klauspost::stream::Klauspost;
use xebec_deflate::encoders::pigz::{self, Pigz};
use xebec_deflate::encoders::zlib::Zlib;
use xebec_deflate::encoders::{Cut, Encoder};

/// An encoder with all that its output depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    pub(crate) family: Family,
    pub(crate) level: i8,
    /// Which of the encoders of the family: a generation, a memory level, whether there are several threads.
    pub(crate) variant: u8,
    /// Where a family has blocks of input, their size in KiB; else 0.
    pub(crate) block: u16,
}

/// Programs and packages whose encoders are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// `compress/flate` of Go up to 1.26.
    Go,
    /// `github.com/klauspost/compress/flate`, and Go's from 1.27 on.
    Klauspost,
    /// `github.com/klauspost/pgzip`.
    Pgzip,
    /// zlib.
    Zlib,
    /// GNU gzip.
    GnuGzip,
    /// pigz.
    Pigz,
}

/// Families with their codes and names.
const FAMILIES: [(Family, u8, &str); 6] = [
    (Family::Go, 1, "Go up to 1.26"),
    (Family::Klauspost, 2, "klauspost"),
    (Family::Pgzip, 3, "pgzip"),
    (Family::Zlib, 4, "zlib"),
    (Family::GnuGzip, 5, "GNU gzip"),
    (Family::Pigz, 6, "pigz"),
];

/// Generations of klauspost's encoder with their codes and names, the likeliest first.
const GENERATIONS: [(Generation, u8, &str); 10] = [
    (Generation::V1_20_0, 10, "1.20.0 and later"),
    (Generation::V1_18_1, 9, "1.18.1 to 1.19.2, Go 1.27.0"),
    (Generation::V1_15_11, 6, "1.15.11 to 1.15.12"),
    (Generation::V1_11_3, 1, "1.11.3"),
    (Generation::V1_15_15, 7, "1.15.15 to 1.17.11"),
    (Generation::V1_18_0, 8, "1.18.0"),
    (Generation::V1_15_1, 5, "1.15.1 to 1.15.9"),
    (Generation::V1_14_4, 4, "1.14.4"),
    (Generation::V1_12_3, 3, "1.12.3 to 1.13.6"),
    (Generation::V1_11_13, 2, "1.11.13"),
];

/// zlib's memory levels that are in use.
const MEMORY_LEVELS: [u8; 2] = [8, 9];
/// Blocks of pgzip (of umoci the smaller ones) and of pigz, in KiB.
const PGZIP_BLOCKS: [u16; 2] = [(Pgzip::BLOCK_SIZE >> 10) as u16, 256];
const PIGZ_BLOCK: u16 = (pigz::BLOCK >> 10) as u16;

/// How klauspost's gzip writes "no time".
const NO_TIME_OF_KLAUSPOST: u32 = 0x886e_0900;
const UNIX: u8 = 3;

impl Method {
    /// How many bytes a code has.
    pub(crate) const CODE: usize = 5;

    /// An encoder at the beginning of a stream. `None` if there is no such.
    pub(crate) fn start(self) -> Option<Box<dyn Encoder>> {
        let level = self.level;
        match self.family {
            Family::Go => boxed(Go::new(level)),
            Family::Klauspost => boxed(Klauspost::new(level, self.generation()?, &[])),
            Family::Pgzip => boxed(Pgzip::new(level, self.generation()?, self.block_bytes())),
            Family::Zlib => boxed(Zlib::new(level.into(), self.variant.into(), &[])),
            Family::GnuGzip => boxed(GnuGzip::new(level.into())),
            Family::Pigz => boxed(Pigz::new(self.pigz())),
        }
    }

    /// An encoder that goes on at a cut. `None` if the cut is not one of this encoder's.
    pub(crate) fn resume(self, history: &[u8], cut: &Cut) -> Option<Box<dyn Encoder>> {
        let level = self.level;
        match self.family {
            Family::Go => boxed(Go::resume(level, history, cut)),
            Family::Klauspost => boxed(Klauspost::resume(level, self.generation()?, history, cut)),
            Family::Pgzip => boxed(Pgzip::resume(
                level,
                self.generation()?,
                self.block_bytes(),
                history,
                cut,
            )),
            Family::Zlib => boxed(Zlib::resume(level.into(), self.variant.into(), history, cut)),
            Family::GnuGzip => boxed(GnuGzip::resume(level.into(), history, cut)),
            Family::Pigz => boxed(Pigz::resume(self.pigz(), history, cut)),
        }
    }

    /// How many plain bytes before a cut are tried, the fewest first. Chains of all places have no more than the window; tables of fast levels have
    /// what the encoder came across, which depends on what it did long before.
    pub(crate) fn histories(self) -> &'static [u64] {
        let has_chains = match self.family {
            Family::Go | Family::Zlib | Family::GnuGzip => self.level >= 4,
            Family::Klauspost => false,
            Family::Pgzip => true,
            Family::Pigz => self.level >= 4 || self.variant == 1,
        };
        if has_chains {
            &[32 << 10]
        } else {
            &[64 << 10, 256 << 10, 1 << 20]
        }
    }

    /// Whether the encoder flushes by itself, after each block of its input: the flushes that a stream has are its own then.
    pub(crate) fn flushes_by_itself(self) -> bool {
        matches!(self.family, Family::Pgzip | Family::Pigz)
    }

    /// Whether the other encoder differs by its version only: it goes on at the cuts of this one.
    pub(crate) fn is_sibling(self, other: Method) -> bool {
        self != other
            && (self.family, self.level, self.block) == (other.family, other.level, other.block)
            && matches!(self.family, Family::Klauspost | Family::Pgzip)
    }

    /// The last of [`Method::histories`].
    pub(crate) fn most_history(self) -> u64 {
        self.histories().last().copied().unwrap_or_default()
    }

    /// The code of the encoder in a description: family, level, variant, size of blocks.
    pub(crate) fn to_code(self) -> [u8; Self::CODE] {
        let code = FAMILIES
            .iter()
            .find(|(family, ..)| *family == self.family)
            .map_or(0, |&(_, code, _)| code);
        let [low, high] = self.block.to_le_bytes();
        [code, self.level as u8, self.variant, low, high]
    }

    /// The encoder that has this code.
    pub(crate) fn from_code([code, level, variant, low, high]: [u8; Self::CODE]) -> Option<Method> {
        let (family, ..) = FAMILIES.into_iter().find(|(_, known, _)| *known == code)?;
        let method = Method {
            family,
            level: level as i8,
            variant,
            block: u16::from_le_bytes([low, high]),
        };
        let is_right = match family {
            Family::Go | Family::GnuGzip => variant == 0 && method.block == 0,
            Family::Klauspost => method.generation().is_some() && method.block == 0,
            Family::Pgzip => method.generation().is_some() && method.block > 0,
            Family::Zlib => MEMORY_LEVELS.contains(&variant) && method.block == 0,
            Family::Pigz => variant < 2 && method.block > 0,
        };
        is_right.then_some(method)
    }

    fn generation(self) -> Option<Generation> {
        let known = GENERATIONS.into_iter().find(|(_, code, _)| *code == self.variant);
        known.map(|(generation, ..)| generation)
    }

    /// Whether the encoder has this level.
    fn exists(self) -> bool {
        match self.family {
            Family::Go => true,
            Family::Klauspost | Family::Pgzip => self
                .generation()
                .is_some_and(|generation| generation.has(self.level)),
            Family::Zlib | Family::GnuGzip | Family::Pigz => self.level > 0,
        }
    }

    fn block_bytes(self) -> usize {
        usize::from(self.block) << 10
    }

    fn pigz(self) -> pigz::Options {
        pigz::Options {
            level: self.level.into(),
            block: self.block_bytes(),
            is_parallel: self.variant == 1,
        }
    }

    /// Encoders that may have written a gzip member with this head, the likeliest first: by the marks that their writers leave in it
    /// (docs/recompression.md). None is left out, since a head can be anything.
    pub(crate) fn candidates(head: Fingerprint) -> Vec<Method> {
        let families = match head {
            Fingerprint {
                time: NO_TIME_OF_KLAUSPOST,
                ..
            } => [
                Family::Pgzip,
                Family::Klauspost,
                Family::Go,
                Family::Zlib,
                Family::GnuGzip,
                Family::Pigz,
            ],
            Fingerprint { system: UNIX, .. } => [
                Family::GnuGzip,
                Family::Pigz,
                Family::Zlib,
                Family::Go,
                Family::Klauspost,
                Family::Pgzip,
            ],
            Fingerprint { time: 0, .. } => [
                Family::Go,
                Family::Klauspost,
                Family::Zlib,
                Family::Pgzip,
                Family::GnuGzip,
                Family::Pigz,
            ],
            _ => [
                Family::Zlib,
                Family::Go,
                Family::Klauspost,
                Family::GnuGzip,
                Family::Pigz,
                Family::Pgzip,
            ],
        };
        // Extra flags tell the fastest and the slowest level, in most writers.
        let levels: [i8; 11] = match head.extra_flags {
            2 => [9, 6, 5, 8, 7, 4, 3, 2, 1, -2, 0],
            4 => [1, 2, 6, 5, 9, 3, 4, 7, 8, -2, 0],
            _ => [6, 5, 1, 9, 4, 3, 2, 7, 8, -2, 0],
        };
        // The likely level of each family comes before the others of any.
        let (likely, others) = levels.split_at(2);
        [likely, others]
            .iter()
            .flat_map(|levels| families.iter().flat_map(|&family| of_family(family, levels)))
            .collect()
    }
}

/// The encoders of a family at these levels, those that exist.
fn of_family(family: Family, levels: &[i8]) -> Vec<Method> {
    let generations = GENERATIONS.map(|(_, code, _)| code);
    let (variants, blocks): (Vec<u8>, &[u16]) = match family {
        Family::Go | Family::GnuGzip => (vec![0], &[0]),
        Family::Klauspost => (generations.to_vec(), &[0]),
        Family::Pgzip => (generations.to_vec(), &PGZIP_BLOCKS),
        Family::Zlib => (MEMORY_LEVELS.to_vec(), &[0]),
        Family::Pigz => (vec![1, 0], &[PIGZ_BLOCK]),
    };
    let variants = &variants;
    let of_level = |&level: &i8| {
        let of_block = move |&block: &u16| {
            variants.iter().map(move |&variant| Method {
                family,
                level,
                variant,
                block,
            })
        };
        blocks.iter().flat_map(of_block)
    };
    let all = levels.iter().flat_map(of_level);
    all.filter(|method| method.exists()).collect()
}

fn boxed(encoder: Option<impl Encoder + 'static>) -> Option<Box<dyn Encoder>> {
    encoder.map(|encoder| Box::new(encoder) as Box<dyn Encoder>)
}

impl fmt::Display for Method {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FAMILIES
            .iter()
            .find(|(family, ..)| *family == self.family)
            .map_or("", |&(.., name)| name);
        write!(formatter, "{name}, level {}", self.level)?;
        match self.family {
            Family::Klauspost | Family::Pgzip => {
                let generation = GENERATIONS
                    .iter()
                    .find(|(_, code, _)| *code == self.variant)
                    .map_or("", |&(.., name)| name);
                write!(formatter, " ({generation})")?;
                match self.block {
                    0 => Ok(()),
                    block if block == PGZIP_BLOCKS[0] => Ok(()),
                    block => write!(formatter, ", blocks of {block} KiB"),
                }
            }
            Family::Zlib if self.variant != MEMORY_LEVELS[0] => {
                write!(formatter, ", memory level {}", self.variant)
            }
            Family::Pigz if self.variant == 0 => write!(formatter, ", one thread"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(time: u32, extra_flags: u8, system: u8) -> Fingerprint {
        Fingerprint {
            time,
            extra_flags,
            system,
        }
    }

    #[test]
    fn each_encoder_exists_and_has_a_code_and_a_name_of_its_own() {
        let all = Method::candidates(head(0, 0, 255));
        let (mut codes, mut names) = (Vec::new(), Vec::new());
        for method in &all {
            assert!(method.start().is_some(), "{method}");
            assert_eq!(Method::from_code(method.to_code()), Some(*method));
            codes.push(method.to_code());
            names.push(method.to_string());
        }
        for list in [codes.len(), names.len()] {
            assert_eq!(list, all.len());
        }
        codes.sort_unstable();
        codes.dedup();
        names.sort_unstable();
        names.dedup();
        assert_eq!((codes.len(), names.len()), (all.len(), all.len()));
    }

    #[test]
    fn every_head_leads_to_the_same_encoders_in_another_order() {
        let first = |head| Method::candidates(head)[0].to_string();
        assert_eq!(first(head(0, 0, 255)), "Go up to 1.26, level 6");
        assert_eq!(first(head(0, 4, 255)), "Go up to 1.26, level 1");
        assert_eq!(first(head(0, 2, 255)), "Go up to 1.26, level 9");
        assert!(first(head(NO_TIME_OF_KLAUSPOST, 0, 255)).starts_with("pgzip, level 6"));
        assert_eq!(first(head(1, 2, 255)), "zlib, level 9");
        assert_eq!(first(head(0, 0, 3)), "GNU gzip, level 6");
        let sorted = |head| {
            let mut codes: Vec<_> = Method::candidates(head)
                .into_iter()
                .map(Method::to_code)
                .collect();
            codes.sort_unstable();
            codes
        };
        for other in [
            head(0, 4, 255),
            head(NO_TIME_OF_KLAUSPOST, 0, 255),
            head(77, 2, 3),
            head(1, 9, 9),
        ] {
            assert_eq!(sorted(other), sorted(head(0, 0, 255)));
        }
    }

    #[test]
    fn codes_that_no_encoder_has_are_none() {
        for code in [
            [0; 5],
            [1, 6, 1, 0, 0],
            [2, 6, 0, 0, 0],
            [3, 5, 1, 0, 0],
            [4, 6, 7, 0, 0],
            [6, 6, 2, 128, 0],
            [7, 6, 0, 0, 0],
        ] {
            assert_eq!(Method::from_code(code), None, "{code:?}");
        }
    }
}
