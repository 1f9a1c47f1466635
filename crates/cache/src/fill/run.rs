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
