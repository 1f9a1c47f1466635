//! The service of containerd's snapshots, as the rest of the worker sees it.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use xebec_snapshotter::Figures;

/// How long calls under way may take when the worker ends.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// The service, if it runs.
#[derive(Default)]
pub(crate) struct Snapshots {
    serving: OnceLock<Serving>,
}

/// A service that runs.
pub(crate) struct Serving {
    /// The figures of its work and its state, once its store is open.
    pub(crate) figures: Box<dyn Fn() -> Option<Figures> + Send + Sync>,
    /// The fault that keeps its store from being opened, in words.
    pub(crate) problem: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Tells it to take no more calls.
    pub(crate) stop: watch::Sender<bool>,
    /// The task that serves.
    pub(crate) task: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshots")
            .field("are_served", &self.are_served())
            .finish()
    }
}

impl Snapshots {
    /// The service runs from now on. Once, when the worker starts.
    pub(crate) fn serve(&self, serving: Serving) {
        let _ = self.serving.set(serving);
    }

    /// Whether containerd can connect. It cannot start a daemon that has ended.
    pub(crate) fn are_served(&self) -> bool {
        self.serving.get().is_some()
    }

    /// Takes no more calls, and waits for those under way.
    pub(crate) async fn end(&self) {
        let Some(serving) = self.serving.get() else {
            return;
        };
        let _ = serving.stop.send(true);
        let task = serving.task.lock().take();
        if let Some(task) = task {
            let _ = tokio::time::timeout(LAST_CALLS, task).await;
        }
    }

    /// The figures of its work and its state, if the service runs.
    pub(crate) fn figures(&self) -> Option<Figures> {
        (self.serving.get()?.figures)()
    }

    /// The fault that keeps the service that containerd asks for from running, in words, if there is one.
    pub(crate) fn problem(&self) -> Option<String> {
        (self.serving.get()?.problem)()
    }
}
