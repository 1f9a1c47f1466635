//! Writes notes while a start goes on; most of the start does not depend on them.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tracing::warn;

use xebec_protocol::failure::Failure;

/// Something that is being written down, or nothing. It is done to its end even if nobody waits for that.
#[derive(Clone, Default)]
pub struct BackgroundWrite(Option<Shared<BoxFuture<'static, Result<(), Failure>>>>);

impl BackgroundWrite {
    /// Begins. A failure is logged, should nobody wait for it.
    pub fn begin(work: impl FnOnce() -> Result<(), Failure> + Send + 'static) -> Self {
        let work = move || work().inspect_err(|failure| warn!("{failure}"));
        let task = tokio::task::spawn_blocking(work);
        let ended = task.map(|ended| {
            ended.unwrap_or_else(|error| Err(Failure::host("write down what a start found", error)))
        });
        Self(Some(ended.boxed().shared()))
    }

    /// Waits until it is written.
    ///
    /// # Errors
    /// Those of writing it.
    pub async fn end(self) -> Result<(), Failure> {
        match self.0 {
            Some(ended) => ended.await,
            None => Ok(()),
        }
    }
}
