//! Entry points for fuzz targets: each takes arbitrary bytes and panics only when a promise is broken.

use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Piece, Span, Window};

use crate::decode::decode_span;
use crate::indexer::{IndexOptions, IndexedLayer, Laziness, index_layer};
use crate::inflate::{Decoder, HISTORY, InflateError, Input, OUTPUT_SLACK, Output, Stop};
use crate::restore::restore_tar;
use crate::tar::TarLimits;

/// Most plain bytes that fuzzing looks at: deflate can grow a thousandfold, and time is better spent elsewhere.
const MAX_PLAIN: usize = 4 << 20;

/// Inflates `stream` with `input_step` bytes of input and `output_step` bytes of output at a time; gives the plain
/// bytes, and how many bytes of `stream` they took. Stops early after `max_plain` bytes.
///
/// # Errors
/// The error of [`Decoder::run`].
pub fn inflate_in_steps(
    stream: &[u8],
    input_step: usize,
    output_step: usize,
    max_plain: usize,
) -> Result<(Vec<u8>, usize), InflateError> {
    let mut decoder = Decoder::new();
    let mut plain = Vec::new();
    let mut buffer = vec![0; HISTORY + output_step + OUTPUT_SLACK];
    let (mut consumed, mut given, mut position) = (0, input_step.min(stream.len()), 0);
    loop {
        let bytes = &stream[consumed..given];
        let mut input = Input {
            bytes,
            position: 0,
            last: given == stream.len(),
        };
        let limit = position + output_step;
        let mut output = Output {
            bytes: &mut buffer,
            position,
            history: 0,
            limit,
            references: None,
        };
        let stop = decoder.run(&mut input, &mut output)?;
        plain.extend_from_slice(&output.bytes[position..output.position]);
        consumed += input.position;
        let keep = output.position.min(HISTORY);
        let moved = output.position - keep;
        buffer.copy_within(moved..moved + keep, 0);
        position = keep;
        match stop {
            Stop::End => return Ok((plain, consumed)),
            Stop::Input => given = (given + input_step.max(1)).min(stream.len()),
            Stop::Block | Stop::Output if plain.len() >= max_plain => return Ok((plain, consumed)),
            Stop::Block | Stop::Output => {}
        }
    }
}

/// Inflates arbitrary bytes; cutting input and output differently must not change the result.
pub fn inflate(bytes: &[u8]) {
    let whole = inflate_in_steps(bytes, bytes.len(), 64 << 10, MAX_PLAIN);
    let steps = inflate_in_steps(bytes, 7, 300, MAX_PLAIN);
    match (whole, steps) {
        (Ok((whole, _)), Ok((steps, _))) => {
            let compared = whole.len().min(MAX_PLAIN);
            assert_eq!(whole.get(..compared), steps.get(..compared));
            assert!(compared == MAX_PLAIN || steps.len() == compared);
        }
        // One of them stopped at the limit, just before the place where the other met the error.
        (Ok((plain, _)), Err(_)) | (Err(_), Ok((plain, _))) => assert!(plain.len() >= MAX_PLAIN),
        (Err(_), Err(_)) => {}
    }
}

/// Indexes arbitrary bytes; an index that comes of it must be right in every span, and give the tar back.
pub fn index(blob: &[u8]) {
    let tar = TarLimits {
        special: 64 << 10,
        entries: 1000,
        tree: 1 << 20,
        data: 32 << 20,
        ..TarLimits::default()
    };
    let options = IndexOptions {
        tar,
        max_plain: MAX_PLAIN as u64,
        max_frame: 1 << 20,
        max_hashed_holes: 1 << 20,
        ..IndexOptions::default()
    };
    if let Ok(layer) = index_layer(blob, &options, None) {
        verify(blob, &layer);
    }
}

/// Checks an index against the blob that it was made from: every span decodes, and the tar is restored.
///
/// # Panics
/// When something is wrong.
pub fn verify(blob: &[u8], layer: &IndexedLayer) {
    let index = &layer.index;
    assert_eq!(index.layer, Digest::of(blob));
    assert_eq!(index.layer_size, blob.len() as u64);
    assert_eq!(index.check(), Ok(()));
    if layer.laziness != Laziness::Lazy {
        return;
    }
    let mut data = vec![0; index.data_size as usize];
    for span in &index.spans {
        let source = &blob[span.source.start as usize..span.source.end as usize];
        let window = span.window.as_ref();
        let window = window.map(|w| &layer.windows[w.offset as usize..w.offset as usize + w.length as usize]);
        let decoded = decode_span(index.codec, span, &index.pieces, source, window);
        assert!(decoded.is_ok(), "{decoded:?} from {span:?}");
        let decoded = decoded.unwrap_or_default();
        data[span.data.start as usize..span.data.end as usize].copy_from_slice(&decoded);
    }
    let restored = restore_tar(index, &layer.frame[..], &data[..], std::io::sink());
    assert!(
        matches!(restored, Ok(digest) if Some(digest) == index.diff_id),
        "{restored:?}"
    );
}

/// Decodes a span whose every field is taken from `bytes`. The decoded bytes must be as long as the span says.
pub fn decode(bytes: &[u8]) {
    let Some((fields, rest)) = bytes.split_first_chunk::<16>() else {
        return;
    };
    let number = |at: usize| u64::from(u16::from_le_bytes([fields[at], fields[at + 1]]));
    let codecs = [
        Codec::Tar,
        Codec::Gzip,
        Codec::Zstd,
        Codec::Estargz,
        Codec::ZstdChunked,
    ];
    let codec = codecs[usize::from(fields[0]) % codecs.len()];
    let split = (number(2) as usize).min(rest.len());
    let (window, source) = rest.split_at(split);
    let named = Window {
        offset: 0,
        length: window.len() as u32,
        digest: Digest::of(window),
    };
    let mut span = Span {
        source: 0..source.len() as u64,
        bit_offset: fields[1] % 9,
        plain: number(4)..number(6),
        data: number(8)..number(10),
        window: (!window.is_empty()).then_some(named),
        digest: Digest::of(b""),
    };
    let piece = Piece {
        plain_offset: number(12),
        data_offset: number(8),
        length: number(14),
    };
    let first = decode_span(codec, &span, &[piece], source, Some(window));
    // Only the right digest lets bytes through: give the span its own digest, and look at the bytes.
    if let Err(crate::decode::DecodeError::Digest { found, .. }) = first {
        span.digest = found;
        let data = decode_span(codec, &span, &[piece], source, Some(window));
        assert!(matches!(data, Ok(data) if data.len() as u64 == span.data.end - span.data.start));
    }
}
