//! Spans that follow each other in a layer's blob, as one request brings them.

use std::ops::Range;

use xebec_format::layer::{Span, SpanTable, Window};

/// The spans of one fetch, and the ranges that it asks for.
pub(super) struct Run {
    /// The spans, each with its number.
    pub(super) spans: Vec<(usize, Span)>,
    /// Their range of the layer's blob.
    pub(super) source: Range<u64>,
    /// The range of the section of windows that they are decoded with, if they are.
    pub(super) history: Option<Range<u64>>,
}

impl Run {
    /// Spans by their numbers, ascending; `None` if there are none.
    pub(super) fn of(table: &SpanTable, numbers: &[usize]) -> Option<Self> {
        let spans: Vec<(usize, Span)> = numbers
            .iter()
            .filter_map(|&number| table.spans.get(number).map(|span| (number, span.clone())))
            .collect();
        let (_, first) = spans.first()?;
        let end = spans.iter().map(|(_, span)| span.source.end).max()?;
        let source = first.source.start..end;
        let mut windows = spans.iter().filter_map(|(_, span)| span.window.as_ref());
        let end_of = |window: &Window| window.offset + u64::from(window.length);
        let first = windows.next();
        let last = windows.next_back().or(first);
        let history = first.zip(last).map(|(first, last)| first.offset..end_of(last));
        Some(Self {
            spans,
            source,
            history,
        })
    }

    /// How many bytes come.
    pub(super) fn bytes(&self) -> u64 {
        let history = self.history.as_ref();
        self.source.end - self.source.start + history.map_or(0, |range| range.end - range.start)
    }
}

#[cfg(test)]
mod tests {
    use xebec_format::digest::Digest;
    use xebec_format::layer::Codec;

    use super::*;

    #[test]
    fn a_run_asks_for_all_bytes_of_its_spans_and_of_their_windows() {
        let span = |source: Range<u64>, window: Option<(u64, u32)>| Span {
            source,
            bit_offset: 0,
            plain: 0..1,
            data: 0..1,
            window: window.map(|(offset, length)| Window {
                offset,
                length,
                digest: Digest::of(b""),
            }),
            digest: Digest::of(b""),
        };
        let table = SpanTable {
            layer: Digest::of(b"layer"),
            layer_size: 60,
            codec: Codec::Gzip,
            plain_size: 1,
            data_size: 4096,
            // Neighbours in gzip share a byte; a span may begin in the one before it.
            spans: vec![
                span(10..21, None),
                span(20..50, Some((100, 7))),
                span(30..45, Some((107, 5))),
            ],
            pieces: Vec::new(),
            windows: None,
        };
        let run = |numbers: &[usize]| {
            let run = Run::of(&table, numbers)?;
            Some((run.source.clone(), run.history.clone(), run.bytes()))
        };
        assert_eq!(run(&[0, 1, 2]), Some((10..50, Some(100..112), 52)));
        assert_eq!(run(&[0, 1]), Some((10..50, Some(100..107), 47)));
        assert_eq!(run(&[2]), Some((30..45, Some(107..112), 20)));
        assert_eq!(run(&[0]), Some((10..21, None, 11)));
        assert_eq!(run(&[3]), None);
    }
}
