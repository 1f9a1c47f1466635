//! What happens between an image that is prepared and its view, so that a service starts only on pages whose recording it admits:
//! those that earlier runtime images brought are compared where what vouched for them does not suffice now.

use std::sync::{Arc, PoisonError};
use std::time::Duration;
use xebec_images::facts;

use tracing::{error, info};
use xebec_cache::fill::Patience;
use xebec_cache::progress::Ticket;
use xebec_cache::store::LayerKey;
use xebec_fill::correction_count;
use xebec_fill::page_set::PageSet;
use xebec_fill::served::ServedLayer;
use xebec_fill::unverified_sources::{self, Injection};
use xebec_images::prepare::PreparedImage;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::Purpose;
use xebec_trust::Evidence;
use xebec_views::page_cache_prefill;
use xebec_views::recording_admission::{Injecting, TrustRequirement};
use xebec_views::views::ViewRecord;

use crate::services::Services;
use crate::start_table::START;

/// The kernel's own read-ahead.
const READ_AHEAD_KIB: u32 = 128;

impl Services {
    /// Who reads which layers, and what they need: by mounted views, also those that nobody is known to use any more, and by views
    /// that were unmounted under their readers. Suspects are views of which nothing is known.
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

    /// Begins to bring pages into those of the layers whose readers all admit what vouches for them. Views that
    /// linger and would stand in the way are taken down: then it shows whether anybody is on them.
    pub(super) async fn begin_injecting(
        self: &Arc<Self>,
        keys: Vec<LayerKey>,
        evidence: &Evidence,
    ) -> Result<Injecting, Failure> {
        let policy = self.images.policy()?;
        let evidence = evidence.clone();
        self.in_background(move |this| {
            let is_believed = |view: &ViewRecord, key: LayerKey| match view.uses.as_slice() {
                [] => evidence.own,
                uses => uses.iter().all(|by| by.admits(&evidence, key, &policy)),
            };
            this.views.take_down_unused(|view| {
                let mut read = keys.iter().filter(|key| view.reads(**key));
                read.any(|key| !is_believed(view, *key))
            });
            // While nobody waits for the table: those whose readers have gone are forgotten.
            let _ = this.views.departed();
            let readers = || this.readers();
            this.recording_admission.inject(keys, &evidence, readers, &policy)
        })
        .await
    }

    /// Compares the pages that runtime images brought, in layers where what vouches for them is weaker than what the
    /// image's index rests on now, or than the policy asks for the image as it is named; all of them before a recording,
    /// which counts as far as its pages do.
    pub(super) async fn check_injected(
        self: &Arc<Self>,
        prepared: &PreparedImage,
        purpose: &Purpose,
    ) -> Result<(), Failure> {
        let found = &prepared.found;
        let repository = facts::repository_name(found.reference.repository())?;
        let mut policy = None;
        for layer in &prepared.layers {
            let served = self.fills.serve(layer.key, Some(&layer.index))?;
            // Before the view is named: it must not be one that has a lie in memory.
            self.report_mismatches(&served);
            if *purpose == Purpose::Recording {
                self.compare_injected(&served).await?;
                // The process that records looks at the files, where that stands only then.
                self.sync_layer(&served).await?;
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
                let root = injection.evidence.root(policy, &repository, found.naming());
                root.is_ok_and(|root| root >= layer.root)
            };
            let is_believed = !injections.is_empty() && injections.iter().all(suffices);
            if !is_believed {
                self.compare_injected(&served).await?;
            }
        }
        Ok(())
    }

    /// Fetches the spans of every page that runtime images brought into a layer, and compares.
    pub(super) async fn compare_injected(self: &Arc<Self>, served: &Arc<ServedLayer>) -> Result<(), Failure> {
        let layer = served.layer();
        if !layer.has_unverified() {
            return Ok(());
        }
        info!(
            "compares the pages that runtime images brought into {}",
            layer.key()
        );
        let all = 0..layer.table().data_size;
        let compared = served
            .filler()
            .cross_check(all, Patience::Brief, &Ticket::default())
            .await;
        self.report_mismatches(served);
        compared.map_err(|error| Failure::new(FailureKind::Registry, error))?;
        // Not only in memory: a power cut may bring back what was injected, and whoever injects next must not vouch for that.
        self.sync_layer(served).await?;
        unverified_sources::clear(self.images.store(), layer.key(), || {
            !layer.may_have_unverified() && !self.recording_admission.is_injecting(layer.key())
        });
        Ok(())
    }

    /// What tells a view over these layers from those that were built before pages of them were corrected, which may have
    /// the wrong ones in memory; `None` if none ever were.
    pub(super) fn salt(&self, layers: impl Iterator<Item = LayerKey> + Clone) -> Option<String> {
        for served in layers.clone().filter_map(|key| self.fills.find(key)) {
            self.report_mismatches(&served);
        }
        let _one = self.corrections.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = layers.map(|key| correction_count::count(self.images.store(), key));
        let corrections = counts.fold(0, u64::wrapping_add);
        (corrections > 0).then(|| format!("after {corrections} corrections"))
    }

    /// Says so when pages that a runtime image brought were not what the layer has, and uses its recordings no more.
    ///
    /// Any fill may find that out, also one that a reader waits for; so this is asked after what fills many spans, before a
    /// view is named, and at each sweep.
    pub(super) fn report_mismatches(&self, served: &Arc<ServedLayer>) {
        let key = served.layer().key();
        let (mismatches, noted) = {
            // Nobody names a view between the two.
            let _one = self.corrections.lock().unwrap_or_else(PoisonError::into_inner);
            let mismatches = served.layer().take_mismatches();
            if mismatches.is_empty() {
                return;
            }
            (mismatches, correction_count::add(self.images.store(), key))
        };
        let noted = noted.inspect_err(|failure| error!("{failure}"));
        error!(
            "ALARM: a runtime image brought other contents than {key} has, in its pages {mismatches:?}. Xebec corrected them, and \
             does not use its recordings again. Whoever pushed them may have meant harm"
        );
        for injection in unverified_sources::load(self.images.store(), key).unwrap_or_default() {
            if !injection.evidence.own
                && let Err(failure) = self.recordings.kept().distrust(injection.recording)
            {
                error!("{failure}");
            }
        }
        self.views.take_down_unused(|view| view.reads(key));
        let mut wrong = PageSet::default();
        wrong.insert(key, mismatches);
        for view in self.views.held() {
            if view.reads(key) {
                // Who has not mapped them reads what is right from now on.
                if let Some(known) = self.views.known_by_name(&view.name) {
                    page_cache_prefill::forget(&known.tree, &view.path, &wrong);
                }
                error!(
                    "ALARM: {} is mounted with it, for {:?}; stop the containers that run on it",
                    view.reference, view.holders
                );
            }
        }
        if noted.is_ok() {
            served.layer().mismatches_are_heard();
        }
    }

    /// The same for views whose service was starting when the last worker ended.
    pub(super) fn widen_restored(self: &Arc<Self>) {
        let narrow = self.views.list().into_iter().filter(|view| view.narrow.is_some());
        narrow.for_each(|view| self.widen_later(view.name));
    }

    /// Lets a view read ahead again once its service has started.
    pub(super) fn widen_later(self: &Arc<Self>, view: String) {
        self.widen_after(view, START);
    }

    /// Lets a view read ahead again after a time.
    pub(super) fn widen_after(self: &Arc<Self>, view: String, time: Duration) {
        let this = self.clone();
        let narrowed = self.views.times_narrowed(&view);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            this.views.widen(&view, READ_AHEAD_KIB, narrowed);
        });
    }
}
