//! Compressed streams that are taken apart, and descriptions of them.

use std::io::Write;

use crate::output::{Failure, put};
use xebec_recompress::{Limits, TakeApart};

/// What a stream is made of: words that come again, and numbers that do not.
fn plain() -> Vec<u8> {
    let mut plain = b"A tale that was told and told and told again. ".repeat(12);
    let mut state = 7_u32;
    plain.extend((0..400).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 28) as u8
    }));
    plain
}

fn frame(plain: &[u8], level: i32, is_checked: bool) -> std::io::Result<Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level)?;
    encoder.include_checksum(is_checked)?;
    encoder.write_all(plain)?;
    encoder.finish()
}

/// Zstd streams: a frame, and frames with some that readers skip between and after them.
fn frames() -> std::io::Result<[(&'static str, Vec<u8>); 4]> {
    let plain = plain();
    let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let several = [
        frame(&plain, 3, true)?,
        skipped.to_vec(),
        frame(&plain[..300], 1, false)?,
        skipped.to_vec(),
    ];
    Ok([
        ("zstd-1", frame(&plain, 1, false)?),
        ("zstd-9", frame(&plain, 9, true)?),
        ("zstd-known-size", zstd::bulk::compress(&plain, 3)?),
        ("zstd-several", several.concat()),
    ])
}

pub(crate) fn recompress() -> Result<(), Failure> {
    let plain = plain();
    for (name, stream) in frames()? {
        // The first byte: nothing comes before the stream, which comes in pieces of 65 bytes.
        put("recompress", name, &[&[4], &stream[..]].concat())?;
        // The first byte: how long stretches and their history are.
        put("zstd_frames", name, &[&[0x11], &stream[..]].concat())?;
        put("recompress_description", name, &description(&stream)?)?;
    }
    for level in [1, 6, 9] {
        let mut deflate = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::new(level));
        deflate.write_all(&plain)?;
        // The head of a gzip member comes before it, and eight bytes after it.
        let seed = [&[0x85], &deflate.finish()?[..]].concat();
        put("recompress", &format!("gzip-{level}"), &seed)?;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
        gzip.write_all(&plain)?;
        let seed = description(&gzip.finish()?)?;
        put("recompress_description", &format!("gzip-{level}"), &seed)?;
    }
    Ok(())
}

/// As the target reads it: the length of the description without magic and version, the description, plain bytes.
fn description(stream: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut plain = Vec::new();
    let mut take_apart = TakeApart::new(Limits { plain: 1 << 20 });
    take_apart.write(stream, &mut |bytes| plain.extend_from_slice(bytes))?;
    let description = take_apart.finish(&mut |bytes| plain.extend_from_slice(bytes))?;
    let bytes = description.to_bytes();
    let told = bytes.get(12..).ok_or("a description without its head")?;
    let length = u16::try_from(told.len())?.to_le_bytes();
    Ok([&length, told, &plain].concat())
}
