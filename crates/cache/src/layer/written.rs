//! Which spans have been written whole.

use xebec_format::layer::SpanTable;

use super::pages::pages_of;
use crate::presence::Presence;

/// Which spans have been written whole, verified. A page at the boundary of two spans is whole when both are.
#[derive(Debug)]
pub(super) struct WrittenSpans(Vec<bool>);

impl WrittenSpans {
    /// The spans all of whose pages are present and verified.
    pub(super) fn of(table: &SpanTable, presence: &Presence) -> Self {
        let is_written = |pages: std::ops::Range<u64>| {
            presence.missing(pages.clone()).is_empty() && presence.unverified().within([pages]).is_empty()
        };
        let spans = table.spans.iter();
        Self(spans.map(|span| is_written(pages_of(&span.data))).collect())
    }

    pub(super) fn has(&self, index: usize) -> bool {
        self.0.get(index).copied().unwrap_or(false)
    }

    pub(super) fn set(&mut self, index: usize, value: bool) {
        if let Some(written) = self.0.get_mut(index) {
            *written = value;
        }
    }
}
