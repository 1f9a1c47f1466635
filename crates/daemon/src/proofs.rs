//! Proofs: whole layers are compared with their digests and indexes, so that this host vouches for them itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{error, info, warn};
use xebec_cache::store::LayerKey;
use xebec_fill::fill_service::FillService;
use xebec_images::facts;
use xebec_images::images::Images;
use xebec_images::proof::{self, Verdict};
use xebec_protocol::failure::Failure;
use xebec_views::sharing::SharedContents;
use xebec_views::views::Views;

use crate::background::Background;
use crate::integrity_check::IntegrityCheck;

/// How long after a layer became complete its proof begins: putting it together and hashing it takes a core, which
/// the container that is just starting needs more.
const PROOF_DELAY: Duration = Duration::from_secs(5);

/// When the comparison of pages that runtime images brought is tried again, after the registry could not be asked.
const PROOF_AGAIN: Duration = Duration::from_secs(60);

/// Proves layers.
pub(crate) struct Proofs {
    pub(crate) images: Images,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) shared: Arc<SharedContents>,
    pub(crate) integrity: Arc<IntegrityCheck>,
    pub(crate) background: Background,
}

impl Proofs {
    /// Proves layers as they become complete, one at a time and not while a start may be under way, and lets others
    /// share their files.
    pub(crate) async fn prove_completed(self: Arc<Self>, mut completed: UnboundedReceiver<LayerKey>) {
        while let Some(key) = completed.recv().await {
            tokio::time::sleep(PROOF_DELAY).await;
            let proven = match facts::is_proven(self.images.store(), key) {
                // Its pages may have come anew, by a runtime image.
                true => self.compare_again(key).await,
                false => self.prove(key).await.map(|_| ()),
            };
            if let Err(failure) = proven {
                warn!("{key} is not proven: {failure}");
                self.try_later(key);
            }
            let this = self.clone();
            let _ = self.background.run(move || this.learn_contents(key)).await;
        }
    }

    /// Lets others share a layer's files, if it is complete and proven.
    fn learn_contents(&self, key: LayerKey) {
        let _look = self.fills.usage().look_at(key);
        self.shared.learn(self.images.store(), key);
    }

    /// The registry may be back then. A layer whose pages were all compared need not be proven.
    fn try_later(self: &Arc<Self>, key: LayerKey) {
        let this = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(PROOF_AGAIN).await;
            let layer = this.images.store().look(key);
            if layer.is_ok_and(|layer| layer.is_complete() && layer.has_unverified()) {
                this.fills.tell_complete(key);
            }
        });
    }

    async fn compare_again(&self, key: LayerKey) -> Result<(), Failure> {
        let served = self.fills.serve(key, None)?;
        self.integrity.compare_injected(&served).await
    }

    pub(crate) async fn prove(&self, key: LayerKey) -> Result<Verdict, Failure> {
        // Wrong pages of a runtime image must not be taken for a fault of the index.
        let served = self.fills.serve(key, None)?;
        self.integrity.compare_injected(&served).await?;
        drop(served);
        let verdict = proof::prove(&self.images, key).await?;
        match &verdict {
            Verdict::Proven => info!("{key} is proven"),
            Verdict::Unprovable(reason) => info!("{key} cannot be proven: {reason}"),
            Verdict::Disproved(problem) => self.raise_alarm(key, problem),
        }
        Ok(verdict)
    }

    /// The index is marked already, so nothing that starts from now on uses it. Mounted views cannot be taken from their readers, so
    /// they are named.
    fn raise_alarm(&self, key: LayerKey, problem: &str) {
        error!("{}", alarm(key, problem));
        self.views.take_down_unused(|view| view.reads(key));
        for view in self.views.held() {
            if view.reads(key) {
                error!(
                    "ALARM: {} is mounted with it, for {:?}; stop the containers that run on it",
                    view.reference, view.holders
                );
            }
        }
    }

    /// Finds the complete and proven layers of the cache.
    pub(crate) fn learn_shared_contents(self: &Arc<Self>) {
        let this = self.clone();
        std::thread::spawn(move || {
            for key in this.images.store().list().unwrap_or_default() {
                if facts::is_proven(this.images.store(), key) {
                    this.learn_contents(key);
                }
            }
        });
    }
}

/// The message about an index that mismatches.
pub(crate) fn alarm(key: LayerKey, problem: &str) -> String {
    format!(
        "ALARM: the index of {key} shows other contents than the layer has: {problem}. Xebec does not use it again. \
         The user who pushed it may have meant harm"
    )
}
