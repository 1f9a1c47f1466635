//! Start-up pages come into the page cache of a view while its service starts.

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::debug;
use xebec_fill::page_set::PageSet;
use xebec_views::page_cache_prefill::Prefill;
use xebec_views::views::Views;

use crate::background::Background;
use crate::held_view::HeldView;

/// Brings sets of the start-up pages of a view that was just mounted into the page cache of its files, one after the other as
/// they are told. Each must be there, and guarded no more. `None` if the start-up pages are too few or too many.
pub(crate) fn prefill(
    views: &Arc<Views>,
    background: &Background,
    view: &HeldView,
    free: &PageSet,
) -> Option<mpsc::UnboundedSender<Arc<PageSet>>> {
    let prefill = Prefill::new(views, &view.name, &view.path, &view.tree, free)?;
    let prefill = Arc::new(prefill);
    let (tell, mut told) = mpsc::unbounded_channel::<Arc<PageSet>>();
    let (views, background) = (views.clone(), background.clone());
    tokio::spawn(async move {
        while let Some(pages) = told.recv().await {
            let (views, prefill) = (views.clone(), prefill.clone());
            let brought = background.run_spare(move || prefill.bring(&views, &pages));
            if let Err(failure) = brought.await {
                debug!("start-up pages are not brought into memory: {failure}");
            }
        }
    });
    Some(tell)
}
