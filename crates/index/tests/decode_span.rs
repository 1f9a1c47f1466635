//! Spans with wrong bytes, windows and declarations: nothing but the right bytes ever comes out.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use support::{gzip, mixture, sample_tar};
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, LayerIndex, Span};
use xebec_index::decode::{DecodeError, MAX_SPAN_PLAIN, decode_span};
use xebec_index::indexer::{IndexOptions, IndexedLayer, index_layer};
use xebec_index::restore::{RestoreError, restore_tar};

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
        // Without its last byte a span may be whole: what that holds may be the end of the block only.
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
