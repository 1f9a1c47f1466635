//! Passes each request of the command line to the service that carries it out.

use std::sync::Arc;

use xebec_images::clients::Clients;
use xebec_images::images::Report;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::{ImageRequest, Reply, Request};

use crate::background::Background;
use crate::ending::Ending;
use crate::explain::Explanations;
use crate::loaded_images::Loadings;
use crate::metrics::Metrics;
use crate::mounts::Mounts;
use crate::order::Order;
use crate::prefetch::Prefetches;
use crate::pulls::Pulls;
use crate::quota::Quota;
use crate::removal::Removal;
use crate::start_facts::Over;
use crate::start_reports::StartReports;
use crate::starts::Starts;
use crate::status::StatusReports;

/// The services that answer requests.
pub(crate) struct Requests {
    pub(crate) ending: Arc<Ending>,
    pub(crate) mounts: Arc<Mounts>,
    pub(crate) starts: Arc<Starts>,
    pub(crate) start_reports: Arc<StartReports>,
    pub(crate) loadings: Arc<Loadings>,
    pub(crate) pulls: Arc<Pulls>,
    pub(crate) prefetches: Arc<Prefetches>,
    pub(crate) quota: Arc<Quota>,
    pub(crate) removal: Arc<Removal>,
    pub(crate) status: Arc<StatusReports>,
    pub(crate) explanations: Arc<Explanations>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) background: Background,
}

impl Requests {
    /// Carries a request out. A client that asks for an image is sent to the next daemon if this one has ended.
    pub(crate) async fn answer(&self, request: Request, report: &Report) -> Result<Reply, Failure> {
        if request.wants_image() && !self.ending.goes_on()? {
            return Ok(Reply::Again);
        }
        self.dispatch(request, report).await
    }

    /// Passes a request on to its service: an entry for each kind. The futures that prepare images are on the heap: they are
    /// large, and every request would take as much room.
    async fn dispatch(&self, request: Request, report: &Report) -> Result<Reply, Failure> {
        match request {
            Request::Mount {
                image,
                holder,
                require_lazy,
                completion,
                purpose,
                allowed,
                wants_configuration: _,
            } => {
                let order = Order {
                    holder,
                    completion,
                    purpose,
                    allowed,
                    learns: false,
                };
                Box::pin(self.mounts.mount(&image, require_lazy, order, report)).await
            }
            Request::StartOver {
                holder,
                container,
                ready_ms,
                user,
            } => {
                let over = Over::told(container, ready_ms);
                self.starts.note_over(&holder, user, &over).await
            }
            Request::Release { view, holder } => self.mounts.release(view.as_deref(), &holder).await,
            Request::Pull { image, complete } => Box::pin(self.pulls.pull(&image, complete, report)).await,
            Request::Prefetch(wanted) => {
                let prefetched = Box::pin(self.prefetches.prefetch(&wanted, report)).await?;
                Ok(Reply::Prefetched(Box::new(prefetched)))
            }
            Request::Prove { image } => Box::pin(self.pulls.prove_image(&image, report)).await,
            Request::Cache => self.survey().await,
            Request::Collect { target, dry_run } => self.collect(target, dry_run).await,
            Request::Pin { image, pinned } => self.removal.pin(&image, pinned).map(|()| Reply::Done),
            Request::Forget { image, force } => self.forget(image, force).await,
            Request::ForgetLogins => {
                self.clients.forget_logins();
                Ok(Reply::Done)
            }
            Request::Status => Ok(Reply::Status(Box::new(self.status.status()))),
            Request::Explain { name } => self.explain(name).await,
            Request::ExplainStart { name } => {
                let report = self.start_reports.explain(name.as_deref()).await?;
                Ok(Reply::Start(Box::new(report)))
            }
            Request::Metrics => self.metrics(),
            Request::Loaded { view } => Ok(Reply::Loaded {
                loaded: self.loadings.of(&view).await,
            }),
            Request::Touched { view } => self.status.touched(&view).map(Reply::Touched),
            Request::Stop { force } => self.stop(force).await,
        }
    }

    async fn survey(&self) -> Result<Reply, Failure> {
        let quota = self.quota.clone();
        let report = self.background.run(move || quota.survey()).await?;
        Ok(Reply::Cache(Box::new(report)))
    }

    async fn collect(&self, target: Option<u64>, dry_run: bool) -> Result<Reply, Failure> {
        let quota = self.quota.clone();
        let collected = self.background.run(move || quota.collect(target, dry_run));
        Ok(Reply::Collected(Box::new(collected.await?)))
    }

    async fn forget(&self, image: ImageRequest, force: bool) -> Result<Reply, Failure> {
        let removal = self.removal.clone();
        let forgotten = self.background.run(move || removal.forget_image(&image, force));
        Ok(Reply::Forgotten(Box::new(forgotten.await??)))
    }

    async fn explain(&self, name: String) -> Result<Reply, Failure> {
        let explanations = self.explanations.clone();
        let explained = self.background.run(move || explanations.explain(&name));
        Ok(Reply::Explained(Box::new(explained.await??)))
    }

    fn metrics(&self) -> Result<Reply, Failure> {
        let text = self.metrics.text();
        let text = text.map_err(|error| Failure::host("write metrics", error))?;
        Ok(Reply::Metrics { text })
    }

    async fn stop(&self, force: bool) -> Result<Reply, Failure> {
        let ending = self.ending.clone();
        self.background.run(move || ending.stop(force)).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A future that is spawned is copied through a dozen frames where nothing is optimised, and a thread of the runtime has 2 MiB.
    #[test]
    fn no_request_takes_much_of_a_threads_stack() {
        fn size<Answer>(_: impl FnOnce(&'static Requests, Request, &'static Report) -> Answer) -> usize {
            size_of::<Answer>()
        }
        let size = size(|requests, request, report| requests.answer(request, report));
        assert!(size <= 8 << 10, "{size} bytes");
    }
}
