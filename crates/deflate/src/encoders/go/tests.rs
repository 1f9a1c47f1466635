use std::collections::HashMap;

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use xebec_bitstream::BitWriter;
use xebec_testkit::corpus;

/// As in `golden/go/main.go`.
const FLUSHES: [usize; 17] = [
    1, 16, 17, 127, 128, 300, 0, 5_000, 65_535, 70_000, 3, 65_274, 262, 65_273, 200_000, 32_506, 2,
];
const LEVELS: std::ops::RangeInclusive<i8> = -2..=9;

fn whole(level: i8, plain: &[u8]) -> Vec<u8> {
    let mut encoder = Go::new(level).unwrap();
    let mut output = Output::default();
    encoder.write(plain, &mut output);
    encoder.finish(&mut output);
    output.bits.take()
}

fn flushed(level: i8, mut plain: &[u8]) -> Vec<u8> {
    let mut encoder = Go::new(level).unwrap();
    let mut output = Output::default();
    for length in FLUSHES.iter().cycle() {
        if plain.is_empty() {
            break;
        }
        let (piece, rest) = plain.split_at((*length).min(plain.len()));
        encoder.write(piece, &mut output);
        encoder.flush(&mut output);
        plain = rest;
    }
    encoder.finish(&mut output);
    output.bits.take()
}

/// The lines of the golden table, each as level, corpus, whether it was flushed, and length and digest.
fn golden() -> Vec<(i8, &'static str, bool, String)> {
    let lines = include_str!("../../../golden/go.txt").lines().skip(1);
    let line = |line: &'static str| {
        let [level, corpus, how, length, digest] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        (
            level.parse().unwrap(),
            corpus,
            how == "flushed",
            format!("{length} {digest}"),
        )
    };
    lines.map(line).collect()
}

fn compare_with_golden(levels: std::ops::RangeInclusive<i8>) {
    let corpora: HashMap<&str, Vec<u8>> = corpus::NAMES
        .iter()
        .map(|name| (*name, corpus::bytes(name)))
        .collect();
    let mut compared = 0;
    for (level, corpus, is_flushed, expected) in golden() {
        if levels.contains(&level) {
            let plain = &corpora[corpus];
            let made = if is_flushed {
                flushed(level, plain)
            } else {
                whole(level, plain)
            };
            let digest = format!("{} {}", made.len(), hex::encode(Sha256::digest(&made)));
            assert_eq!(digest, expected, "level {level}, {corpus}, flushed: {is_flushed}");
            compared += 1;
        }
    }
    assert!(compared >= levels.count() * corpus::NAMES.len());
}

#[test]
fn low_levels_write_as_go_does() {
    compare_with_golden(-2..=3);
}

#[test]
fn middle_levels_write_as_go_does() {
    compare_with_golden(4..=7);
}

#[test]
fn high_levels_write_as_go_does() {
    compare_with_golden(8..=9);
}

#[test]
fn other_levels_are_none() {
    assert!(Go::new(-3).is_none());
    assert!(Go::new(10).is_none());
}

#[test]
fn sizes_of_pieces_make_no_difference() {
    let mut numbers = corpus::Numbers(3);
    for name in ["text", "records", "random"] {
        let plain = &corpus::bytes(name)[..300_000];
        for level in LEVELS {
            let mut encoder = Go::new(level).unwrap();
            let mut output = Output::default();
            let mut rest = plain;
            let mut stream = Vec::new();
            while !rest.is_empty() {
                let most = [2, 300, 70_000][numbers.below(3)];
                let (piece, other) = rest.split_at(numbers.below(most).min(rest.len()));
                encoder.write(piece, &mut output);
                stream.extend(output.bits.take());
                rest = other;
            }
            encoder.finish(&mut output);
            stream.extend(output.bits.take());
            assert!(stream == whole(level, plain), "level {level}, {name}");
        }
    }
}

/// A stream with its cuts. A cut was wanted after each so many bytes.
fn with_cuts(level: i8, plain: &[u8], each: u64) -> (Vec<u8>, Vec<Cut>) {
    let mut encoder = Go::new(level).unwrap();
    let mut output = Output {
        wanted: Some(each),
        ..Output::default()
    };
    let mut cuts: Vec<Cut> = Vec::new();
    for piece in plain.chunks(10_000) {
        encoder.write(piece, &mut output);
        if let Some(cut) = output.cut.take() {
            output.wanted = Some(cut.plain + each);
            cuts.push(cut);
        }
    }
    output.wanted = None;
    encoder.finish(&mut output);
    (output.bits.take(), cuts)
}

/// Whether an encoder that is resumed at the cut, with so many bytes of history, writes the same up to the next cut or to the end.
fn goes_on(level: i8, plain: &[u8], stream: &[u8], cut: &Cut, next: Option<&Cut>, history: usize) -> bool {
    let at = cut.plain as usize;
    let mut encoder = Go::resume(level, &plain[at.saturating_sub(history)..at], cut).unwrap();
    let byte = (cut.bit / 8) as usize;
    let partial = stream[byte] & ((1 << (cut.bit % 8)) - 1);
    let mut output = Output {
        bits: BitWriter::resume(cut.bit, partial),
        wanted: next.map(|next| next.plain),
        ..Output::default()
    };
    for piece in plain[at..].chunks(9_000) {
        encoder.write(piece, &mut output);
        if let Some(made) = &output.cut {
            let end = (made.bit / 8) as usize;
            return Some(made) == next && output.bits.bytes()[..end - byte] == stream[byte..end];
        }
    }
    encoder.finish(&mut output);
    next.is_none() && output.bits.bytes() == &stream[byte..]
}

/// How many cuts there are, and at how many of them the encoder goes on.
fn resumed(level: i8, name: &str, history: usize) -> (usize, usize) {
    let plain = corpus::bytes(name);
    let (stream, cuts) = with_cuts(level, &plain, 256 << 10);
    let good = (0..cuts.len())
        .filter(|&place| goes_on(level, &plain, &stream, &cuts[place], cuts.get(place + 1), history))
        .count();
    (cuts.len(), good)
}

#[test]
fn most_levels_go_on_at_each_cut_with_the_reach_of_a_copy() {
    for level in LEVELS.filter(|level| !(1..=3).contains(level)) {
        for name in ["text", "records", "zeros"] {
            let (cuts, good) = resumed(level, name, 32 << 10);
            assert_eq!(cuts, good, "level {level}, {name}");
            assert!(cuts > 0, "level {level}, {name}");
        }
    }
}

#[test]
fn the_other_levels_go_on_with_more_history() {
    for level in 1..=3 {
        let (cuts, good) = resumed(level, "records", 256 << 10);
        assert_eq!((cuts, good), (6, 6), "level {level}");
    }
}

/// Writes `plain` from `at` on, with flushes at these places, and the end; tells of each cut, with the number of flushes before it.
fn write_flushed(
    encoder: &mut Go,
    output: &mut Output,
    plain: &[u8],
    mut at: usize,
    flushes: &[usize],
    mut cut: impl FnMut(Cut, usize),
) {
    for (count, &flush) in flushes.iter().enumerate() {
        encoder.write(&plain[at..flush], output);
        at = flush;
        if let Some(made) = output.cut.take() {
            cut(made, count);
            output.wanted = Some(0);
        }
        encoder.flush(output);
        if let Some(made) = output.cut.take() {
            let count = count + usize::from(made.bit == output.bits.position());
            cut(made, count);
            output.wanted = Some(0);
        }
    }
    output.wanted = None;
    encoder.write(&plain[at..], output);
    encoder.finish(output);
}

#[test]
fn most_levels_go_on_between_flushes() {
    let plain = &corpus::bytes("records")[..600_000];
    let mut flushes = Vec::new();
    let mut at = 0;
    for length in FLUSHES {
        at += length;
        flushes.extend(std::iter::repeat_n(at, 1 + at % 2));
    }
    for level in LEVELS.filter(|level| !(1..=3).contains(level)) {
        let mut encoder = Go::new(level).unwrap();
        let mut output = Output {
            wanted: Some(0),
            ..Output::default()
        };
        let mut cuts = Vec::new();
        write_flushed(&mut encoder, &mut output, plain, 0, &flushes, |cut, count| {
            cuts.push((cut, count));
        });
        let stream = output.bits.take();
        assert!(cuts.len() > FLUSHES.len());
        for (cut, count) in cuts {
            let at = cut.plain as usize;
            let mut encoder = Go::resume(level, &plain[at.saturating_sub(33_000)..at], &cut).unwrap();
            let byte = (cut.bit / 8) as usize;
            let partial = stream[byte] & ((1 << (cut.bit % 8)) - 1);
            let mut output = Output {
                bits: BitWriter::resume(cut.bit, partial),
                ..Output::default()
            };
            write_flushed(&mut encoder, &mut output, plain, at, &flushes[count..], |_, _| {});
            assert!(
                output.bits.bytes() == &stream[byte..],
                "level {level}, {cut:?}, after {count} flushes"
            );
        }
    }
}

proptest! {
    #[test]
    fn any_state_is_taken_or_refused(level in LEVELS, plain in 0..200_000_u64, history in 0..70_000_usize, write in 0..70_000_usize,
                                     state in prop_oneof![
                                         prop::collection::vec(any::<u64>(), 0..8),
                                         prop::collection::vec(0..20_u64, 0..15),
                                         (0..65_540_u64, 0..2_u64, 0..260_u64, 0..32_769_u64, 0..9_u64)
                                             .prop_map(|(place, pending, length, distance, flush)| vec![place, pending, length, distance, flush]),
                                     ]) {
        let history = &corpus::bytes("two")[..history.min(plain as usize)];
        let cut = Cut { plain, bit: 0, state };
        if let Some(mut encoder) = Go::resume(level, history, &cut) {
            let mut output = Output { wanted: Some(0), ..Output::default() };
            encoder.flush(&mut output);
            encoder.write(&history[..write.min(history.len())], &mut output);
            encoder.flush(&mut output);
            encoder.write(history, &mut output);
            encoder.finish(&mut output);
        }
    }

    #[test]
    fn what_is_written_is_read(level in LEVELS, pieces in prop::collection::vec((0..60_000_usize, 0..3_000_usize, any::<bool>()), 0..20)) {
        let source = corpus::bytes("two");
        let mut encoder = Go::new(level).unwrap();
        let mut output = Output::default();
        let mut plain = Vec::new();
        for (from, length, is_flushed) in pieces {
            plain.extend_from_slice(&source[from..from + length]);
            encoder.write(&source[from..from + length], &mut output);
            if is_flushed {
                encoder.flush(&mut output);
            }
        }
        encoder.finish(&mut output);
        let mut read = Vec::new();
        let mut decoder = flate2::read::DeflateDecoder::new(output.bits.bytes());
        std::io::Read::read_to_end(&mut decoder, &mut read).unwrap();
        prop_assert!(read == plain);
    }
}
