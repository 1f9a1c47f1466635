//! Pages that a runtime image brings, and fetching the spans that they must be compared with.

use std::io;

use super::*;
use crate::layer::Compared;

/// Groups of spans that are fetched at a time to be compared. As with completing a layer, two keep the link busy while
/// one decodes.
const CHECKED_GROUPS: usize = 3;

impl Filler {
    /// [`CachedLayer::inject`], counted.
    ///
    /// # Errors
    /// As there.
    pub fn inject(&self, pieces: &[(u64, &[u8])]) -> io::Result<u64> {
        let pages = self.layer.inject(pieces)?;
        FillStats::add(&self.stats.injected_pages, pages);
        Ok(pages)
    }

    /// [`CachedLayer::inject_zeros`], counted.
    ///
    /// # Errors
    /// As there.
    pub fn inject_zeros(&self, pages: Range<u64>) -> io::Result<u64> {
        let pages = self.layer.inject_zeros(pages)?;
        FillStats::add(&self.stats.injected_pages, pages);
        Ok(pages)
    }

    /// Returns once no page that `range` (bytes of the data space) touches is unverified: the spans of those that are
    /// get fetched, compared and written, some groups at a time. Pages that were wrong are then right, and
    /// [`CachedLayer::take_mismatches`] tells of them. Missing pages stay missing, unless they are of such a span.
    ///
    /// Must run inside a tokio runtime.
    ///
    /// # Errors
    /// At the first span that could not be fetched, verified or written as long as `patience` lasted.
    pub async fn cross_check(
        self: &Arc<Self>,
        range: Range<u64>,
        patience: Patience,
        ticket: &Ticket,
    ) -> Result<(), FillError> {
        use futures_util::stream::{self, TryStreamExt};
        loop {
            let wanted = self.layer.unverified_spans(range.clone());
            if wanted.is_empty() {
                return Ok(());
            }
            let groups = self.groups(&wanted);
            stream::iter(groups.into_iter().map(Ok))
                .try_for_each_concurrent(CHECKED_GROUPS, |group| async move {
                    self.bring(group, patience, ticket, Self::is_unverified, |_| ())
                        .await
                })
                .boxed()
                .await?;
            // Others may have been injected meanwhile.
        }
    }

    fn is_unverified(&self, span: usize) -> bool {
        let range = self.layer.table().spans.get(span).map(|span| span.data.clone());
        range.is_some_and(|range| self.layer.unverified_spans(range).contains(&span))
    }

    /// Counts what writing a span told.
    pub(super) fn account(&self, span: usize, compared: Compared) {
        FillStats::add(&self.stats.checked_pages, compared.verified);
        FillStats::add(&self.stats.mismatches, compared.mismatches);
        if compared.mismatches > 0 {
            error!(
                layer = %self.layer.key().layer, span,
                "{} pages from a runtime image differed from the layer; Xebec corrected them", compared.mismatches
            );
        }
    }
}
