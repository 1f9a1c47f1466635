//! Compares with what the real encoders wrote, and resumes at cuts.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::generation::Generation;
use super::pgzip::Pgzip;
use super::stream::Klauspost;
use crate::encoders::{Cut, Encoder, Output};
use xebec_bitstream::BitWriter;
use xebec_testkit::corpus::{self, Numbers};

const GOLDEN: &str = include_str!("../../../golden/klauspost.txt");
/// As in the program that made the table.
const FLUSHES: [usize; 18] = [
    1, 32, 33, 127, 128, 300, 0, 5_000, 65_535, 70_000, 12, 65_274, 262, 65_273, 200_000, 32_506, 16_384,
    16_385,
];
const SMALL_BLOCK: usize = 100_000;

fn generation_of(version: &str) -> Generation {
    let (name, version) = version.split_once('-').unwrap_or(("", version));
    let numbers: Vec<u32> = version.split('.').map(|number| number.parse().unwrap()).collect();
    let generations = [
        (vec![1, 20, 0], Generation::V1_20_0),
        (vec![1, 18, 1], Generation::V1_18_1),
        (vec![1, 18, 0], Generation::V1_18_0),
        (vec![1, 15, 15], Generation::V1_15_15),
        (vec![1, 15, 11], Generation::V1_15_11),
        (vec![1, 15, 1], Generation::V1_15_1),
        (vec![1, 14, 4], Generation::V1_14_4),
        (vec![1, 12, 3], Generation::V1_12_3),
        (vec![1, 11, 13], Generation::V1_11_13),
        (vec![1, 11, 3], Generation::V1_11_3),
    ];
    let of_version = generations
        .iter()
        .find(|(first, _)| numbers >= *first)
        .map(|(_, generation)| *generation);
    if name == "go" {
        Generation::V1_20_0
    } else {
        of_version.unwrap()
    }
}

fn dictionary() -> Vec<u8> {
    (0..20_000_usize)
        .flat_map(|index| {
            [
                b"a dictionary of many words, 0000"[index % 31],
                (index * index / 777) as u8,
            ]
        })
        .collect()
}

fn encoder_of(how: &str, level: i8, generation: Generation) -> Box<dyn Encoder> {
    match how {
        "pgzip" => Box::new(Pgzip::new(level, generation, Pgzip::BLOCK_SIZE).unwrap()),
        "pgzip-small" => Box::new(Pgzip::new(level, generation, SMALL_BLOCK).unwrap()),
        "dictionary" => Box::new(Klauspost::new(level, generation, &dictionary()).unwrap()),
        _ => Box::new(Klauspost::new(level, generation, &[]).unwrap()),
    }
}

/// Compresses as the program that made the table, in pieces of any size.
fn compress(
    how: &str,
    level: i8,
    generation: Generation,
    mut plain: &[u8],
    numbers: &mut Numbers,
) -> Vec<u8> {
    let mut encoder = encoder_of(how, level, generation);
    let mut output = Output::default();
    let mut write = |encoder: &mut Box<dyn Encoder>, mut plain: &[u8], output: &mut Output| {
        while !plain.is_empty() {
            let limit = [20, 2_000, 300_000][numbers.below(3)];
            let piece = plain.len().min(1 + numbers.below(limit));
            encoder.write(&plain[..piece], output);
            plain = &plain[piece..];
        }
    };
    for (round, &flush) in FLUSHES.iter().cycle().enumerate() {
        if plain.is_empty() || !matches!(how, "flushed" | "pgzip-small") {
            break;
        }
        let (piece, rest) = plain.split_at(flush.min(plain.len()));
        write(&mut encoder, piece, &mut output);
        plain = rest;
        if how == "flushed" || round % 7 == 0 {
            encoder.flush(&mut output);
        }
    }
    write(&mut encoder, plain, &mut output);
    encoder.finish(&mut output);
    output.bits.take()
}

/// Compares all lines of the table of one of these ways with what the encoder makes.
fn compare(ways: &[&str], levels: std::ops::RangeInclusive<i8>) {
    let mut corpora = BTreeMap::new();
    let mut numbers = Numbers(1);
    let mut lines = 0;
    let mut wrong = Vec::new();
    for line in GOLDEN.lines().filter(|line| !line.starts_with('#')) {
        let [version, how, level, corpus, length, digest] =
            line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let level: i8 = level.parse().unwrap();
        if !ways.contains(&how) || !levels.contains(&level) {
            continue;
        }
        let plain = corpora.entry(corpus).or_insert_with(|| corpus::bytes(corpus));
        let made = compress(how, level, generation_of(version), plain, &mut numbers);
        if made.len().to_string() != length || hex::encode(Sha256::digest(&made)) != digest {
            wrong.push(format!(
                "{version} {how} {level} {corpus}: {} bytes instead of {length}",
                made.len()
            ));
        }
        lines += 1;
    }
    assert!(lines > 0);
    assert!(
        wrong.is_empty(),
        "{} of {lines}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn without_copies_the_stream_is_that_of_the_real_encoder() {
    compare(&["whole", "flushed", "dictionary"], -2..=0);
}

#[test]
fn quick_levels_write_what_the_real_encoder_writes() {
    compare(&["whole", "flushed", "dictionary"], 1..=6);
}

#[test]
fn lazy_levels_write_what_the_real_encoder_writes() {
    compare(&["whole", "flushed", "dictionary"], 7..=9);
}

#[test]
fn pgzip_writes_what_the_real_one_writes() {
    compare(&["pgzip", "pgzip-small"], -2..=9);
}

/// How far apart cuts are wanted.
const APART: u64 = 256 << 10;

/// Writes bytes until a cut is made. Returns it, or the end of the stream.
fn until_cut(encoder: &mut dyn Encoder, plain: &[u8], first: u64, output: &mut Output) -> Option<Cut> {
    output.wanted = Some(first + APART);
    for piece in plain[first as usize..].chunks(4096) {
        encoder.write(piece, output);
        if let Some(cut) = output.cut.take() {
            return Some(cut);
        }
    }
    encoder.finish(output);
    output.cut.take()
}

/// The whole stream, and all cuts.
fn with_cuts(encoder: &mut dyn Encoder, plain: &[u8]) -> (Vec<u8>, Vec<Cut>) {
    let mut output = Output {
        wanted: Some(APART),
        ..Output::default()
    };
    let mut cuts = Vec::new();
    for piece in plain.chunks(4096) {
        encoder.write(piece, &mut output);
        if let Some(cut) = output.cut.take() {
            output.wanted = Some(cut.plain + APART);
            cuts.push(cut);
        }
    }
    encoder.finish(&mut output);
    cuts.extend(output.cut.take());
    (output.bits.take(), cuts)
}

/// Whether a resumed encoder writes the same up to the next cut.
fn goes_on(encoder: &mut dyn Encoder, plain: &[u8], stream: &[u8], cut: &Cut, next: Option<&Cut>) -> bool {
    let byte = (cut.bit / 8) as usize;
    let mut output = Output {
        bits: BitWriter::resume(cut.bit, stream.get(byte).copied().unwrap_or(0)),
        ..Output::default()
    };
    let made = until_cut(encoder, plain, cut.plain, &mut output);
    let end = next.map_or(stream.len(), |next| (next.bit / 8) as usize);
    let bytes = output.bits.take();
    made.as_ref() == next && bytes.get(..end - byte) == stream.get(byte..end)
}

/// How many of the cuts of all corpora a resumed encoder goes on at, with so many KiB of history, and how many there are.
fn resumable(level: i8, generation: Generation, history: usize) -> (usize, usize) {
    let (mut good, mut all) = (0, 0);
    for corpus in corpus::NAMES {
        let plain = corpus::bytes(corpus);
        let (stream, cuts) = with_cuts(&mut Klauspost::new(level, generation, &[]).unwrap(), &plain);
        for (index, cut) in cuts.iter().enumerate() {
            let before = &plain[..cut.plain as usize];
            let before = &before[before.len().saturating_sub(history << 10)..];
            let mut encoder = Klauspost::resume(level, generation, before, cut).unwrap();
            good += usize::from(goes_on(&mut encoder, &plain, &stream, cut, cuts.get(index + 1)));
            all += 1;
        }
    }
    (good, all)
}

#[test]
fn the_window_is_enough_to_go_on_at_levels_that_fill_in_each_place() {
    for level in [-2, 0, 7, 8, 9] {
        let (good, all) = resumable(level, Generation::V1_20_0, 32);
        assert!(good == all && all > 20, "level {level}: {good} of {all}");
    }
}

#[test]
fn quick_levels_go_on_nearly_always_after_some_batches() {
    let newest = (1..=6).map(|level| (level, Generation::V1_20_0));
    let older = [Generation::V1_11_3, Generation::V1_12_3, Generation::V1_15_11];
    for (level, generation) in newest.chain(older.map(|generation| (5, generation))) {
        let (good, all) = resumable(level, generation, 256);
        assert!(
            10 * good >= 9 * all && all > 20,
            "level {level} of {generation:?}: {good} of {all}"
        );
    }
}

#[test]
fn pgzip_goes_on_after_each_block() {
    let plain = corpus::bytes("tar");
    for (level, block) in [(5, Pgzip::BLOCK_SIZE), (1, 300_000), (9, Pgzip::BLOCK_SIZE)] {
        let create = || Pgzip::new(level, Generation::V1_18_1, block).unwrap();
        let (stream, cuts) = with_cuts(&mut create(), &plain);
        assert_eq!(cuts.len(), plain.len() / block);
        for (index, cut) in cuts.iter().enumerate() {
            let before = &plain[..cut.plain as usize];
            let before = &before[before.len() - (16 << 10)..];
            let mut encoder = Pgzip::resume(level, Generation::V1_18_1, block, before, cut).unwrap();
            assert!(goes_on(&mut encoder, &plain, &stream, cut, cuts.get(index + 1)));
        }
        assert!(Pgzip::resume(level, Generation::V1_18_1, block, &plain[..100], &cuts[0]).is_none());
    }
}

#[test]
fn a_short_block_of_pgzip_is_no_dictionary() {
    let plain = corpus::bytes("text");
    let mut encoder = Pgzip::new(5, Generation::V1_18_1, SMALL_BLOCK).unwrap();
    let mut output = Output {
        wanted: Some(0),
        ..Output::default()
    };
    encoder.write(&plain[..9_000], &mut output);
    encoder.flush(&mut output);
    let cut = output.cut.take().unwrap();
    encoder.write(&plain[9_000..], &mut output);
    encoder.finish(&mut output);
    let stream = output.bits.take();
    let mut again = Pgzip::resume(5, Generation::V1_18_1, SMALL_BLOCK, &[], &cut).unwrap();
    let mut output = Output {
        bits: BitWriter::resume(cut.bit, 0),
        ..Output::default()
    };
    again.write(&plain[9_000..], &mut output);
    again.finish(&mut output);
    assert_eq!(output.bits.bytes(), &stream[(cut.bit / 8) as usize..]);
}

#[test]
fn a_cut_that_was_made_up_does_no_harm() {
    let plain = corpus::bytes("text");
    let mut numbers = Numbers(2);
    for round in 0..3_000 {
        let level = [1, 4, 5, 6, 7, 8, 9][round % 7];
        let mut number = || match numbers.below(6) {
            0 => numbers.next(),
            1 => numbers.below(400_000) as u64,
            2 => numbers.below(66_000) as u64,
            3 => 65_000 + numbers.below(540) as u64,
            _ => numbers.below(300) as u64,
        };
        let cut = Cut {
            plain: number() >> 1,
            bit: 8,
            state: (0..8)
                .map(|index| if index == 0 { number() % 5 } else { number() })
                .collect(),
        };
        let history = &plain[..numbers.below(70_000)];
        if let Some(mut encoder) = Klauspost::resume(level, Generation::V1_20_0, history, &cut) {
            let mut output = Output::default();
            encoder.write(&plain[..numbers.below(300) * numbers.below(300)], &mut output);
            encoder.flush(&mut output);
            encoder.finish(&mut output);
        }
    }
}
