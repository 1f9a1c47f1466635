//! Zstd streams come back whatever libzstd wrote into them; what is not taken is refused with its reason.

use std::io::Write;

use crate::round_trips::{comes_back, take_apart};
use xebec_recompress::{InvalidZstd, Limits, Refusal, TakeApart};
use xebec_testkit::corpus;
use zstd::stream::write::Encoder;

/// What a frame has beside its blocks.
#[derive(Debug, Clone, Copy)]
struct Shape {
    level: i32,
    has_checksum: bool,
    tells_size: bool,
}

fn frame(plain: &[u8], shape: Shape) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), shape.level).unwrap();
    encoder.include_checksum(shape.has_checksum).unwrap();
    encoder.include_contentsize(shape.tells_size).unwrap();
    if shape.tells_size {
        encoder.set_pledged_src_size(Some(plain.len() as u64)).unwrap();
    }
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn usual(plain: &[u8], level: i32) -> Vec<u8> {
    frame(
        plain,
        Shape {
            level,
            has_checksum: true,
            tells_size: false,
        },
    )
}

/// A frame that readers skip, with these bytes.
fn skippable(bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x53, 0x2a, 0x4d, 0x18];
    frame.extend((bytes.len() as u32).to_le_bytes());
    frame.extend_from_slice(bytes);
    frame
}

/// A frame with this descriptor, window and what may follow, of blocks each of which is so many zeros in four bytes.
fn zeros(head: &[u8], block: u32, blocks: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd];
    frame.extend_from_slice(head);
    for number in 1..=blocks {
        let is_last = u32::from(number == blocks);
        frame.extend_from_slice(&(is_last | 1 << 1 | block << 3).to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// Window bytes of a head: 2 MiB, 128 MiB, and the next size.
const WINDOW: u8 = 0x58;
const LARGEST_WINDOW: u8 = 0x88;
const TOO_LARGE_WINDOW: u8 = 0x89;

#[test]
fn frames_come_back_at_each_level_with_and_without_size_and_checksum() {
    let tar = &corpus::bytes("tar")[600_000..1_400_000];
    for level in [1, 3, 9] {
        for (has_checksum, tells_size) in [(false, false), (false, true), (true, false), (true, true)] {
            let shape = Shape {
                level,
                has_checksum,
                tells_size,
            };
            let length = if level == 9 { 300_000 } else { tar.len() };
            let stream = frame(&tar[..length], shape);
            let description = comes_back(&stream, &tar[..length]);
            assert!(
                description < 600 + stream.len() / 20,
                "{shape:?}: {description} of {}",
                stream.len()
            );
        }
    }
}

#[test]
fn a_stream_of_several_stretches_comes_back() {
    let tar = corpus::bytes("tar");
    let stream = usual(&tar, 3);
    comes_back(&stream, &tar);
    let (description, _) = take_apart(&stream, 1 << 20).unwrap();
    assert!(description.places().len() > 1);
}

#[test]
fn frames_and_skippable_frames_in_any_order_come_back() {
    let (text, records) = (corpus::bytes("text"), corpus::bytes("records"));
    let text = &text[..150_000];
    let records = &records[..150_000];
    // As zstd:chunked has them: a frame for each file, and the table of contents in skippable ones at the end.
    let mut stream = Vec::new();
    let mut plain = Vec::new();
    for part in text.chunks(40_000).chain(records.chunks(9_000)) {
        stream.extend(usual(part, 3));
        plain.extend_from_slice(part);
    }
    stream.extend(skippable(&records[..5_000]));
    stream.extend(skippable(&[7; 64]));
    comes_back(&stream, &plain);

    let mut stream = skippable(b"first");
    stream.extend(skippable(b""));
    stream.extend(usual(text, 1));
    // Larger than what is kept together of one.
    stream.extend(skippable(&records[..140_000]));
    stream.extend(usual(b"", 1));
    stream.extend(usual(records, 9));
    comes_back(&stream, &[text, records].concat());
    comes_back(&skippable(b"alone"), b"");
    // Whatever they have costs nothing to expect, or much.
    for bytes in [[0xff; 200], [0; 200]] {
        comes_back(&skippable(&bytes), b"");
    }
}

#[test]
fn a_truncated_stream_is_refused_wherever_it_ends() {
    let text = &corpus::bytes("text")[..300_000];
    let mut stream = usual(text, 3);
    let first = stream.len();
    stream.extend(skippable(b"skipped"));
    let second = stream.len();
    stream.extend(usual(text, 1));
    let ends = [
        4,
        5,
        6,
        8,
        20,
        first / 2,
        first - 4,
        first - 1,
        first + 1,
        first + 7,
        first + 9,
        second + 3,
        stream.len() - 1,
    ];
    for end in ends {
        assert_eq!(
            take_apart(&stream[..end], 1 << 20).err(),
            Some(Refusal::Zstd(InvalidZstd::Truncated)),
            "{end}"
        );
    }
    // Fewer bytes are of no format.
    assert_eq!(take_apart(&stream[..3], 10).err(), Some(Refusal::Format));
    for end in [first, second] {
        comes_back(&stream[..end], text);
    }
}

#[test]
fn what_follows_a_frame_and_is_none_is_refused() {
    let text = &corpus::bytes("text")[..100_000];
    for rest in [&b"garbage"[..], &[0; 512], b"\x1f\x8b\x08\x00"] {
        let mut stream = usual(text, 3);
        stream.extend_from_slice(rest);
        assert_eq!(
            take_apart(&stream, 1 << 20).err(),
            Some(Refusal::Zstd(InvalidZstd::Magic)),
            "{rest:?}"
        );
    }
}

#[test]
fn a_bomb_is_refused_when_it_passes_the_limit() {
    let stream = zeros(&[0, WINDOW], 128 << 10, 4_000);
    let plain = 10 << 20;
    let mut given = 0;
    let mut limited = TakeApart::new(Limits { plain });
    let refused = limited.write(&stream, &mut |bytes| given += bytes.len() as u64);
    let refused = refused.and_then(|()| limited.finish(&mut |_| {}).map(|_| ()));
    assert_eq!(refused, Err(Refusal::TooLarge(plain)));
    // A kilobyte of it, and a stretch.
    assert!(given <= plain + (40 << 20), "{given}");
    // As many as the limit are not too many.
    let stream = zeros(&[0, WINDOW], 128 << 10, 80);
    let mut limited = TakeApart::new(Limits { plain });
    limited.write(&stream, &mut |_| {}).unwrap();
    assert!(limited.finish(&mut |_| {}).is_ok());
}

#[test]
fn windows_up_to_the_largest_that_is_taken_come_back_and_others_are_refused() {
    for window in [0, WINDOW, LARGEST_WINDOW] {
        comes_back(&zeros(&[0, window], 1_000, 10), &[0; 10_000]);
    }
    for window in [TOO_LARGE_WINDOW, 0x90, 0xff] {
        assert_eq!(
            take_apart(&zeros(&[0, window], 1_000, 10), 1 << 20).err(),
            Some(Refusal::Zstd(InvalidZstd::Window))
        );
    }
    // A frame in one segment has a window of its size.
    let large = ((128_u64 << 20) + 1).to_le_bytes();
    let head = [&[0xe0][..], &large].concat();
    assert_eq!(
        take_apart(&zeros(&head, 1_000, 10), 1 << 20).err(),
        Some(Refusal::Zstd(InvalidZstd::Window))
    );
}

#[test]
fn a_frame_that_needs_a_dictionary_is_refused() {
    for (head, is_taken) in [
        (&[1, WINDOW, 9][..], false),
        (&[2, WINDOW, 0, 9], false),
        (&[3, WINDOW, 0, 0, 9, 0], false),
        (&[3, WINDOW, 0, 0, 0, 0], true),
    ] {
        let stream = zeros(head, 1_000, 10);
        if is_taken {
            comes_back(&stream, &[0; 10_000]);
        } else {
            assert_eq!(
                take_apart(&stream, 1 << 20).err(),
                Some(Refusal::Zstd(InvalidZstd::Dictionary))
            );
        }
    }
}

#[test]
fn a_stream_whose_bits_are_damaged_comes_back_or_is_refused() {
    let plain = &corpus::bytes("records")[..60_000];
    let stream = usual(plain, 3);
    let mut numbers = corpus::Numbers(5);
    let mut refused = 0;
    for _ in 0..60 {
        let mut damaged = stream.clone();
        let place = numbers.below(stream.len());
        damaged[place] ^= 1 << numbers.below(8);
        match take_apart(&damaged, 1 << 20) {
            // Checksums are bytes like others: the digest of a stream tells.
            Ok((_, plain)) => {
                comes_back(&damaged, &plain);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 5, "{refused}");
}
