//! The threads that blobs are restored in.

use std::fmt::Display;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::aside::aside;
use crate::error::DedupError;

/// Which threads do work that takes the processor for long.
#[derive(Clone, Debug)]
pub(crate) enum Threads {
    /// Those of the runtime. Each holds the permit until its work has ended: nobody can stop it, even if the caller waits no longer.
    Runtime(Option<Arc<OwnedSemaphorePermit>>),
    /// Threads of their own with a low priority.
    Aside,
}

impl Threads {
    /// Does `work`. `on` is what it works on, for people.
    ///
    /// # Errors
    /// [`DedupError::Thread`] if there is no thread, or the work ends without an answer.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        on: &(impl Display + Sync + ?Sized),
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, DedupError> {
        match self {
            Self::Runtime(permit) => {
                let permit = permit.clone();
                let done = tokio::task::spawn_blocking(move || {
                    let _permit = permit;
                    work()
                });
                done.await.map_err(|_| DedupError::Thread(on.to_string()))
            }
            Self::Aside => aside("restore", &on.to_string(), true, work).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_in_either_kind_of_thread() {
        for threads in [Threads::Runtime(None), Threads::Aside] {
            let here = std::thread::current().id();
            let there = threads.run("it", || std::thread::current().id()).await;
            assert_ne!(there.unwrap(), here);
            let broken = threads.run("it", || panic!("a bug"));
            assert!(matches!(broken.await, Err::<(), _>(DedupError::Thread(on)) if on == "it"));
        }
    }
}
