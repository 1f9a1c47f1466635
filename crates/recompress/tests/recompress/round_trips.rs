//! Whatever is taken apart comes back, whole and part by part, in pieces of any size.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use xebec_recompress::{Description, Limits, Refusal, Restorer, TakeApart};
use xebec_testkit::corpus;

const LIMITS: Limits = Limits { plain: 1 << 30 };

pub(crate) fn take_apart(stream: &[u8], piece: usize) -> Result<(Description, Vec<u8>), Refusal> {
    let mut plain = Vec::new();
    let mut take_apart = TakeApart::new(LIMITS);
    for piece in stream.chunks(piece) {
        take_apart.write(piece, &mut |bytes| plain.extend_from_slice(bytes))?;
    }
    let description = take_apart.finish(&mut |bytes| plain.extend_from_slice(bytes))?;
    Ok((description, plain))
}

pub(crate) fn restore(description: &Description, plain: &[u8], piece: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut restorer = Restorer::new(description);
    for piece in plain.chunks(piece) {
        restorer.write(piece, &mut stream).unwrap();
    }
    restorer.finish(&mut stream).unwrap();
    stream
}

/// Takes a stream apart and makes it again in all ways. Returns the length of the description.
pub(crate) fn comes_back(stream: &[u8], wanted: &[u8]) -> usize {
    let (description, plain) = take_apart(stream, 100_000).unwrap();
    assert!(plain == wanted, "other plain bytes");
    let (again, _) = take_apart(stream, 777).unwrap();
    assert!(again == description, "the pieces make a difference");
    let bytes = description.to_bytes();
    assert_eq!(Description::from_bytes(&bytes).as_ref(), Ok(&description));
    for piece in [1 << 20, 5_000] {
        assert!(restore(&description, &plain, piece) == stream, "another stream");
    }
    let places = description.places();
    assert_eq!(
        places.last().map_or(0, |place| place.stream.end),
        stream.len() as u64
    );
    for place in &places {
        let needs = &plain[place.needs.start as usize..place.needs.end as usize];
        let part = &stream[place.stream.start as usize..place.stream.end as usize];
        assert!(description.restore(place, needs).unwrap() == part, "another part");
    }
    bytes.len()
}

pub(crate) fn gzip(plain: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn each_corpus_comes_back() {
    for name in corpus::NAMES {
        // flate2's encoder is none that is known, and predicting takes time, most with bytes that are all alike.
        let most = if ["text", "records", "tar"].contains(&name) {
            60_000
        } else {
            10_000
        };
        let plain = corpus::bytes(name);
        let plain = &plain[..plain.len().min(most)];
        for level in [1, 6] {
            let stream = gzip(plain, level);
            let length = comes_back(&stream, plain);
            // The worst are zeros and ones by an encoder that nobody knows.
            assert!(
                length < 200 + stream.len() / 3,
                "{name} at {level}: {length} of {}",
                stream.len()
            );
        }
    }
}

#[test]
fn several_members_and_bytes_after_them_come_back() {
    let (text, second) = (corpus::bytes("text"), corpus::bytes("short"));
    let first = &text[..300_000];
    let mut stream = gzip(first, 6);
    let mut plain = first.to_vec();
    for _ in 0..50 {
        stream.extend(gzip(&second, 6));
        plain.extend_from_slice(&second);
    }
    comes_back(&stream, &plain);
    stream.extend([0; 512]);
    comes_back(&stream, &plain);
}

#[test]
fn a_stream_that_is_cut_off_or_broken_is_refused() {
    let plain = &corpus::bytes("records")[..300_000];
    let stream = gzip(plain, 6);
    for length in [
        0,
        1,
        9,
        10,
        11,
        stream.len() / 2,
        stream.len() - 9,
        stream.len() - 1,
    ] {
        assert!(take_apart(&stream[..length], 100_000).is_err(), "{length}");
    }
    assert_eq!(take_apart(b"plain", 100).err(), Some(Refusal::Format));
    let small = Limits {
        plain: plain.len() as u64 - 1,
    };
    let mut limited = TakeApart::new(small);
    let refused = limited
        .write(&stream, &mut |_| {})
        .and_then(|()| limited.finish(&mut |_| {}));
    assert_eq!(refused.err(), Some(Refusal::TooLarge(small.plain)));
}

#[test]
fn a_stream_of_empty_blocks_is_refused_before_it_takes_long() {
    let with_blocks = |count: usize| {
        let mut stream = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
        stream.extend([0, 0, 0, 0xff, 0xff].repeat(count));
        stream.extend([1, 0, 0, 0xff, 0xff]);
        stream.extend([0; 8]);
        stream
    };
    comes_back(&with_blocks(1_000), b"");
    assert_eq!(
        take_apart(&with_blocks(200_000), 1 << 20).err(),
        Some(Refusal::Unknown)
    );
}

#[test]
fn other_plain_bytes_make_another_stream_or_an_error() {
    let plain = &corpus::bytes("text")[..300_000];
    let stream = gzip(plain, 6);
    let (description, _) = take_apart(&stream, 1 << 20).unwrap();
    let mut other = plain.to_vec();
    other[170_000] ^= 1;
    let mut made = Vec::new();
    let mut restorer = Restorer::new(&description);
    let is_done = restorer.write(&other, &mut made).is_ok() && restorer.finish(&mut made).is_ok();
    assert!(!is_done || made != stream);
    let mut restorer = Restorer::new(&description);
    assert!(restorer.write(&plain[..plain.len() - 1], &mut Vec::new()).is_ok());
    assert!(restorer.finish(&mut Vec::new()).is_err(), "a byte is missing");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_bytes_come_back(seed in any::<u64>(), length in 0..100_000_usize, letters in 1..=255_u8, level in 0..=9_u32) {
        let mut numbers = corpus::Numbers(seed);
        let mut plain: Vec<u8> = Vec::with_capacity(length);
        while plain.len() < length {
            if plain.len() > 10 && numbers.below(3) == 0 {
                let from = numbers.below(plain.len());
                let count = numbers.below(300).min(plain.len() - from);
                plain.extend_from_within(from..from + count);
            } else {
                plain.push(numbers.next() as u8 % letters);
            }
        }
        comes_back(&gzip(&plain, level), &plain);
    }
}
