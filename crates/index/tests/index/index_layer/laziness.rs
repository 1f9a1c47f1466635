//! Layers that cannot be read in parts are indexed and called so.

use xebec_format::layer::{Codec, LayerIndex};
use xebec_index::decode::{DecodeError, decode_span};
use xebec_index::indexer::{IndexOptions, IndexedLayer, Laziness};

use super::check::check;
use crate::support::{mixture, tar_of};

#[test]
fn one_huge_zstd_frame_is_not_lazy_but_indexed() {
    let large = mixture(1, 3 << 20).repeat(20);
    let tar = tar_of([("small", &b"small"[..]), ("large", &large), ("text", b"text")]);
    let blob = zstd::stream::encode_all(&tar[..], 1).unwrap();
    let layer = check("one frame", &blob, &tar, &IndexOptions::default());
    let Laziness::NotLazy { reason } = &layer.laziness else {
        panic!("called lazy")
    };
    assert!(
        reason.contains("a single zstd frame holds 60 MiB") && reason.contains("zstd:chunked"),
        "{reason}"
    );
    check_parts(&blob, &tar, &layer);
    // The index can be stored and read again, and says the same.
    let again = LayerIndex::decode(&layer.index.encode()).unwrap();
    assert_eq!(Laziness::of(&again), layer.laziness);
    // The same in frames is lazy.
    let blob: Vec<u8> = tar
        .chunks(1 << 20)
        .flat_map(|part| zstd::bulk::compress(part, 1).unwrap())
        .collect();
    assert_eq!(
        check("frames", &blob, &tar, &IndexOptions::default()).laziness,
        Laziness::Lazy
    );
    // Not even gigabytes of padding in the same frame matter to a reader of the contents.
    let mut padded = tar_of([("small", &b"small"[..])]);
    padded.resize(40 << 20, 0);
    let blob = zstd::stream::encode_all(&padded[..], 1).unwrap();
    assert_eq!(
        check("padding", &blob, &padded, &IndexOptions::default()).laziness,
        Laziness::Lazy
    );
}

#[test]
fn one_huge_deflate_block_is_not_lazy() {
    // No encoder at hand makes such a block, so it is made here: a stored block for the headers, then one fixed
    // block of matches (258 zeros each), then a stored block for the rest.
    const MATCHES: usize = 130_000;
    let zeros = 1 + 258 * MATCHES;
    let tar = tar_of([("zeros", &vec![0; zeros][..])]);
    let mut blob = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    blob.extend([0, 0, 4, 0xff, 0xfb]);
    blob.extend(&tar[..1024]);
    // Bits of the block, first to last: not the last one, fixed; literal 0; length 258, distance 1; end. Then the stored block's.
    let mut bits = "010".to_owned() + "00110000" + &"1100010100000".repeat(MATCHES) + "0000000" + "100";
    while !bits.len().is_multiple_of(8) {
        bits.push('0');
    }
    let byte = |bits: &[u8]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | (bit - b'0'));
    blob.extend(bits.as_bytes().chunks(8).map(byte));
    let rest = &tar[1024 + zeros..];
    blob.extend((rest.len() as u16).to_le_bytes());
    blob.extend((!(rest.len() as u16)).to_le_bytes());
    blob.extend(rest);
    blob.extend(crc32fast::hash(&tar).to_le_bytes());
    blob.extend((tar.len() as u32).to_le_bytes());

    let layer = check("one block", &blob, &tar, &IndexOptions::default());
    let Laziness::NotLazy { reason } = &layer.laziness else {
        panic!("called lazy")
    };
    assert!(reason.contains("a single deflate block holds 31 MiB"), "{reason}");
    check_parts(&blob, &tar, &layer);
}

/// Checks the spans that are parts: the digest of each is that of its contents, and none can be decoded alone.
fn check_parts(blob: &[u8], tar: &[u8], layer: &IndexedLayer) {
    let index = &layer.index;
    let mut parts = 0;
    for span in index
        .spans
        .iter()
        .filter(|span| span.source.end - span.source.start == 1)
    {
        let source = &blob[span.source.start as usize..span.source.end as usize];
        let error = decode_span(index.codec, span, &index.pieces, source, None);
        assert!(matches!(error, Err(DecodeError::NotLazy)), "{error:?}");
        let mut plain = span.clone();
        plain.source = span.plain.clone();
        let contents = &tar[span.plain.start as usize..span.plain.end as usize];
        decode_span(Codec::Tar, &plain, &index.pieces, contents, None).unwrap();
        parts += 1;
    }
    assert!(parts > 1);
}
