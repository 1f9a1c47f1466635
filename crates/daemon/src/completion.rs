//! Bringing all of a layer in, and proving it: what makes a layer need this daemon no more, and its index trusted as
//! this host's own.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use xebec_fill::fill_service::{ServedLayer, Unfilled};
use xebec_images::facts;
use xebec_images::proof::Verdict;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::Completion;

use crate::proofs::alarm;
use crate::services::Services;

impl Services {
    /// Goes on with what earlier workers were to bring in.
    pub(super) fn resume_completions(self: &Arc<Self>) {
        for view in self.views.held() {
            let layers = view.layers.iter();
            let layers = layers.filter_map(|pair| self.fills.find((*pair).into()));
            self.complete_in_background(layers.collect(), view.completion);
        }
    }

    pub(super) fn complete_in_background(
        self: &Arc<Self>,
        layers: Vec<Arc<ServedLayer>>,
        completion: Option<Completion>,
    ) {
        let Some(completion) = completion else { return };
        let this = self.clone();
        tokio::spawn(async move {
            let pause = Duration::from_secs(completion.deadline_seconds)
                / u32::try_from(layers.len().max(1)).unwrap_or(u32::MAX);
            for served in layers {
                if let Err(error) = this.complete(&served, pause, true).await {
                    warn!("{} was not brought in: {error}", served.layer().key());
                }
            }
        });
    }

    /// Brings all of a layer in and proves it.
    pub(super) async fn complete(
        self: &Arc<Self>,
        served: &Arc<ServedLayer>,
        deadline: Duration,
        in_background: bool,
    ) -> Result<(), Failure> {
        let completed = self.fills.complete(served, deadline, in_background).await;
        self.report_mismatches(served);
        completed.map_err(not_brought_in)?;
        let key = served.layer().key();
        self.compare_injected(served).await?;
        self.sync_layer(served).await?;
        if !facts::is_proven(self.images.store(), key)
            && let Verdict::Disproved(problem) = self.prove(key).await?
        {
            return Err(Failure::new(FailureKind::Integrity, alarm(key, &problem)));
        }
        self.shared.learn(self.images.store(), key);
        Ok(())
    }
}

pub(super) fn not_brought_in(error: Unfilled) -> Failure {
    let kind = match error {
        Unfilled::Failed(_) => FailureKind::Registry,
        Unfilled::Ending => FailureKind::Host,
    };
    Failure::new(kind, error)
}
