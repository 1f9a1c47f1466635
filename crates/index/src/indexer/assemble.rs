//! Puts together what the three threads found.

use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, LayerIndex, Section, Span, Window};

use super::layout::Layout;
use super::scan::Scanned;
use super::spans::Spanned;
use super::streams::Streams;
use super::{IndexError, IndexedLayer, Laziness, MAX_LAZY_PLAIN};
use crate::decode::MAX_SPAN_DATA;

pub(super) fn assemble(
    scanned: Scanned,
    layout: Option<Layout>,
    streams: Streams,
) -> Result<IndexedLayer, IndexError> {
    let Some(layout) = layout else {
        return Err(IndexError::Thread(
            "index-layout missed the end of the layer".into(),
        ));
    };
    let laziness = laziness(scanned.codec, &layout.spans);
    let (spans, windows) = place_windows(layout.spans, streams.windows)?;
    let index = LayerIndex {
        layer: streams.layer,
        layer_size: streams.layer_size,
        diff_id: Some(streams.diff_id),
        codec: scanned.codec,
        plain_size: layout.summary.plain_size,
        data_size: layout.summary.data_size,
        entries: layout.entries,
        pieces: layout.pieces,
        spans,
        windows: (scanned.codec == Codec::Gzip).then(|| section(&windows)),
        frame: Some(section(&layout.frame)),
        contents: Some(section(&layout.contents)),
    };
    Ok(IndexedLayer {
        index,
        windows,
        frame: layout.frame,
        contents: layout.contents,
        laziness,
    })
}

fn section(bytes: &[u8]) -> Section {
    Section {
        digest: Digest::of(bytes),
        size: bytes.len() as u64,
    }
}

/// Lays the windows of those spans that have contents one behind the other.
fn place_windows(
    spanned: Vec<Spanned>,
    mut histories: Vec<Vec<u8>>,
) -> Result<(Vec<Span>, Vec<u8>), IndexError> {
    let mut windows = Vec::new();
    let mut spans = Vec::with_capacity(spanned.len());
    for span in spanned {
        let window = match span.history {
            None => None,
            Some(number) => {
                let Some(bytes) = histories.get_mut(number).map(std::mem::take) else {
                    return Err(IndexError::Thread(format!(
                        "window {number} was never compressed"
                    )));
                };
                let offset = windows.len() as u64;
                windows.extend_from_slice(&bytes);
                Some(Window {
                    offset,
                    length: bytes.len() as u32,
                    digest: Digest::of(&bytes),
                })
            }
        };
        spans.push(Span {
            source: span.source,
            bit_offset: span.bit,
            plain: span.plain,
            data: span.data,
            window,
            digest: span.digest,
        });
    }
    Ok((spans, windows))
}

/// Whether all spans are small enough, and if not, what the user can do.
fn laziness(codec: Codec, spans: &[Spanned]) -> Laziness {
    let plain = spans
        .iter()
        .map(|span| span.plain.end - span.plain.start)
        .max()
        .unwrap_or(0);
    let data = spans
        .iter()
        .map(|span| span.data.end - span.data.start)
        .max()
        .unwrap_or(0);
    if plain <= MAX_LAZY_PLAIN && data <= MAX_SPAN_DATA {
        return Laziness::Lazy;
    }
    let mib = plain >> 20;
    let reason = match codec {
        Codec::Zstd | Codec::ZstdChunked => format!(
            "a single zstd frame holds {mib} MiB, and a frame can only be decoded from its start; \
             recompress the layer as zstd:chunked or with many frames, or as gzip"
        ),
        Codec::Gzip | Codec::Estargz if plain > MAX_LAZY_PLAIN => format!(
            "a single deflate block holds {mib} MiB, and decoding can only start where a block starts; \
             recompress the layer with another gzip encoder"
        ),
        _ => format!(
            "its sparse files spread one span over {} MiB of data; rebuild the layer without sparse files",
            data >> 20
        ),
    };
    Laziness::NotLazy { reason }
}
