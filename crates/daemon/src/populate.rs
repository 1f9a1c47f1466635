//! Start-up pages come into the page cache of a view while its service starts.

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::debug;
use xebec_fill::page_set::PageSet;
use xebec_views::page_cache_prefill::Prefill;

use crate::held_view::HeldView;
use crate::services::Services;

impl Services {
    /// Brings sets of the free pages of a view that was just mounted into the page cache of its files, one after the other as
    /// they are told. Each must be there, and guarded no more. `None` if the free pages are too few or too many.
    pub(super) fn populate(
        self: &Arc<Self>,
        view: &HeldView,
        free: &PageSet,
    ) -> Option<mpsc::UnboundedSender<Arc<PageSet>>> {
        let prefill = Prefill::new(&self.views, &view.name, &view.path, &view.tree, free)?;
        let prefill = Arc::new(prefill);
        let (tell, mut told) = mpsc::unbounded_channel::<Arc<PageSet>>();
        let this = self.clone();
        tokio::spawn(async move {
            while let Some(pages) = told.recv().await {
                let (here, prefill) = (this.clone(), prefill.clone());
                let brought = this
                    .background
                    .run_spare(move || prefill.bring(&here.views, &pages));
                if let Err(failure) = brought.await {
                    debug!("start-up pages are not brought into memory: {failure}");
                }
            }
        });
        Some(tell)
    }
}
