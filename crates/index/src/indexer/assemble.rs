//! Puts together what the three threads found.

use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, LayerIndex, Section, Span, Window};

use super::layout::Layout;
use super::scan::Scanned;
use super::spans::Spanned;
use super::streams::Streams;
use super::{IndexError, IndexedLayer, Laziness};

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
    let laziness = Laziness::of(&index);
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
