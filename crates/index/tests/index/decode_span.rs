//! Spans with wrong bytes, windows and declarations: nothing but the right bytes ever comes out.
use std::ops::Range;

use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, LayerIndex, Piece, Span};
use xebec_index::decode::{DecodeError, MAX_SPAN_DATA, MAX_SPAN_PLAIN, decode_span};
use xebec_index::indexer::{IndexOptions, IndexedLayer, index_layer};
use xebec_index::restore::{RestoreError, restore_tar};

use crate::support::{gzip, mixture, sample_tar};

struct Layer {
    blob: Vec<u8>,
    indexed: IndexedLayer,
}

impl Layer {
    fn new() -> Self {
        let blob = gzip(&sample_tar(1, 1_000_000), 6);
        let options = IndexOptions {
            spacing: 64 << 10,
            ..IndexOptions::default()
        };
        let indexed = index_layer(&blob[..], &options, None).unwrap();
        Self { blob, indexed }
    }

    fn span(&self) -> (&Span, &[u8], &[u8]) {
        let spans = &self.indexed.index.spans;
        let span = spans.iter().filter(|span| span.window.is_some()).nth(2).unwrap();
        let window = span.window.as_ref().unwrap();
        let window = &self.indexed.windows[window.offset as usize..][..window.length as usize];
        (
            span,
            &self.blob[span.source.start as usize..span.source.end as usize],
            window,
        )
    }

    fn decode(&self, span: &Span, source: &[u8], window: Option<&[u8]>) -> Result<Vec<u8>, DecodeError> {
        decode_span(Codec::Gzip, span, &self.indexed.index.pieces, source, window)
    }
}

#[test]
fn wrong_source_bytes() {
    let layer = Layer::new();
    let (span, source, window) = layer.span();
    let right = layer.decode(span, source, Some(window)).unwrap();
    assert_eq!(Digest::of(&right), span.digest);
    let mut digests = 0;
    // The first and the last byte are shared with the neighbours.
    for at in (1..source.len() - 1).step_by(source.len() / 300) {
        let mut wrong = source.to_vec();
        wrong[at] ^= 0x10;
        match layer.decode(span, &wrong, Some(window)) {
            Ok(bytes) => assert!(bytes == right),
            Err(DecodeError::Digest { expected, found }) => {
                assert_eq!(expected, span.digest);
                assert_ne!(found, expected);
                digests += 1;
            }
            Err(DecodeError::Inflate(_) | DecodeError::Short { .. } | DecodeError::GzipHeader) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(digests > 10);
    for length in [0, 1, source.len() - 1] {
        let error = layer.decode(span, &source[..length], Some(window));
        assert!(matches!(error, Err(DecodeError::SourceLength { .. })));
        let mut short = span.clone();
        short.source.end = short.source.start + length as u64;
        // Without its last byte a span may be whole: that byte may hold the end of the block only.
        let result = layer.decode(&short, &source[..length], Some(window));
        let whole = length + 1 == source.len() && result.as_ref().is_ok_and(|bytes| *bytes == right);
        assert!(whole || result.is_err(), "{length}");
    }
}

#[test]
fn wrong_windows() {
    let layer = Layer::new();
    let (span, source, window) = layer.span();
    assert!(matches!(
        layer.decode(span, source, None),
        Err(DecodeError::WindowMissing)
    ));
    let mut wrong = window.to_vec();
    wrong[5] ^= 1;
    assert!(matches!(
        layer.decode(span, source, Some(&wrong)),
        Err(DecodeError::WindowDigest { .. })
    ));
    // A liar's window: its digest is right, but it holds other bytes, too many bytes, or no zstd frame.
    let mut lying = span.clone();
    let mut lie = |window: &[u8]| {
        lying.window.as_mut().unwrap().digest = Digest::of(window);
        layer.decode(&lying, source, Some(window))
    };
    let other = zstd::bulk::compress(&mixture(1, 32 << 10), 1).unwrap();
    assert!(matches!(lie(&other), Err(DecodeError::Digest { .. })));
    let none = zstd::bulk::compress(b"", 1).unwrap();
    assert!(matches!(lie(&none), Err(DecodeError::Inflate(_))));
    let large = zstd::bulk::compress(&vec![0; 40 << 20], 1).unwrap();
    assert!(matches!(lie(&large), Err(DecodeError::Window(_))));
    assert!(matches!(lie(b"no window"), Err(DecodeError::Window(_))));
}

#[test]
fn lying_spans() {
    let layer = Layer::new();
    let (span, source, window) = layer.span();
    let decode = |change: &dyn Fn(&mut Span)| {
        let mut span = span.clone();
        change(&mut span);
        layer.decode(&span, source, Some(window))
    };
    assert!(decode(&|_| {}).is_ok());
    let refused: [&dyn Fn(&mut Span); 8] = [
        &|span| span.plain.end = span.plain.start + MAX_SPAN_PLAIN + 1,
        &|span| span.data.end = u64::MAX,
        &|span| (span.plain.start, span.plain.end) = (span.plain.end, span.plain.start),
        &|span| span.bit_offset = 8,
        &|span| span.data.start += 1,
        &|span| span.data.end -= 1,
        &|span| span.data.end += 1,
        &|span| span.plain.end = u64::MAX,
    ];
    for (number, change) in refused.iter().enumerate() {
        assert!(
            matches!(decode(*change), Err(DecodeError::Span(_))),
            "{number}: {:?}",
            decode(*change)
        );
    }
    assert!(decode(&|span| span.plain.end += 60 << 20).is_err());
    assert!(matches!(
        decode(&|span| span.digest = Digest::of(b"")),
        Err(DecodeError::Digest { .. })
    ));
}

fn chunk(length: usize, source: &[u8], part: std::ops::Range<u64>, data: &[u8]) -> Span {
    Span {
        source: 0..source.len() as u64,
        bit_offset: 0,
        data: 8192..8192 + (part.end - part.start),
        plain: part,
        window: None,
        digest: Digest::of(&data[..length]),
    }
}

#[test]
fn chunks_of_a_table_of_contents() {
    let plain = mixture(4, 200_000);
    let members = gzip(&plain, 6);
    let frame = zstd::bulk::compress(&plain, 3).unwrap();
    let streamed = zstd::stream::encode_all(&plain[..], 3).unwrap();
    for (codec, source) in [
        (Codec::Estargz, &members),
        (Codec::ZstdChunked, &frame),
        (Codec::ZstdChunked, &streamed),
    ] {
        for part in [0..200_000u64, 0..1000, 7..150_000, 199_999..200_000] {
            let expected = &plain[part.start as usize..part.end as usize];
            let span = chunk(expected.len(), source, part.clone(), expected);
            assert_eq!(decode_span(codec, &span, &[], source, None).unwrap(), expected);
        }
        let span = chunk(10, source, 0..200_001, &plain);
        let error = decode_span(codec, &span, &[], source, None);
        assert!(
            matches!(
                error,
                Err(DecodeError::Short {
                    expected: 200_001,
                    found: 200_000
                })
            ),
            "{error:?}"
        );
        let span = chunk(11, source, 0..10, &plain);
        assert!(matches!(
            decode_span(codec, &span, &[], source, None),
            Err(DecodeError::Digest { .. })
        ));
        let mut span = chunk(10, source, 0..10, &plain);
        span.data.end += 1;
        assert!(matches!(
            decode_span(codec, &span, &[], source, None),
            Err(DecodeError::Span(_))
        ));
        let span = chunk(11, b"garbage", 0..10, &plain);
        assert!(matches!(
            decode_span(codec, &span, &[], b"garbage", None),
            Err(DecodeError::GzipHeader | DecodeError::Zstd(_))
        ));
    }
}

#[test]
fn a_wrong_frame_or_wrong_data_do_not_restore() {
    let tar = sample_tar(2, 300_000);
    let layer = index_layer(&tar[..], &IndexOptions::default(), None).unwrap();
    let mut data = vec![0; layer.index.data_size as usize];
    for piece in &layer.index.pieces {
        data[piece.data_offset as usize..][..piece.length as usize]
            .copy_from_slice(&tar[piece.plain_offset as usize..][..piece.length as usize]);
    }
    let restore = |frame: &[u8], data: &[u8], index: &LayerIndex| {
        let mut out = Vec::new();
        restore_tar(index, frame, data, &mut out).map(|digest| (digest, out))
    };
    let (digest, restored) = restore(&layer.frame, &data, &layer.index).unwrap();
    assert!(restored == tar && Some(digest) == layer.index.diff_id);

    let plain = zstd::stream::decode_all(&layer.frame[..]).unwrap();
    let short = zstd::stream::encode_all(&plain[1..], 3).unwrap();
    assert!(matches!(
        restore(&short, &data, &layer.index),
        Err(RestoreError::FrameLength("short"))
    ));
    let long = zstd::stream::encode_all(&[&plain[..], b"x"].concat()[..], 3).unwrap();
    assert!(matches!(
        restore(&long, &data, &layer.index),
        Err(RestoreError::FrameLength("long"))
    ));
    let other = zstd::stream::encode_all(&plain[..], 19).unwrap();
    assert!(matches!(
        restore(&other, &data, &layer.index),
        Err(RestoreError::FrameDigest { .. })
    ));
    assert!(matches!(
        restore(b"garbage", &data, &layer.index),
        Err(RestoreError::Frame(_))
    ));
    assert!(matches!(
        restore(&layer.frame, &data[..10], &layer.index),
        Err(RestoreError::Data { .. })
    ));
    let mut wrong = data.clone();
    wrong[0] ^= 1;
    assert_ne!(restore(&layer.frame, &wrong, &layer.index).unwrap().0, digest);

    let mut index = layer.index.clone();
    index.pieces.swap(0, 1);
    assert!(matches!(
        restore(&layer.frame, &data, &index),
        Err(RestoreError::Pieces)
    ));
    index.frame = None;
    assert!(matches!(
        restore(&layer.frame, &data, &index),
        Err(RestoreError::NoFrame)
    ));
}

/// A span of an uncompressed layer: bytes 100 to 120 of the stream, for `data` of the data space.
fn tar_span(data: Range<u64>, expected: &[u8]) -> Span {
    Span {
        source: 100..120,
        plain: 100..120,
        bit_offset: 0,
        data,
        window: None,
        digest: Digest::of(expected),
    }
}

fn pieces(pieces: &[(u64, u64, u64)]) -> Vec<Piece> {
    let piece = |&(plain_offset, data_offset, length): &(u64, u64, u64)| Piece {
        plain_offset,
        data_offset,
        length,
    };
    pieces.iter().map(piece).collect()
}

const STREAM: &[u8; 20] = b"abcdefghijklmnopqrst";

#[test]
fn contents_come_to_the_places_that_their_pieces_name() {
    for (what, of, data, expected) in [
        ("one piece", &[(100, 4096, 20)][..], 4096..4116, &STREAM[..]),
        ("begun before", &[(90, 4086, 30)], 4096..4116, STREAM),
        ("ends later", &[(110, 4096, 20)], 4096..4106, b"klmnopqrst"),
        ("begun before, ends later", &[(1, 4096, 200)], 4195..4215, STREAM),
        (
            "headers and padding between",
            &[(100, 4096, 5), (110, 4104, 5)],
            4096..4109,
            b"abcde\0\0\0klmno",
        ),
        ("padding before", &[(105, 4100, 5)], 4096..4105, b"\0\0\0\0fghij"),
        (
            "side by side",
            &[(100, 4096, 5), (105, 4101, 15)],
            4096..4116,
            STREAM,
        ),
        (
            "neighbours of others",
            &[(90, 0, 10), (100, 4096, 20), (120, 8192, 9)],
            4096..4116,
            STREAM,
        ),
        ("none", &[(90, 0, 10), (120, 8192, 9)], 4096..4096, b""),
    ] {
        let span = tar_span(data, expected);
        let found = decode_span(Codec::Tar, &span, &pieces(of), STREAM, None);
        assert_eq!(
            found.unwrap_or_else(|error| panic!("{what}: {error}")),
            expected,
            "{what}"
        );
    }
}

#[test]
fn no_piece_leaves_its_span() {
    for (what, of, data) in [
        ("over another", &[(100, 4096, 5), (105, 4100, 15)][..], 4096..4115),
        ("a byte behind", &[(100, 4096, 20)], 4096..4115),
        ("as a whole behind", &[(100, 8192, 20)], 4096..4116),
        ("a byte before", &[(100, 4095, 20)], 4096..4116),
        ("less than was declared", &[(100, 4096, 19)], 4096..4116),
        ("none at all", &[], 4096..4097),
        ("an endless one", &[(110, 4096, u64::MAX)], 4096..4106),
        ("out of all places", &[(90, u64::MAX - 9, 30)], 4096..4116),
        (
            "nearly out of all places",
            &[(100, u64::MAX - 20, 20)],
            4096..4116,
        ),
    ] {
        let span = tar_span(data, b"");
        let found = decode_span(Codec::Tar, &span, &pieces(of), STREAM, None);
        let said = found.map(|_| ()).unwrap_err().to_string();
        assert!(
            said.contains("its pieces lie outside its ranges"),
            "{what}: {said}"
        );
    }
}

/// The error about a span that is right but has no source bytes.
#[test]
#[allow(clippy::reversed_empty_ranges, reason = "such spans are what is refused")]
fn a_span_is_as_large_as_a_span_may_be() {
    const USABLE: &str = "bytes of the layer, but 0 were given";
    const LARGE: &str = "larger than a span may be";
    const PART: &str = "too large to be decoded for one reader";
    let stream = [Codec::Tar, Codec::Gzip, Codec::Zstd];
    let chunks = [Codec::Estargz, Codec::ZstdChunked];
    let frames = [Codec::Gzip, Codec::Zstd];
    let others = [Codec::Tar, Codec::Estargz, Codec::ZstdChunked];
    let span = |source: u64, plain: Range<u64>, data: Range<u64>, bit_offset| Span {
        source: 7..7 + source,
        plain,
        data,
        bit_offset,
        window: None,
        digest: Digest::of(b""),
    };
    let reversed = |change: fn(&mut Span)| {
        let mut span = span(9, 0..9, 0..9, 0);
        change(&mut span);
        span
    };
    let (plain, data) = (MAX_SPAN_PLAIN, MAX_SPAN_DATA);
    for (codecs, span, expected) in [
        (&stream[..], span(9, 50..50 + plain, 8..8 + data, 7), USABLE),
        (&stream, span(9, 50..51 + plain, 8..9, 0), LARGE),
        (&stream, span(9, 50..51, 8..9 + data, 0), LARGE),
        // The bytes before a chunk's part are decoded as well.
        (&chunks, span(9, plain - 9..plain, 8..17, 7), USABLE),
        (&chunks, span(9, plain - 9..plain + 1, 8..18, 0), LARGE),
        (
            &chunks,
            span(9, 0..9, 8..18, 0),
            "its chunk yields another length",
        ),
        (
            &chunks,
            span(9, 0..9, 8..16, 0),
            "its chunk yields another length",
        ),
        (&stream, span(9, 0..9, 8..18, 0), USABLE),
        (&frames, span(1, 0..9, 0..9, 0), PART),
        (&frames, span(2, 0..9, 0..9, 0), USABLE),
        (&others, span(1, 0..9, 0..9, 0), USABLE),
        (&stream, span(9, 0..9, 0..9, 8), "more than 7 bits into a byte"),
        (&chunks, span(9, 0..9, 0..9, 8), "more than 7 bits into a byte"),
        (
            &stream,
            reversed(|span| span.source = 9..8),
            "a range ends before it starts",
        ),
        (
            &stream,
            reversed(|span| span.plain = 9..8),
            "a range ends before it starts",
        ),
        (
            &stream,
            reversed(|span| span.data = 9..8),
            "a range ends before it starts",
        ),
    ] {
        for codec in codecs {
            let said = decode_span(*codec, &span, &[], b"", None)
                .unwrap_err()
                .to_string();
            assert!(said.contains(expected), "{codec:?} {span:?}: {said}");
        }
    }
}

/// Frames that follow each other, frames that say nothing, and what comes behind them.
#[test]
fn as_much_of_zstd_frames_as_is_asked_for() {
    let plain = mixture(9, 60_000);
    let frame = |bytes: &[u8]| zstd::bulk::compress(bytes, 3).unwrap();
    let two = [frame(&plain[..20_000]), frame(&plain[20_000..])].concat();
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"12345"].concat();
    let skipped = [
        &skippable[..],
        &frame(&plain[..20_000]),
        &skippable,
        &frame(&plain[20_000..]),
    ]
    .concat();
    let with_more = [&frame(&plain)[..], b"no frame"].concat();
    let cut = two[..two.len() - 9].to_vec();
    for (what, source, length, expected) in [
        ("both", &two, 60_000, Some(60_000)),
        ("the first", &two, 20_000, Some(20_000)),
        ("the first and a byte", &two, 20_001, Some(20_001)),
        ("a part of the first", &two, 1, Some(1)),
        ("more than there is", &two, 60_001, None),
        ("behind what is skipped", &skipped, 60_000, Some(60_000)),
        ("a part behind what is skipped", &skipped, 30_000, Some(30_000)),
        ("what is before no frame", &with_more, 60_000, Some(60_000)),
        (
            "what is before an end that is missing",
            &cut,
            20_000,
            Some(20_000),
        ),
        ("all before an end that is missing", &cut, 60_000, None),
        ("nothing", &Vec::new(), 1, None),
    ] {
        let span = chunk(length, source, 0..length as u64, &[&plain[..], b"x"].concat());
        let found = decode_span(Codec::ZstdChunked, &span, &[], source, None);
        match (expected, found) {
            (Some(expected), Ok(bytes)) => assert!(bytes == plain[..expected], "{what}"),
            (None, Err(DecodeError::Short { expected, found })) => assert!(found < expected, "{what}"),
            (expected, found) => panic!(
                "{what}: {:?} instead of {expected:?}",
                found.map(|bytes| bytes.len())
            ),
        }
    }
}
