//! zlib's deflate, and what GNU gzip and pigz share with it.
//!
//! The behaviour is that of `deflate.c` and `trees.c` of zlib (Jean-loup Gailly and Mark Adler, zlib licence), in the default strategy, with a window
//! of 32 KiB, at levels 1 to 9. Versions 1.2.11, 1.2.13, 1.3, 1.3.1 and 1.3.2 make the same streams. Forks (zlib-ng, Cloudflare's, Intel's,
//! Chromium's) make others.
//!
//! * `matcher`: a window of 64 KiB whose upper half moves down when it is full, and chains of places by a hash of three bytes;
//! * `parse`: literals and copies, chosen greedily (levels 1 to 3) or with one place of delay (4 to 9);
//! * `block` and `tree`: a block has a fixed number of tokens, which depends on the memory level; it is written in the shortest of three ways;
//! * `engine`: pieces of input, the end, cuts;
//! * `settings`: levels.
//!
//! The stream is that of an encoder which gets its input in large pieces. Small ones change the original's stream in one case only, which is rare:
//! its window moves one place earlier if a piece ends within the last 261 bytes of the window while the matcher stands exactly 262 bytes before its
//! end. Then a copy from exactly 32,506 bytes back at that place is not found, and the block before may not be stored. Sizes of the caller's output
//! buffer make no difference.
//!
//! Level 0 is not here: the lengths of its stored blocks depend on the pieces of input and on the output buffer, and a list of them tells all.

mod block;
mod engine;
mod matcher;
mod parse;
mod settings;
mod tree;
#[cfg(test)]
pub(super) mod trial;

pub(super) use block::put_stored;
pub(super) use engine::Engine;
pub(super) use settings::Settings;

use super::{Cut, Encoder, Output};

/// zlib at a level from 1 to 9.
#[derive(Debug, Clone)]
pub struct Zlib {
    engine: Engine,
}

impl Zlib {
    /// An encoder at the beginning of a stream, with a level from 1 to 9 (-1: zlib's default, 6), a memory level from 1 to 9 (zlib's default: 8),
    /// and a preset dictionary of which the last 32 KiB are used.
    pub fn new(level: i32, memory: u32, dictionary: &[u8]) -> Option<Zlib> {
        let engine = Engine::new(Settings::zlib(level, memory)?, dictionary);
        Some(Zlib { engine })
    }

    /// Goes on at a cut.
    pub fn resume(level: i32, memory: u32, history: &[u8], cut: &Cut) -> Option<Zlib> {
        let engine = Engine::resume(Settings::zlib(level, memory)?, None, history, cut)?;
        Some(Zlib { engine })
    }
}

impl Encoder for Zlib {
    fn write(&mut self, plain: &[u8], output: &mut Output) {
        self.engine.write(plain, output);
    }

    fn flush(&mut self, output: &mut Output) {
        self.engine.end_block(output);
        put_stored(&[], false, &mut output.bits);
        output.end_of_block(self.engine.plain(), || Some(self.engine.state()));
    }

    fn finish(&mut self, output: &mut Output) {
        self.engine.finish(output);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use xebec_testkit::corpus;

    /// Level, memory level and digest of each line of the golden table for a corpus.
    fn golden(how: &str, corpus: &str) -> Vec<(i32, u32, trial::Digest)> {
        let lines = trial::golden(include_str!("../../../golden/zlib.txt"), &[(0, how), (3, corpus)]);
        lines
            .into_iter()
            .map(|(fields, digest)| (fields[1].parse().unwrap(), fields[2].parse().unwrap(), digest))
            .collect()
    }

    fn streams_are_those_of_zlib(of_memory: u32) {
        for name in corpus::NAMES {
            let plain = corpus::bytes(name);
            let lines = golden("whole", name);
            assert_eq!(lines.len(), 18);
            for (level, memory, wanted) in lines {
                if memory != of_memory {
                    continue;
                }
                let encoder = Zlib::new(level, memory, &[]).unwrap();
                let stream = trial::stream(encoder, &plain, level as u64);
                assert_eq!(
                    trial::digest(&stream),
                    wanted,
                    "{name}, level {level}, memory level {memory}"
                );
            }
        }
    }

    #[test]
    fn streams_at_memory_level_8_are_those_of_zlib() {
        streams_are_those_of_zlib(8);
    }

    #[test]
    fn streams_at_memory_level_9_are_those_of_zlib() {
        streams_are_those_of_zlib(9);
    }

    /// Of the other cases, not all corpora are in the table.
    #[test]
    fn there_are_streams_with_a_dictionary_and_flushed_ones() {
        for how in ["primed", "flushed"] {
            let lines = corpus::NAMES.map(|name| golden(how, name).len());
            assert_eq!(lines.iter().sum::<usize>(), 6 * 9);
        }
    }

    #[test]
    fn streams_with_a_dictionary_are_those_of_zlib() {
        for name in corpus::NAMES {
            let plain = corpus::bytes(name);
            for (level, memory, wanted) in golden("primed", name) {
                let encoder = Zlib::new(level, memory, &plain[plain.len().saturating_sub(40_000)..]).unwrap();
                let stream = trial::stream(encoder, &plain, level as u64);
                assert_eq!(trial::digest(&stream), wanted, "{name}, level {level}");
            }
        }
    }

    #[test]
    fn flushed_streams_are_those_of_zlib() {
        let pieces = [1, 2, 3, 70_000, 100, 131_072, 5, 33_000, 262, 261];
        for name in corpus::NAMES {
            let plain = corpus::bytes(name);
            for (level, memory, wanted) in golden("flushed", name) {
                let mut encoder = Zlib::new(level, memory, &[]).unwrap();
                let mut output = Output::default();
                let mut rest = plain.as_slice();
                for piece in pieces.into_iter().cycle() {
                    let (piece, after) = rest.split_at(piece.min(rest.len()));
                    if piece.is_empty() {
                        break;
                    }
                    encoder.write(piece, &mut output);
                    encoder.flush(&mut output);
                    rest = after;
                }
                encoder.finish(&mut output);
                assert_eq!(
                    trial::digest(output.bits.bytes()),
                    wanted,
                    "{name}, level {level}"
                );
            }
        }
    }

    #[test]
    fn the_default_is_level_6() {
        let plain = corpus::bytes("records");
        let stream = |level| trial::stream(Zlib::new(level, 8, &[]).unwrap(), &plain, 1);
        assert!(stream(-1) == stream(6));
        assert!(
            Zlib::new(0, 8, &[]).is_none()
                && Zlib::new(10, 8, &[]).is_none()
                && Zlib::new(6, 10, &[]).is_none()
        );
    }

    /// How many cuts can be resumed, and how many not.
    fn resumed(level: i32, corpus: &str, history: usize) -> (usize, usize) {
        let plain = corpus::bytes(corpus);
        let encoder = Zlib::new(level, 8, &[]).unwrap();
        let resume = |history: &[u8], cut: &Cut| Zlib::resume(level, 8, history, cut);
        trial::resumed(encoder, resume, &plain, 256 << 10, history)
    }

    #[test]
    fn a_window_of_history_is_enough_from_level_4_on() {
        for level in 4..=9 {
            for name in ["text", "records", "two", "tar"] {
                let (_, bad) = resumed(level, name, 32 << 10);
                assert_eq!(bad, 0, "{name}, level {level}");
            }
            assert!(resumed(level, "tar", 32 << 10).0 > 10, "level {level}");
        }
    }

    #[test]
    fn a_mebibyte_of_history_is_enough_up_to_level_3() {
        for level in 1..=3 {
            for name in ["text", "records"] {
                let (good, bad) = resumed(level, name, 1 << 20);
                assert!(
                    good > 4 && bad == 0,
                    "{name}, level {level}: {good} good, {bad} bad"
                );
            }
        }
    }

    #[test]
    fn an_end_of_input_is_a_cut_as_well() {
        let plain = corpus::bytes("records");
        for level in [1, 3, 6] {
            let mut encoder = Zlib::new(level, 8, &[]).unwrap();
            let mut output = Output::default();
            encoder.write(&plain[..500_000], &mut output);
            output.wanted = Some(500_000);
            encoder.flush(&mut output);
            let cut = output.cut.take().unwrap();
            assert_eq!((cut.plain, cut.bit % 8), (500_000, 0));
            let mut resumed = Zlib::resume(level, 8, &plain[..500_000], &cut).unwrap();
            let mut rest = Output::default();
            output.bits.take();
            encoder.write(&plain[500_000..], &mut output);
            encoder.finish(&mut output);
            resumed.write(&plain[500_000..], &mut rest);
            resumed.finish(&mut rest);
            assert!(output.bits.bytes() == rest.bits.bytes(), "level {level}");
        }
    }

    proptest! {
        /// A cut may come from a file that is damaged.
        #[test]
        fn no_cut_makes_an_encoder_panic(level in 1..=9, plain in 0..200_000_u64, offset in 0..70_000_u64, length in 0..300_u64,
                                         distance in 0..40_000_u64, history in 0..100_000_usize, more in 0..100_000_usize) {
            let bytes = corpus::bytes("records");
            let cut = Cut { plain, bit: 0, state: vec![offset, length, distance] };
            if let Some(mut encoder) = Zlib::resume(level, 8, &bytes[..history], &cut) {
                let mut output = Output::default();
                encoder.write(&bytes[history..history + more], &mut output);
                encoder.finish(&mut output);
            }
        }
    }
}
