//! GNU gzip's own deflate.
//!
//! The behaviour is that of `deflate.c` and `trees.c` of gzip 1.12 (Jean-loup Gailly and others, GNU GPL; Debian 12's `gzip`), at levels 1 to 9
//! without `--rsyncable`. It shares matcher, levels and codes with zlib, which descends from it, and differs in this:
//!
//! * A block has up to 32,767 tokens, but hashes have 15 bits. From level 3 on, each 4,096 tokens it ends early if it seems to compress well.
//! * A search does not stop at the end of the input: it compares what is in the window behind it, two zeros and then bytes of an earlier turn, and
//!   only then cuts the copy. So another one of the possible copies may be taken.
//! * The window moves once at most after the end of the input was noticed. At its last 261 places nothing is searched for.
//!
//! The stream is that of gzip reading a file. From a pipe it may differ in the case that [`super::zlib`] names. There is no dictionary, and no
//! flush.

use super::zlib::{Engine, Settings, put_stored};
use super::{Cut, Encoder, Output};

/// GNU gzip at a level from 1 to 9.
#[derive(Debug, Clone)]
pub struct GnuGzip {
    engine: Engine,
}

impl GnuGzip {
    /// An encoder at the beginning of a stream.
    pub fn new(level: i32) -> Option<GnuGzip> {
        let engine = Engine::new(Settings::gzip(level)?, &[]);
        Some(GnuGzip { engine })
    }

    /// Goes on at a cut. There are 32 KiB of history at least, or all.
    pub fn resume(level: i32, history: &[u8], cut: &Cut) -> Option<GnuGzip> {
        let engine = Engine::resume(Settings::gzip(level)?, None, history, cut)?;
        Some(GnuGzip { engine })
    }
}

impl Encoder for GnuGzip {
    fn write(&mut self, plain: &[u8], output: &mut Output) {
        self.engine.write(plain, output);
    }

    /// gzip never does this. It is done as zlib does it.
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
    use crate::encoders::zlib::trial;
    use xebec_bitstream::BitWriter;
    use xebec_testkit::corpus;

    #[test]
    fn streams_are_those_of_gzip() {
        for name in corpus::NAMES {
            let plain = corpus::bytes(name);
            let lines = trial::golden(include_str!("../../golden/gnu_gzip.txt"), &[(1, name)]);
            assert!(lines.len() >= 9);
            for (fields, wanted) in lines {
                let level = fields[0].parse().unwrap();
                let plain = &plain[..fields[2].parse().unwrap_or(plain.len())];
                let stream = trial::stream(GnuGzip::new(level).unwrap(), plain, level as u64);
                assert_eq!(trial::digest(&stream), wanted, "{fields:?}");
            }
        }
    }

    #[test]
    fn a_window_of_history_is_enough_from_level_4_on() {
        for level in [4, 6, 9] {
            let resume = |history: &[u8], cut: &Cut| GnuGzip::resume(level, history, cut);
            for name in ["text", "records", "two", "tar"] {
                let encoder = GnuGzip::new(level).unwrap();
                let (_, bad) = trial::resumed(encoder, resume, &corpus::bytes(name), 256 << 10, 32 << 10);
                assert_eq!(bad, 0, "{name}, level {level}");
            }
        }
    }

    #[test]
    fn bytes_behind_the_end_are_there_after_resuming() {
        // gzip puts two zeros behind the end, so only copies with zeros in them reach what is behind those.
        let mut bytes = corpus::bytes("random")[..25_000].to_vec();
        bytes.extend(corpus::bytes("two").into_iter().map(|digit| digit - b'0'));
        for level in [2, 3, 6] {
            let mut encoder = GnuGzip::new(level).unwrap();
            let mut output = Output {
                wanted: Some(1),
                ..Output::default()
            };
            encoder.write(&bytes, &mut output);
            let cut = output.cut.take().unwrap();
            let (before, after) = bytes.split_at(cut.plain as usize);
            let byte = (cut.bit / 8) as usize;
            // The end comes soon after the cut, so no slide of the window fills in what the resumed encoder lacks.
            for length in (300..20_000).step_by(337) {
                let stream = trial::stream(GnuGzip::new(level).unwrap(), &bytes[..before.len() + length], 1);
                let mut resumed = GnuGzip::resume(level, before, &cut).unwrap();
                let mut rest = Output {
                    bits: BitWriter::resume(cut.bit, stream[byte]),
                    ..Output::default()
                };
                resumed.write(&after[..length], &mut rest);
                resumed.finish(&mut rest);
                assert!(stream[byte..] == *rest.bits.bytes(), "{length}, level {level}");
            }
        }
    }

    proptest! {
        /// A cut may come from a file that is damaged.
        #[test]
        fn no_cut_makes_an_encoder_panic(level in 1..=9, plain in 0..200_000_u64, offset in 0..70_000_u64, length in 0..300_u64,
                                         distance in 0..40_000_u64, history in 0..100_000_usize, more in 0..100_000_usize) {
            let bytes = corpus::bytes("records");
            let cut = Cut { plain, bit: 0, state: vec![offset, length, distance] };
            if let Some(mut encoder) = GnuGzip::resume(level, &bytes[..history], &cut) {
                let mut output = Output::default();
                encoder.write(&bytes[history..history + more], &mut output);
                encoder.finish(&mut output);
            }
        }
    }
}
