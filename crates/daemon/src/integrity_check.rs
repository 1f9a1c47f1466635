//! The integrity check between the preparation of an image and its view, so that a service starts only on pages whose recording it
//! admits. Pages that earlier runtime images brought are compared if their root of trust does not suffice now.

use std::sync::Arc;

use tracing::info;
use xebec_cache::fill::Patience;
use xebec_cache::progress::Ticket;
use xebec_fill::fill_service::FillService;
use xebec_fill::served::ServedLayer;
use xebec_fill::unverified_sources::{self, Injection};
use xebec_images::facts;
use xebec_images::images::Images;
use xebec_images::prepare::PreparedImage;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::Purpose;
use xebec_views::recording_admission::RecordingAdmission;

use crate::corrections::Corrections;
use crate::durability::Durability;
use crate::fill_failure::kind_of;

/// Compares unverified pages with their layers.
pub(crate) struct IntegrityCheck {
    pub(crate) images: Images,
    pub(crate) fills: Arc<FillService>,
    pub(crate) recording_admission: Arc<RecordingAdmission>,
    pub(crate) corrections: Arc<Corrections>,
    pub(crate) durability: Arc<Durability>,
}

impl IntegrityCheck {
    /// Compares the pages that runtime images brought. It does so in layers where the root of trust of these pages is weaker than
    /// that of the image's index now, or than the policy asks for the image as it is named. Before a recording it compares all of
    /// them, since a recording counts as far as its pages do.
    pub(crate) async fn check_injected(
        &self,
        prepared: &PreparedImage,
        purpose: &Purpose,
    ) -> Result<(), Failure> {
        let found = &prepared.found;
        let repository = facts::repository_name(found.reference.repository())?;
        let mut policy = None;
        for layer in &prepared.layers {
            let served = self.fills.serve(layer.key, Some(&layer.index))?;
            // Before the view is named: it must not be one that has a lie in memory.
            self.corrections.report_mismatches(&served);
            if *purpose == Purpose::Recording {
                self.compare_injected(&served).await?;
                // The process that records looks at the files, where that stands only then.
                self.durability.sync_layer(&served).await?;
                continue;
            }
            if !served.layer().has_unverified() {
                continue;
            }
            let policy = match &policy {
                Some(policy) => policy,
                None => policy.insert(self.images.policy()?),
            };
            let injections = unverified_sources::load(self.images.store(), layer.key).unwrap_or_default();
            let suffices = |injection: &Injection| {
                if self.corrections.is_distrusted(injection.recording) {
                    return false;
                }
                let root = injection.evidence.root(policy, &repository, found.naming());
                root.is_ok_and(|root| root >= layer.root)
            };
            let is_admitted = !injections.is_empty() && injections.iter().all(suffices);
            if !is_admitted {
                self.compare_injected(&served).await?;
            }
        }
        Ok(())
    }

    /// Fetches the spans of every page that runtime images brought into a layer, and compares. Afterwards the layer's files say
    /// so as well: a proof and other processes read nothing else.
    pub(crate) async fn compare_injected(&self, served: &Arc<ServedLayer>) -> Result<(), Failure> {
        let layer = served.layer();
        if !layer.may_have_unverified() {
            return Ok(());
        }
        if layer.has_unverified() {
            info!(
                "compares the pages that runtime images brought into {}",
                layer.key()
            );
            let all = 0..layer.table().data_size;
            let compared = served
                .filler()
                .cross_check(all, Patience::Brief, &Ticket::default())
                .await;
            self.corrections.report_mismatches(served);
            compared.map_err(|error| Failure::new(kind_of(&error), error))?;
        }
        // Not only in memory: a power cut may bring back injected pages, and the next recording must not vouch for those.
        self.durability.sync_layer(served).await?;
        unverified_sources::clear(self.images.store(), layer.key(), || {
            !layer.may_have_unverified() && !self.recording_admission.is_injecting(layer.key())
        });
        Ok(())
    }
}
