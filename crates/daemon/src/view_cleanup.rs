//! Cleans up when views go: views whose holders died, and the layers that only such views read.

use std::collections::HashSet;
use std::sync::Arc;

use xebec_cache::store::LayerKey;
use xebec_fill::fill_service::FillService;
use xebec_views::unguarded_views::Suspects;
use xebec_views::views::Views;

use crate::corrections::Corrections;
use crate::loaded_images::Loadings;

/// Gives up the resources of views that go.
pub(crate) struct ViewCleanup {
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) suspects: Arc<Suspects>,
    pub(crate) corrections: Arc<Corrections>,
    pub(crate) loadings: Arc<Loadings>,
}

impl ViewCleanup {
    /// Called now and then.
    pub(crate) fn sweep(&self) {
        self.views.sweep();
        self.suspects.sweep();
        self.forget_unused();
    }

    /// Layers of no view are served no more; their files stay.
    pub(crate) fn forget_unused(&self) {
        // A layer that is forgotten takes the notes of its wrong pages with it.
        for served in self.fills.all() {
            self.corrections.report_mismatches(&served);
        }
        let views = self.views.list();
        // Nothing comes for a view that lingers.
        self.loadings
            .retain(|name| views.iter().any(|view| view.name == name && view.is_held()));
        let views = views.into_iter().flat_map(|view| view.layers);
        let used: HashSet<LayerKey> = views.chain(self.suspects.layers()).map(LayerKey::from).collect();
        self.fills.retain(|key| used.contains(&key));
    }
}
