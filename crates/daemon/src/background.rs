//! Threads for those parts of requests that block: mounts, surveys, records. Readers' pages are decoded by threads of the same
//! pool, so requests get a part of it, however many come at once; the others wait without a thread. The daemon's own work
//! takes no turn: the task that accepts connections and orders must not wait behind requests.

use std::sync::Arc;

use tokio::sync::Semaphore;

use xebec_protocol::failure::Failure;

/// How many work at once. Mounts of views come one after the other anyway, since the table of views has one lock; other work that
/// takes long is rare.
const AT_ONCE: usize = 6;

/// How many tasks that nobody waits for work at once.
const SPARE: usize = 2;

/// The part of the pool that requests have.
#[derive(Clone, Debug)]
pub(super) struct Background {
    turns: Arc<Semaphore>,
    spare: Arc<Semaphore>,
}

impl Default for Background {
    fn default() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            spare: Arc::new(Semaphore::new(SPARE)),
        }
    }
}

impl Background {
    /// Does work that blocks, when it is its turn, and then to its end, whether or not somebody still waits for it.
    ///
    /// # Errors
    /// When it dies.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        Self::run_in_turn(&self.turns, work).await
    }

    /// The same for work that nobody waits for, which takes no request's turn.
    ///
    /// # Errors
    /// When it dies.
    pub(super) async fn run_spare<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        Self::run_in_turn(&self.spare, work).await
    }

    async fn run_in_turn<T: Send + 'static>(
        turns: &Arc<Semaphore>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let turn = turns.clone().acquire_owned().await;
        let turn = turn.map_err(|error| failed(&error))?;
        run_without_turn(move || {
            let _turn = turn;
            work()
        })
        .await
    }
}

/// Does work that blocks, however many requests wait for their turn. For work that is done once at a time.
///
/// # Errors
/// When it dies.
pub(super) async fn run_without_turn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work);
    done.await.map_err(|error| failed(&error))
}

fn failed(error: &dyn std::fmt::Display) -> Failure {
    Failure::host("carry the request out", error)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Fifty requests wait for one lock, as starts do while a view is mounted. The pool has one thread more than requests may have.
    /// The reader's page must be decoded, and the daemon's own work be done, before the lock is free.
    #[test]
    fn requests_leave_threads_to_readers() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(AT_ONCE + 1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let background = Arc::new(Background::default());
            let table = Arc::new(Mutex::new(0));
            let (begin, begun) = tokio::sync::oneshot::channel();
            let (free, is_free) = std::sync::mpsc::channel::<()>();
            let holder = std::thread::spawn({
                let table = table.clone();
                move || {
                    let _held = table.lock();
                    let _ = begin.send(());
                    let _ = is_free.recv();
                }
            });
            begun.await.unwrap();
            let mut starts = tokio::task::JoinSet::new();
            for _ in 0..50 {
                let (background, table) = (background.clone(), table.clone());
                starts.spawn(async move {
                    let count = move || *table.lock() += 1;
                    background.run(count).await
                });
            }
            while background.turns.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            run_without_turn(|| ()).await.unwrap();
            free.send(()).unwrap();
            holder.join().unwrap();
            while let Some(done) = starts.join_next().await {
                done.unwrap().unwrap();
            }
            assert_eq!(*table.lock(), 50);
        });
    }
}
