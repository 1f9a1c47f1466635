//! Trials that zlib, GNU gzip and pigz have in common.

use sha2::{Digest as _, Sha256};

use crate::encoders::{Cut, Encoder, Output};
use xebec_bitstream::BitWriter;
use xebec_testkit::corpus::Numbers;

/// Length and SHA-256 of a stream.
pub(in crate::encoders) type Digest = (usize, String);

/// The lines of a golden table that have these values in these columns, each with the digest at its end.
pub(in crate::encoders) fn golden<'a>(
    table: &'a str,
    wanted: &[(usize, &str)],
) -> Vec<(Vec<&'a str>, Digest)> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.map(|line| line.split(' ').collect::<Vec<&str>>());
    let lines = lines.filter(|fields| wanted.iter().all(|&(column, value)| fields[column] == value));
    lines
        .map(|mut fields| {
            let digest = fields.pop().unwrap().to_owned();
            let length = fields.pop().unwrap().parse().unwrap();
            (fields, (length, digest))
        })
        .collect()
}

/// The digest of a stream.
pub(in crate::encoders) fn digest(stream: &[u8]) -> Digest {
    (stream.len(), hex::encode(Sha256::digest(stream)))
}

/// The stream that an encoder makes of plain bytes, which come in pieces of random sizes.
pub(in crate::encoders) fn stream(mut encoder: impl Encoder, plain: &[u8], seed: u64) -> Vec<u8> {
    let mut output = Output::default();
    write_in_pieces(&mut encoder, plain, seed, &mut output);
    encoder.finish(&mut output);
    output.bits.take()
}

fn write_in_pieces(encoder: &mut impl Encoder, mut plain: &[u8], seed: u64, output: &mut Output) {
    let mut numbers = Numbers(seed);
    while !plain.is_empty() {
        let most = [5, 1_000, 50_000, 500_000][numbers.below(4)];
        let (piece, rest) = plain.split_at((1 + numbers.below(most)).min(plain.len()));
        encoder.write(piece, output);
        plain = rest;
    }
}

/// How many of an encoder's cuts, wanted each `every` bytes, can be resumed with so much history, and how many cannot. A cut can be if the bits up
/// to the next cut, and that cut, come out the same.
pub(in crate::encoders) fn resumed<E: Encoder>(
    mut encoder: E,
    resume: impl Fn(&[u8], &Cut) -> Option<E>,
    plain: &[u8],
    every: u64,
    history: usize,
) -> (usize, usize) {
    let mut output = Output::default();
    let mut cuts = Vec::new();
    for piece in plain.chunks(4_096) {
        if output.wanted.is_none() {
            let last = output.cut.take();
            output.wanted = Some(last.as_ref().map_or(every, |cut: &Cut| cut.plain + every));
            cuts.extend(last);
        }
        encoder.write(piece, &mut output);
    }
    encoder.finish(&mut output);
    cuts.extend(output.cut.take());
    let stream = output.bits.take();
    let (mut good, mut bad) = (0, 0);
    for (index, cut) in cuts.iter().enumerate() {
        let next = cuts.get(index + 1);
        if is_resumed(&resume, plain, &stream, cut, next, history) {
            good += 1;
        } else {
            bad += 1;
        }
    }
    (good, bad)
}

fn is_resumed<E: Encoder>(
    resume: &impl Fn(&[u8], &Cut) -> Option<E>,
    plain: &[u8],
    stream: &[u8],
    cut: &Cut,
    next: Option<&Cut>,
    history: usize,
) -> bool {
    let (before, after) = plain.split_at(cut.plain as usize);
    let Some(mut encoder) = resume(&before[before.len().saturating_sub(history)..], cut) else {
        return false;
    };
    let byte = (cut.bit / 8) as usize;
    let mut output = Output {
        bits: BitWriter::resume(cut.bit, stream[byte]),
        wanted: next.map(|next| next.plain),
        ..Output::default()
    };
    let Some(next) = next else {
        write_in_pieces(&mut encoder, after, cut.plain, &mut output);
        encoder.finish(&mut output);
        return output.bits.bytes() == &stream[byte..];
    };
    for piece in after.chunks(1_000) {
        encoder.write(piece, &mut output);
        if output.cut.is_some() {
            break;
        }
    }
    let whole = (next.bit / 8) as usize - byte;
    output.cut.as_ref() == Some(next) && output.bits.bytes().get(..whole) == Some(&stream[byte..byte + whole])
}
