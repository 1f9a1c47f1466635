//! The inflate decoder against zlib: streams that zlib makes, and streams that zlib accepts.
use std::io::Read;

use proptest::prelude::*;
use xebec_index::fuzzing::inflate_in_steps;
use xebec_index::inflate::{
    Alphabet, Decoder, HISTORY, InflateError, Input, OUTPUT_SLACK, Output, References, Stop,
};

use crate::support::{deflate, mixture};

fn inflate(stream: &[u8]) -> Result<Vec<u8>, InflateError> {
    inflate_in_steps(stream, stream.len(), 64 << 10, usize::MAX).map(|(plain, _)| plain)
}

/// zlib's opinion; `None` if it refuses or does not reach the end.
fn zlib(stream: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    flate2::read::DeflateDecoder::new(stream)
        .read_to_end(&mut plain)
        .ok()?;
    Some(plain)
}

#[test]
fn every_level_and_every_mixture() {
    for seed in 0..8 {
        let plain = mixture(seed, 300_000 + 777 * seed as usize);
        for level in 0..=9 {
            let stream = deflate(&plain, level);
            let (found, used) = inflate_in_steps(&stream, stream.len(), 64 << 10, usize::MAX).unwrap();
            assert!(found == plain, "seed {seed}, level {level}");
            assert_eq!(used, stream.len());
        }
    }
}

#[test]
fn input_and_output_in_small_steps() {
    let plain = mixture(3, 100_000);
    for level in [0, 1, 6, 9] {
        let mut stream = deflate(&plain, level);
        let length = stream.len();
        // The bytes after the stream must not be touched.
        stream.extend_from_slice(&[0xff; 700]);
        for (input, output) in [(1, 1), (1, 100_000), (3, 257), (8, 258), (600, 1), (100_000, 31)] {
            let (found, used) = inflate_in_steps(&stream, input, output, usize::MAX).unwrap();
            assert!(found == plain, "level {level}, steps {input} and {output}");
            assert_eq!(used, length);
        }
    }
}

#[test]
fn short_distances_and_long_matches() {
    for period in 1..70 {
        let plain: Vec<u8> = (0..40_000).map(|index| (index % period) as u8).collect();
        for level in [1, 9] {
            assert!(
                inflate(&deflate(&plain, level)).unwrap() == plain,
                "period {period}"
            );
        }
    }
}

/// Bits, lowest first, as deflate wants them.
#[derive(Default)]
struct Bits(Vec<bool>);

impl Bits {
    fn put(mut self, value: u32, count: u32) -> Self {
        self.0.extend((0..count).map(|bit| value >> bit & 1 == 1));
        self
    }

    /// Huffman codes go highest bit first.
    fn code(mut self, value: u32, count: u32) -> Self {
        self.0.extend((0..count).rev().map(|bit| value >> bit & 1 == 1));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
        self.0.chunks(8).map(byte).collect()
    }
}

/// A dynamic block's header with these code lengths, each written plainly as a 4-bit code.
fn dynamic(litlen: &[u8], distance: &[u8]) -> Bits {
    let mut bits = Bits::default().put(1, 1).put(2, 2);
    bits = bits
        .put(litlen.len() as u32 - 257, 5)
        .put(distance.len() as u32 - 1, 5)
        .put(19 - 4, 4);
    // Lengths 0 to 15 have 4-bit codes, in the order in which the header lists them; 16, 17, 18 have none.
    for symbol in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15] {
        bits = bits.put(if symbol < 16 { 4 } else { 0 }, 3);
    }
    for &length in litlen.iter().chain(distance) {
        bits = bits.code(u32::from(length), 4);
    }
    bits
}

/// Lengths of a literal/length code where symbols have the lengths listed, all others none.
fn lengths(used: &[(usize, u8)]) -> Vec<u8> {
    let mut lengths = vec![0; 286];
    for &(symbol, length) in used {
        lengths[symbol] = length;
    }
    lengths
}

#[test]
fn bad_streams_are_refused_by_name() {
    let fixed = || Bits::default().put(1, 1).put(1, 2);
    let complete = lengths(&[(b'a'.into(), 1), (256, 2), (257, 2)]);
    let cases: Vec<(Vec<u8>, InflateError)> = vec![
        (vec![], InflateError::Truncated),
        (vec![0b111], InflateError::BlockType),
        (
            vec![1, 5, 0, 0, 0],
            InflateError::StoredLength {
                length: 5,
                complement: 0,
            },
        ),
        (vec![1, 5, 0, 0xfa, 0xff, b'x'], InflateError::Truncated),
        (fixed().bytes(), InflateError::Truncated),
        // Length 3 (code 0000001), distance 1 (code 00000), at the very start.
        (
            fixed().code(1, 7).code(0, 5).bytes(),
            InflateError::DistanceTooFar {
                distance: 1,
                history: 0,
            },
        ),
        // Symbol 286 and distance 30 have codes, but no meaning.
        (
            fixed().code(0b1100_0110, 8).put(0, 16).bytes(),
            InflateError::NotASymbol,
        ),
        (
            fixed().code(0x30, 8).code(1, 7).code(30, 5).put(0, 16).bytes(),
            InflateError::NotASymbol,
        ),
        (
            Bits::default().put(1, 1).put(2, 2).put(30, 5).put(0, 9).bytes(),
            InflateError::TooManyCodes {
                litlen: 287,
                distance: 1,
            },
        ),
        (
            Bits::default()
                .put(1, 1)
                .put(2, 2)
                .put(0, 5)
                .put(30, 5)
                .put(0, 4)
                .bytes(),
            InflateError::TooManyCodes {
                litlen: 257,
                distance: 31,
            },
        ),
        // Four code lengths of one bit each.
        (
            Bits::default()
                .put(5, 3)
                .put(0, 14)
                .put(0b001_001_001_001, 12)
                .bytes(),
            InflateError::OversubscribedCode(Alphabet::CodeLengths),
        ),
        (
            Bits::default().put(5, 3).put(0, 14).put(1, 12).bytes(),
            InflateError::IncompleteCode(Alphabet::CodeLengths),
        ),
        // Only lengths 16 (repeat) and 17 (zeros) have codes, and the first is a repeat.
        (
            Bits::default()
                .put(5, 3)
                .put(0, 14)
                .put(0b001_001, 12)
                .put(0, 20)
                .bytes(),
            InflateError::BadRepeat,
        ),
        (
            dynamic(&lengths(&[(1, 1), (2, 1)]), &[0]).bytes(),
            InflateError::NoEndOfBlock,
        ),
        (
            dynamic(&lengths(&[(1, 1), (2, 1), (256, 1)]), &[0]).bytes(),
            InflateError::OversubscribedCode(Alphabet::LiteralsAndLengths),
        ),
        (
            dynamic(&lengths(&[(1, 2), (256, 2)]), &[0]).bytes(),
            InflateError::IncompleteCode(Alphabet::LiteralsAndLengths),
        ),
        (
            dynamic(&complete, &[2, 2]).bytes(),
            InflateError::IncompleteCode(Alphabet::Distances),
        ),
        (
            dynamic(&complete, &[1, 1, 1]).bytes(),
            InflateError::OversubscribedCode(Alphabet::Distances),
        ),
        // No distance code at all is fine until it is used; a lone one has only one of two bit patterns.
        (
            dynamic(&complete, &[0]).code(0, 1).code(3, 2).put(0, 20).bytes(),
            InflateError::NotASymbol,
        ),
        (
            dynamic(&complete, &[1]).code(0, 1).code(3, 2).put(1, 20).bytes(),
            InflateError::NotASymbol,
        ),
    ];
    for (number, (stream, error)) in cases.into_iter().enumerate() {
        assert_eq!(inflate(&stream), Err(error.clone()), "case {number}");
        assert!(zlib(&stream).is_none(), "zlib takes case {number}");
        // Behind more input the fast loop meets the same.
        let mut longer = stream.clone();
        longer.resize(stream.len() + 2000, 0);
        if error != InflateError::Truncated {
            assert_eq!(inflate(&longer), Err(error), "case {number}, longer");
        }
    }
}

#[test]
fn unusual_but_valid_codes() {
    let complete = lengths(&[(b'a'.into(), 1), (256, 2), (257, 2)]);
    // 'a', then a match of length 3 at distance 1 by a lone distance code, then the end.
    let stream = dynamic(&complete, &[1])
        .code(0, 1)
        .code(3, 2)
        .code(0, 1)
        .code(2, 2)
        .bytes();
    assert_eq!(inflate(&stream).unwrap(), b"aaaa");
    assert_eq!(zlib(&stream).unwrap(), b"aaaa");
    // A block that is nothing but its end, with a single one-bit code.
    let stream = dynamic(&lengths(&[(256, 1)]), &[0]).code(0, 1).bytes();
    assert_eq!(inflate(&stream).unwrap(), b"");
    assert_eq!(zlib(&stream).unwrap(), b"");
    // Codes of up to 15 bits, through subtables.
    let long: Vec<(usize, u8)> = (0..14)
        .map(|step| (step, step as u8 + 1))
        .chain([(14, 15), (256, 15)])
        .collect();
    let mut bits = dynamic(&lengths(&long), &[0]);
    for step in 0..14u32 {
        bits = bits.code((1 << (step + 1)) - 2, step + 1);
    }
    bits = bits.code(0x7ffe, 15).code(0x7fff, 15);
    let plain: Vec<u8> = (0..15).collect();
    assert_eq!(zlib(&bits.bytes()).unwrap(), plain);
    assert_eq!(inflate(&bits.bytes()).unwrap(), plain);
}

/// Decodes up to block boundaries; gives the plain offset and bit position of each.
fn boundaries(stream: &[u8]) -> (Vec<u8>, Vec<(usize, usize)>) {
    let mut decoder = Decoder::new();
    let mut input = Input {
        bytes: stream,
        position: 0,
        last: true,
    };
    let mut buffer = vec![0; 4 << 20];
    let (mut position, mut found) = (0, Vec::new());
    loop {
        let limit = buffer.len() - OUTPUT_SLACK;
        let mut output = Output {
            bytes: &mut buffer,
            position,
            history: 0,
            limit,
            references: None,
        };
        let stop = decoder.run(&mut input, &mut output).unwrap();
        position = output.position;
        match stop {
            Stop::Block => found.push((position, input.position * 8 - decoder.unread_bits() as usize)),
            Stop::End => break,
            stop => unreachable!("{stop:?}"),
        }
    }
    buffer.truncate(position);
    (buffer, found)
}

#[test]
fn every_block_boundary_is_an_entrance_and_only_noted_history_matters() {
    let plain = mixture(5, 2_000_000);
    for level in [0, 1, 6, 9] {
        let stream = deflate(&plain, level);
        let (whole, points) = boundaries(&stream);
        assert!(whole == plain);
        assert!(points.len() > 10, "only {} blocks", points.len());
        for &(plain_offset, bit) in &points {
            let history = plain_offset.min(HISTORY);
            let enter = |buffer: &mut Vec<u8>, references: Option<&mut References>| {
                let mut input = Input {
                    bytes: &stream,
                    position: bit / 8,
                    last: true,
                };
                let mut decoder = Decoder::new();
                decoder.enter(&mut input, (bit % 8) as u8).unwrap();
                let limit = buffer.len() - OUTPUT_SLACK;
                let mut output = Output {
                    bytes: buffer,
                    position: history,
                    history: 0,
                    limit,
                    references,
                };
                while output.position < output.limit
                    && decoder.run(&mut input, &mut output).unwrap() != Stop::End
                {}
                output.position
            };
            let mut buffer = plain[plain_offset - history..plain_offset].to_vec();
            buffer.resize(history + 100_000 + OUTPUT_SLACK, 0);
            let mut references = References::new(history);
            let end = enter(&mut buffer, Some(&mut references));
            assert!(buffer[history..end] == plain[plain_offset..plain_offset + end - history]);

            // The same with all other history overwritten.
            let used = &references.used[HISTORY - history..];
            let mut again: Vec<u8> = plain[plain_offset - history..plain_offset]
                .iter()
                .zip(used)
                .map(|(&byte, &used)| if used { byte } else { !byte })
                .collect();
            again.resize(history + 100_000 + OUTPUT_SLACK, 0);
            let end = enter(&mut again, None);
            assert!(again[history..end] == plain[plain_offset..plain_offset + end - history]);
        }
    }
}

/// Every byte that is noted must matter: without it the output changes.
#[test]
fn no_more_history_is_noted_than_is_referred_to() {
    let plain = mixture(9, 300_000);
    let stream = deflate(&plain, 6);
    let (_, points) = boundaries(&stream);
    let &(plain_offset, bit) = points.iter().find(|&&(plain, _)| plain > HISTORY).unwrap();
    let decode = |history: &[u8], references: Option<&mut References>| {
        let mut buffer = history.to_vec();
        buffer.resize(HISTORY + HISTORY + OUTPUT_SLACK, 0);
        let mut input = Input {
            bytes: &stream,
            position: bit / 8,
            last: true,
        };
        let mut decoder = Decoder::new();
        decoder.enter(&mut input, (bit % 8) as u8).unwrap();
        let limit = 2 * HISTORY;
        let mut output = Output {
            bytes: &mut buffer,
            position: HISTORY,
            history: 0,
            limit,
            references,
        };
        while output.position < limit {
            decoder.run(&mut input, &mut output).unwrap();
        }
        let end = output.position;
        buffer[HISTORY..end].to_vec()
    };
    let history = plain[plain_offset - HISTORY..plain_offset].to_vec();
    let mut references = References::new(HISTORY);
    let expected = decode(&history, Some(&mut references));
    let used: Vec<usize> = (0..HISTORY).filter(|&index| references.used[index]).collect();
    assert!(!used.is_empty() && used.len() < HISTORY);
    for &index in used.iter().step_by(used.len().div_ceil(200)) {
        let mut changed = history.clone();
        changed[index] ^= 1;
        assert!(decode(&changed, None) != expected, "byte {index} does not matter");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_zlib_makes(seed: u64, length in 0..60_000usize, level in 0..10u32, input in 1..2000usize, output in 1..5000usize) {
        let plain = mixture(seed, length);
        let (found, _) = inflate_in_steps(&deflate(&plain, level), input, output, usize::MAX).unwrap();
        prop_assert!(found == plain);
    }

    #[test]
    fn what_zlib_accepts(seed: u64, length in 0..3000usize, level in 0..10u32, changes in prop::collection::vec((0..3000usize, any::<u8>()), 1..4), cut in 0..4000usize) {
        let mut stream = deflate(&mixture(seed, length), level);
        for (at, value) in changes {
            let at = at % stream.len();
            stream[at] = value;
        }
        stream.truncate(cut);
        prop_assert_eq!(inflate(&stream).ok(), zlib(&stream));
    }

    #[test]
    fn arbitrary_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert_eq!(inflate(&bytes).ok(), zlib(&bytes));
        xebec_index::fuzzing::inflate(&bytes);
    }
}
