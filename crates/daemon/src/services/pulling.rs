//! The services that bring images to this host, without a view.

use std::sync::Arc;

use xebec_recordings::bandwidth::Bandwidths;
use xebec_views::recording_admission::RecordingAdmission;

use super::cache::CacheServices;
use super::opened::Opened;
use crate::background::Background;
use crate::completion::Completions;
use crate::integrity_check::IntegrityCheck;
use crate::preparation::Preparation;
use crate::proofs::Proofs;
use crate::pulls::Pulls;

/// The services that bring images to this host, without a view.
pub(super) struct PullServices {
    pub(super) bandwidths: Arc<Bandwidths>,
    pub(super) recording_admission: Arc<RecordingAdmission>,
    pub(super) preparation: Arc<Preparation>,
    pub(super) integrity: Arc<IntegrityCheck>,
    pub(super) proofs: Arc<Proofs>,
    pub(super) completions: Arc<Completions>,
    pub(super) pulls: Arc<Pulls>,
}

impl PullServices {
    /// Over the parts that are open.
    pub(super) fn new(opened: &Opened, cache: &CacheServices, background: &Background) -> Self {
        let Opened { images, fills, .. } = opened;
        let (bandwidths, recording_admission) = <(Arc<Bandwidths>, Arc<RecordingAdmission>)>::default();
        let preparation = Arc::new(Preparation {
            images: images.clone(),
            recordings: opened.recordings.clone(),
            fills: fills.clone(),
            bandwidths: bandwidths.clone(),
            background: background.clone(),
        });
        let integrity = Arc::new(IntegrityCheck {
            images: images.clone(),
            fills: fills.clone(),
            recording_admission: recording_admission.clone(),
            corrections: cache.corrections.clone(),
            durability: cache.durability.clone(),
        });
        // Wrong pages of a recording must not be taken for a fault of the index, so a proof begins with a comparison.
        let proofs = Arc::new(Proofs {
            images: images.clone(),
            fills: fills.clone(),
            views: opened.views.clone(),
            shared: cache.shared.clone(),
            integrity: integrity.clone(),
            background: background.clone(),
        });
        let completions = Arc::new(completions(opened, cache, &integrity, &proofs, background));
        let pulls = Arc::new(Pulls {
            images: images.clone(),
            fills: fills.clone(),
            preparation: preparation.clone(),
            completions: completions.clone(),
            proofs: proofs.clone(),
            cleanup: cache.cleanup.clone(),
            stopping: cache.stopping.clone(),
        });
        Self {
            bandwidths,
            recording_admission,
            preparation,
            integrity,
            proofs,
            completions,
            pulls,
        }
    }
}

/// A layer that is complete is synced and proven.
fn completions(
    opened: &Opened,
    cache: &CacheServices,
    integrity: &Arc<IntegrityCheck>,
    proofs: &Arc<Proofs>,
    background: &Background,
) -> Completions {
    Completions {
        store: opened.images.store().clone(),
        fills: opened.fills.clone(),
        views: opened.views.clone(),
        shared: cache.shared.clone(),
        corrections: cache.corrections.clone(),
        integrity: integrity.clone(),
        durability: cache.durability.clone(),
        proofs: proofs.clone(),
        quota: cache.quota.clone(),
        background: background.clone(),
    }
}
