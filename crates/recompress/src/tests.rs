//! A stream of each known encoder is taken apart, found to be this encoder's, and made again, whole and slice by slice.
//!
//! What the encoders write is compared with golden digests in `deflate`; here it is taken for granted.

use crate::description::{Making, Part};
use crate::method::{Family, Method};
use crate::{Description, Limits, Restorer, TakeApart};
use xebec_deflate::encoders::Output;
use xebec_testkit::corpus;

/// Extra flags of a head by the level, as most writers have them.
fn extra_flags(level: i8) -> u8 {
    match level {
        9 => 2,
        1 => 4,
        _ => 0,
    }
}

/// The head of a gzip member as the writer of this family leaves it.
fn head(family: Family, level: i8) -> [u8; 10] {
    let (time, system): (u32, u8) = match family {
        Family::Go => (0, 255),
        Family::Klauspost | Family::Pgzip => (0x886e_0900, 255),
        Family::Zlib => (0x6500_0000, 255),
        Family::GnuGzip | Family::Pigz => (0x6500_0000, 3),
    };
    let [a, b, c, d] = time.to_le_bytes();
    [0x1f, 0x8b, 8, 0, a, b, c, d, extra_flags(level), system]
}

fn deflate(method: Method, plain: &[u8]) -> Vec<u8> {
    let mut encoder = method.start().unwrap();
    let mut output = Output::default();
    encoder.write(plain, &mut output);
    encoder.finish(&mut output);
    output.bits.align();
    output.bits.take()
}

fn take_apart(stream: &[u8]) -> (Description, Vec<u8>) {
    take_apart_in_pieces(stream, usize::MAX)
}

fn take_apart_in_pieces(stream: &[u8], piece: usize) -> (Description, Vec<u8>) {
    let mut plain = Vec::new();
    let mut take_apart = TakeApart::new(Limits { plain: 1 << 30 });
    for piece in stream.chunks(piece) {
        take_apart
            .write(piece, &mut |bytes| plain.extend_from_slice(bytes))
            .unwrap();
    }
    let description = take_apart
        .finish(&mut |bytes| plain.extend_from_slice(bytes))
        .unwrap();
    (description, plain)
}

/// Makes a stream again in all ways from its description, which goes through its bytes first.
fn comes_back(description: &Description, plain: &[u8], stream: &[u8], what: &str) {
    let read = Description::from_bytes(&description.to_bytes()).unwrap();
    assert!(read == *description, "{what}: another description");
    let mut made = Vec::new();
    let mut restorer = Restorer::new(&read);
    for piece in plain.chunks(50_000) {
        restorer.write(piece, &mut made).unwrap();
    }
    restorer.finish(&mut made).unwrap();
    assert!(made == stream, "{what}: another stream");
    let places = read.places();
    for place in places.iter().rev() {
        let needs = &plain[place.needs.start as usize..place.needs.end as usize];
        let part = &stream[place.stream.start as usize..place.stream.end as usize];
        let made = read.restore(place, needs).unwrap();
        assert!(made == part, "{what}: another part at {:?}", place.stream);
    }
    assert_eq!(
        places.last().map(|place| place.stream.end),
        Some(stream.len() as u64)
    );
}

/// How a family is tried: encoders with their levels, variants and blocks in KiB, the plain bytes, and how many slices there are at least.
struct Trial {
    family: Family,
    levels: &'static [i8],
    variants: &'static [u8],
    blocks: &'static [u16],
    from: usize,
    length: usize,
    slices: usize,
}

fn round_trips(trial: &Trial) {
    let tar = corpus::bytes("tar");
    let plain = &tar[trial.from..trial.from + trial.length];
    for &level in trial.levels {
        for &variant in trial.variants {
            for &block in trial.blocks {
                let method = Method {
                    family: trial.family,
                    level,
                    variant,
                    block,
                };
                is_made_by(method, plain, trial.slices);
            }
        }
    }
}

/// A member with this encoder's deflate stream is made again by it, or by one that does the same with these bytes, in so many slices at least.
fn is_made_by(method: Method, plain: &[u8], slices: usize) {
    let deflated = deflate(method, plain);
    let mut stream = head(method.family, method.level).to_vec();
    stream.extend_from_slice(&deflated);
    stream.extend([7; 8]);
    let (description, read) = take_apart(&stream);
    assert!(read == plain, "{method}: other plain bytes");

    let shares = description.shares();
    assert_eq!(
        (shares.encoder, shares.corrected, shares.kept),
        (deflated.len() as u64, 0, 18),
        "{method}"
    );
    // Where the versions of an encoder differ, the one that was found first may give way to another.
    let versions = |found: &Method| found.is_sibling(method) || *found == method;
    match shares.methods[..] {
        [found] => assert!(
            found == method || deflate(found, plain) == deflated,
            "{method} was taken for {found}"
        ),
        ref several => assert!(several.iter().all(versions), "{method}: {several:?}"),
    }
    // Head and trailer are parts, too.
    let made = description.places().len() - 2;
    assert!(made >= slices, "{method}: {made} slices");
    for part in &description.parts {
        let Part::Slice(slice) = part else { continue };
        let Making::Encoder { flushes, .. } = &slice.making else {
            panic!("{method}: a slice is not made by an encoder");
        };
        assert!(flushes.is_empty(), "{method}: flushes of its own are told");
        // A block of pgzip knows no more of the one before.
        assert!(
            method.family != Family::Pgzip || slice.history <= 32 << 10,
            "{method}"
        );
    }
    comes_back(&description, plain, &stream, &method.to_string());
}

#[test]
fn streams_of_go_come_back_by_their_encoder() {
    round_trips(&Trial {
        family: Family::Go,
        levels: &[-2, 0, 1, 5, 6, 9],
        variants: &[0],
        blocks: &[0],
        from: 0,
        length: 1_500_000,
        slices: 3,
    });
}

#[test]
fn streams_of_the_newest_klauspost_come_back_by_their_encoder() {
    round_trips(&Trial {
        family: Family::Klauspost,
        levels: &[-2, 0, 1, 3, 5, 6, 9],
        variants: &[10],
        blocks: &[0],
        from: 0,
        length: 1_500_000,
        slices: 2,
    });
}

#[test]
fn streams_of_all_generations_of_klauspost_come_back_by_their_encoder() {
    round_trips(&Trial {
        family: Family::Klauspost,
        levels: &[5],
        variants: &[1, 2, 3, 4, 5, 6, 7, 8, 9],
        blocks: &[0],
        from: 1_000_000,
        length: 700_000,
        slices: 2,
    });
}

#[test]
fn streams_of_pgzip_come_back_by_their_encoder() {
    let trial = Trial {
        family: Family::Pgzip,
        levels: &[5, 6],
        variants: &[1, 10],
        blocks: &[256],
        from: 500_000,
        length: 1_500_000,
        slices: 5,
    };
    round_trips(&Trial {
        levels: &[5],
        ..trial
    });
    round_trips(&Trial {
        levels: &[1, 6, 9],
        variants: &[9],
        ..trial
    });
    round_trips(&Trial {
        levels: &[5],
        variants: &[7],
        blocks: &[1024],
        length: 2_300_000,
        slices: 3,
        ..trial
    });
}

#[test]
fn streams_of_zlib_come_back_by_their_encoder() {
    round_trips(&Trial {
        family: Family::Zlib,
        levels: &[1, 6, 9],
        variants: &[8, 9],
        blocks: &[0],
        from: 2_000_000,
        length: 1_200_000,
        slices: 2,
    });
}

#[test]
fn streams_of_gnu_gzip_come_back_by_their_encoder() {
    round_trips(&Trial {
        family: Family::GnuGzip,
        levels: &[1, 6, 9],
        variants: &[0],
        blocks: &[0],
        from: 3_000_000,
        length: 1_200_000,
        slices: 2,
    });
}

#[test]
fn streams_of_pigz_come_back_by_their_encoder() {
    round_trips(&Trial {
        family: Family::Pigz,
        levels: &[1, 3, 6, 9],
        variants: &[0, 1],
        blocks: &[128],
        from: 4_000_000,
        length: 1_200_000,
        slices: 2,
    });
}

#[test]
fn flushes_between_blocks_are_told_and_made_again() {
    let plain = &corpus::bytes("text")[..700_000];
    let method = Method {
        family: Family::Go,
        level: 6,
        variant: 0,
        block: 0,
    };
    let mut encoder = method.start().unwrap();
    let mut output = Output::default();
    for piece in plain.chunks(61_000) {
        encoder.write(piece, &mut output);
        encoder.flush(&mut output);
    }
    encoder.finish(&mut output);
    output.bits.align();
    let mut stream = head(Family::Go, 6).to_vec();
    stream.extend(output.bits.take());
    let deflated = stream.len() as u64 - 10;
    stream.extend([7; 8]);
    let (description, read) = take_apart(&stream);
    assert!(read == plain);
    assert_eq!(description.shares().encoder, deflated);
    comes_back(&description, plain, &stream, "flushed");
}

#[test]
fn a_stream_that_becomes_another_encoders_is_predicted_from_there_on_in_slices() {
    let plain = &corpus::bytes("records")[..1_200_000];
    let (go, zlib) = (
        Method {
            family: Family::Go,
            level: 6,
            variant: 0,
            block: 0,
        },
        Method {
            family: Family::Zlib,
            level: 9,
            variant: 8,
            block: 0,
        },
    );
    let (first, second) = plain.split_at(600_000);
    let mut output = Output::default();
    let mut encoder = go.start().unwrap();
    encoder.write(first, &mut output);
    encoder.flush(&mut output);
    let mut stream = head(Family::Go, 6).to_vec();
    stream.extend(output.bits.take());
    // The flush has ended at a byte, and the second encoder knows nothing of what is before.
    stream.extend(deflate(zlib, second));
    stream.extend([7; 8]);
    let (description, read) = take_apart(&stream);
    assert!(read == plain);
    let shares = description.shares();
    assert_eq!(shares.methods, [go]);
    assert!(shares.encoder > 0 && shares.corrected > 0, "{shares:?}");
    assert!(description.places().len() > 5);
    comes_back(&description, plain, &stream, "of two encoders");
}

#[test]
fn the_description_does_not_depend_on_how_the_stream_comes() {
    // Another version makes the first 900 KB of it, too: which one is found depends on how much is known when they are tried.
    let method = Method {
        family: Family::Pgzip,
        level: 9,
        variant: 9,
        block: 256,
    };
    let mut stream = head(Family::Pgzip, 9).to_vec();
    stream.extend(deflate(method, &corpus::bytes("tar")[500_000..2_000_000]));
    stream.extend([7; 8]);
    let (whole, _) = take_apart(&stream);
    assert!(whole.shares().methods.len() > 1);
    let (description, _) = take_apart_in_pieces(&stream, 5_000);
    assert!(description == whole);
    // So it is looked at in pieces of one size.
    let mut came = 0;
    let mut take_apart = TakeApart::new(Limits { plain: 1 << 30 });
    let (piece, last) = (&stream[..(32 << 10) - 1], &stream[(32 << 10) - 1..32 << 10]);
    take_apart.write(piece, &mut |bytes| came += bytes.len()).unwrap();
    assert_eq!(came, 0);
    take_apart.write(last, &mut |bytes| came += bytes.len()).unwrap();
    assert!(came > 0);
}

#[test]
fn a_stream_whose_description_would_be_too_long_is_refused() {
    let mut stream = head(Family::Go, 6).to_vec();
    let method = Method::candidates(crate::gzip::Fingerprint::of(&stream))[0];
    stream.extend(deflate(method, b"plain"));
    stream.extend([7; 8]);
    let most = 200_000;
    let head_and_trailer = 18;
    for (rest, is_refused) in [(most - head_and_trailer, false), (most, true)] {
        let mut longer = stream.clone();
        longer.resize(stream.len() + rest, 0);
        let mut take_apart = TakeApart::new(Limits { plain: 1 << 30 });
        take_apart.most_kept = most as u64;
        let outcome = take_apart
            .write(&longer, &mut |_| {})
            .and_then(|()| take_apart.finish(&mut |_| {}));
        let refused = matches!(outcome, Err(crate::Refusal::TooLong));
        assert_eq!(refused, is_refused, "{rest}");
    }
}

#[test]
fn a_stream_of_many_members_that_no_encoder_makes_is_refused() {
    // Two blocks in the fixed code with a letter each, and an empty one.
    let mut member = head(Family::Go, 6).to_vec();
    let mut output = Output::default();
    for letter in *b"xy" {
        output.bits.put(0b010, 3);
        output.bits.put(u64::from((0x30 + letter).reverse_bits()), 8);
        output.bits.put(0, 7);
    }
    output.bits.put(0b011, 3);
    output.bits.put(0, 7);
    output.bits.align();
    member.extend(output.bits.take());
    member.extend([7; 8]);
    let most = 300;
    for (count, is_refused) in [(most, false), (most + 1, true)] {
        let stream = member.repeat(count);
        let mut take_apart = TakeApart::new(Limits { plain: 1 << 30 });
        take_apart.most_predicted = most;
        let outcome = take_apart
            .write(&stream, &mut |_| {})
            .and_then(|()| take_apart.finish(&mut |_| {}));
        assert_eq!(outcome.is_err(), is_refused, "{count}");
        assert!(outcome.is_ok_and(|description| description.shares().encoder == 0) || is_refused);
    }
}
