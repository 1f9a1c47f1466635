//! pigz: zlib's deflate in blocks of input, each of which ends at a byte.
//!
//! The behaviour is that of `pigz.c` of pigz 2.6 (Mark Adler, zlib licence; Debian 12's `pigz`), with zlib 1.2.6 or newer, at levels 1 to 9,
//! without `-H`, `-U`, `-i` and `-R`. With several threads (`-p 2` or more, however many), each block of 128 KiB (`-b`) is made by a new encoder
//! whose dictionary is the 32 KiB of plain bytes before it. With one thread (`-p 1`), one encoder makes all blocks. From level 4 on, the two are
//! the same as a rule.
//!
//! After each block but the last, zlib's block ends. If the bits of a byte that are used then are an odd number, an empty stored block follows; if
//! even, as many empty blocks in the fixed code, ten bits each, as fill the byte.

use super::zlib::{Engine, Settings, put_stored};
use super::{Cut, Encoder, Output};

/// Bytes of a block, if nothing else is asked for.
pub const BLOCK: usize = 128 << 10;
/// Blocks are a multiple of this, and `SMALLEST_BLOCK` at least.
const BLOCK_STEP: usize = 1 << 10;
const SMALLEST_BLOCK: usize = 32 << 10;

/// Options of pigz.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// From 1 to 9, or -1 (6).
    pub level: i32,
    /// Bytes of a block: a multiple of 1024, 32 KiB at least.
    pub block: usize,
    /// Whether there are several threads.
    pub is_parallel: bool,
}

/// pigz at work on one stream.
#[derive(Debug, Clone)]
pub struct Pigz {
    engine: Engine,
    options: Options,
    /// Bytes of the block so far.
    in_block: usize,
}

impl Options {
    fn settings(self) -> Option<Settings> {
        if self.block < SMALLEST_BLOCK || !self.block.is_multiple_of(BLOCK_STEP) {
            return None;
        }
        Settings::zlib(self.level, 8)
    }
}

impl Pigz {
    /// An encoder at the beginning of a stream.
    pub fn new(options: Options) -> Option<Pigz> {
        Some(Pigz {
            engine: Engine::new(options.settings()?, &[]),
            options,
            in_block: 0,
        })
    }

    /// Goes on at a cut.
    pub fn resume(options: Options, history: &[u8], cut: &Cut) -> Option<Pigz> {
        let settings = options.settings()?;
        let block = options.block as u64;
        let in_block = match (cut.plain % block, cut.state.len()) {
            // zlib's block ended where pigz' does, which has not been ended yet.
            (0, 3) => options.block,
            (in_block, _) => in_block as usize,
        };
        let engine = if options.is_parallel {
            if in_block != 0 {
                return None;
            }
            Engine::new_at(settings, history, cut.plain)
        } else {
            let state = cut.state.get(..3)?.to_vec();
            let inner = Cut { state, ..*cut };
            Engine::resume(settings, Some(block), history, &inner)?
        };
        Some(Pigz {
            engine,
            options,
            in_block,
        })
    }

    fn end_block(&mut self, output: &mut Output) {
        self.engine.end_block(output);
        if output.bits.position() % 2 == 1 {
            put_stored(&[], false, &mut output.bits);
        }
        while !output.bits.position().is_multiple_of(8) {
            // An empty block in the fixed code: three bits say so, seven end it.
            output.bits.put(0b010, 10);
        }
        self.in_block = 0;
        if self.options.is_parallel {
            self.engine.restart();
        }
    }

    fn offer_cut(&self, output: &mut Output) {
        output.end_of_block(self.engine.plain(), || {
            if self.options.is_parallel {
                return Some(Vec::new());
            }
            let mut state = self.engine.state();
            state.push(1);
            Some(state)
        });
    }
}

impl Encoder for Pigz {
    fn write(&mut self, mut plain: &[u8], output: &mut Output) {
        while !plain.is_empty() {
            if self.in_block == self.options.block {
                self.end_block(output);
                self.offer_cut(output);
            }
            let (piece, rest) = plain.split_at(plain.len().min(self.options.block - self.in_block));
            // Cuts within a block of a parallel encoder would have to tell how much of it came before.
            let wanted = output.wanted.take_if(|_| self.options.is_parallel);
            self.engine.write(piece, output);
            output.wanted = output.wanted.or(wanted);
            self.in_block += piece.len();
            plain = rest;
        }
    }

    /// pigz never does this. It is done as zlib does it.
    fn flush(&mut self, output: &mut Output) {
        self.engine.end_block(output);
        put_stored(&[], false, &mut output.bits);
    }

    fn finish(&mut self, output: &mut Output) {
        self.engine.finish(output);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::encoders::zlib::trial;
    use xebec_testkit::corpus;

    #[test]
    fn streams_are_those_of_pigz() {
        for name in corpus::NAMES {
            let plain = corpus::bytes(name);
            let lines = trial::golden(include_str!("../../golden/pigz.txt"), &[(3, name)]);
            assert!(lines.len() >= 18);
            for (fields, wanted) in lines {
                let options = Options {
                    level: fields[2].parse().unwrap(),
                    block: 1024 * fields[1].parse::<usize>().unwrap(),
                    is_parallel: fields[0] != "1",
                };
                let stream = trial::stream(Pigz::new(options).unwrap(), &plain, options.level as u64);
                assert_eq!(trial::digest(&stream), wanted, "{name}, {options:?}");
            }
        }
    }

    /// How many cuts can be resumed, and how many not.
    fn resumed(level: i32, is_parallel: bool, corpus: &str, history: usize) -> (usize, usize) {
        let options = Options {
            level,
            block: BLOCK,
            is_parallel,
        };
        let resume = |history: &[u8], cut: &Cut| Pigz::resume(options, history, cut);
        trial::resumed(
            Pigz::new(options).unwrap(),
            resume,
            &corpus::bytes(corpus),
            256 << 10,
            history,
        )
    }

    #[test]
    fn a_parallel_one_is_resumed_at_each_block() {
        for level in [1, 3, 6] {
            assert_eq!(resumed(level, true, "tar", 32 << 10), (22, 0), "level {level}");
            assert_eq!(resumed(level, true, "zeros", 32 << 10), (19, 0), "level {level}");
        }
    }

    #[test]
    fn one_with_one_thread_is_resumed_as_zlib_is() {
        for (level, history) in [(6, 32 << 10), (9, 32 << 10), (1, 1 << 20), (3, 1 << 20)] {
            let (good, bad) = resumed(level, false, "records", history);
            assert!(good > 5 && bad == 0, "level {level}: {good} good, {bad} bad");
            assert_eq!(resumed(level, false, "zeros", history).1, 0, "level {level}");
        }
    }

    #[test]
    fn block_sizes_that_pigz_does_not_take_are_refused() {
        let options = |block| Options {
            level: 6,
            block,
            is_parallel: true,
        };
        assert!(Pigz::new(options(31 << 10)).is_none() && Pigz::new(options((32 << 10) + 1)).is_none());
        assert!(Pigz::new(options(32 << 10)).is_some());
    }

    proptest! {
        /// A cut may come from a file that is damaged.
        #[test]
        fn no_cut_makes_an_encoder_panic(level in 1..=9, plain in 0..200_000_u64, offset in 0..70_000_u64, length in 0..300_u64,
                                         distance in 0..40_000_u64, history in 0..100_000_usize, more in 0..100_000_usize) {
            let bytes = corpus::bytes("records");
            let cut = Cut { plain, bit: 0, state: vec![offset, length, distance] };
            let options = Options { level, block: 32 << 10, is_parallel: false };
            if let Some(mut encoder) = Pigz::resume(options, &bytes[..history], &cut) {
                let mut output = Output::default();
                encoder.write(&bytes[history..history + more], &mut output);
                encoder.finish(&mut output);
            }
        }
    }
}
