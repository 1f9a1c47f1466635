//! What the command line asks for, and who does it.

use std::sync::Arc;

use xebec_images::images::Report;
use xebec_protocol::failure::Failure;
use xebec_protocol::wire::{Reply, Request};

use crate::order::Order;
use crate::services::Services;
use crate::start_facts::Over;

impl Services {
    /// Carries a request out. Only passes it on: an entry for each kind of request.
    pub(super) async fn answer(self: Arc<Self>, request: Request, report: &Report) -> Result<Reply, Failure> {
        if request.wants_image() && !self.goes_on()? {
            return Ok(Reply::Again);
        }
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
                self.mount(&image, require_lazy, order, report).await
            }
            Request::StartOver {
                holder,
                container,
                ready_ms,
                user,
            } => {
                self.note_start_over(&holder, user, &Over::told(container, ready_ms))
                    .await
            }
            Request::Release { view, holder } => self.release(view.as_deref(), &holder).await,
            Request::Pull { image, complete } => self.pull(&image, complete, report).await,
            Request::Prove { image } => self.prove_image(&image, report).await,
            Request::Cache => Ok(Reply::Cache(Box::new(
                self.in_background(|this| this.survey()).await?,
            ))),
            Request::Collect { target, dry_run } => {
                let limit = self.settings.cache_size.map(|size| size.0);
                let collected = self.in_background(move |this| this.collect(target.or(limit), dry_run));
                Ok(Reply::Collected(Box::new(collected.await?)))
            }
            Request::Pin { image, pinned } => self.pin(&image, pinned).map(|()| Reply::Done),
            Request::Forget { image } => {
                let forgotten = self.in_background(move |this| this.forget_image(&image));
                Ok(Reply::Forgotten(Box::new(forgotten.await??)))
            }
            Request::Status => Ok(Reply::Status(Box::new(self.status()))),
            Request::Explain { name } => {
                let explained = self.in_background(move |this| this.explain(&name));
                Ok(Reply::Explained(Box::new(explained.await??)))
            }
            Request::ExplainStart { name } => {
                let report = self.explain_start(name.as_deref()).await?;
                Ok(Reply::Start(Box::new(report)))
            }
            Request::Metrics => self.metrics_reply(),
            Request::Loaded { view } => Ok(Reply::Loaded {
                loaded: self.loadings.of(&view).await,
            }),
            Request::Touched { view } => self.touched(&view).map(Reply::Touched),
            Request::Stop { force } => self.in_background(move |this| this.stop(force)).await?,
        }
    }
    fn metrics_reply(&self) -> Result<Reply, Failure> {
        let text = self
            .metrics()
            .map_err(|error| Failure::host("write metrics", error))?;
        Ok(Reply::Metrics { text })
    }
}
