//! Which layers a runtime image's pages may be written into: those whose readers all admit the evidence for the recording.

use std::sync::Arc;

use xebec_cache::store::LayerKey;
use xebec_images::images::Images;
use xebec_protocol::failure::Failure;
use xebec_trust::Evidence;
use xebec_views::recording_admission::{Injecting, RecordingAdmission, TrustRequirement};
use xebec_views::unguarded_views::Suspects;
use xebec_views::views::{ViewRecord, Views};

use crate::background::Background;

/// Which layers pages may be written into.
pub(crate) struct Injections {
    pub(crate) images: Images,
    pub(crate) views: Arc<Views>,
    pub(crate) suspects: Arc<Suspects>,
    pub(crate) recording_admission: Arc<RecordingAdmission>,
    pub(crate) background: Background,
}

impl Injections {
    /// The layers that each view reads, and the trust that its readers require: mounted views, also those without a known user, and
    /// views that were unmounted while processes read them. Of suspects nothing is known.
    fn readers(&self) -> Vec<(Vec<LayerKey>, Option<TrustRequirement>)> {
        let mut readers = self.views.departed();
        for view in self.views.list() {
            let layers: Vec<LayerKey> = view.layers.iter().map(|pair| (*pair).into()).collect();
            if view.uses.is_empty() {
                readers.push((layers.clone(), None));
            }
            let uses = view.uses.into_iter();
            readers.extend(uses.map(|by| (layers.clone(), Some(by))));
        }
        let suspects = self.suspects.layers().into_iter().map(LayerKey::from).collect();
        readers.push((suspects, None));
        readers
    }

    /// Begins to bring pages into those of the layers whose readers all admit the evidence for them. Views that linger and would
    /// stand in the way are taken down: then it shows whether anybody is on them.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        keys: Vec<LayerKey>,
        evidence: &Evidence,
    ) -> Result<Injecting, Failure> {
        let policy = self.images.policy()?;
        let evidence = evidence.clone();
        let this = self.clone();
        let begun = self.background.run(move || {
            let is_admitted = |view: &ViewRecord, key: LayerKey| match view.uses.as_slice() {
                [] => evidence.own,
                uses => uses.iter().all(|by| by.admits(&evidence, key, &policy)),
            };
            this.views.take_down_unused(|view| {
                let mut read = keys.iter().filter(|key| view.reads(**key));
                read.any(|key| !is_admitted(view, *key))
            });
            // While nobody waits for the table: those whose readers have gone are forgotten.
            let _ = this.views.departed();
            let readers = || this.readers();
            this.recording_admission.inject(keys, &evidence, readers, &policy)
        });
        begun.await
    }
}
