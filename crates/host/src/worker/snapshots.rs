//! containerd's snapshots, served.
//!
//! The keeper holds the socket, so that a client that connects while there is no worker waits for the next one. Calls that
//! are under way when a worker ends are finished, if they are quick; a client whose call is not repeats it.

mod lazy;

use std::os::unix::net::UnixListener;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tracing::{error, info, warn};
use xebec_snapshotter::image_service::ImageService;
use xebec_snapshotter::{Figures, Snapshotter, server};

use crate::logins::KeptLogins;
use crate::worker::requests::Requests;
use lazy::Layers;

/// How long calls under way may take when the worker ends.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// The service, if it runs.
#[derive(Default)]
pub struct Snapshots {
    serving: OnceLock<Serving>,
}

struct Serving {
    snapshotter: Arc<Snapshotter<Layers>>,
    stop: watch::Sender<bool>,
    task: std::sync::Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl Snapshots {
    /// Serves whoever connects to the socket. What keeps it from that is said in the log: readers need this worker all the
    /// same.
    pub(super) async fn serve(requests: &Arc<Requests>, listener: &UnixListener) {
        let listener = listener.try_clone().and_then(|listener| {
            listener.set_nonblocking(true)?;
            tokio::net::UnixListener::from_std(listener)
        });
        let listener = match listener {
            Ok(listener) => listener,
            Err(problem) => return error!("containerd cannot be served: {problem}"),
        };
        let snapshotter =
            match Snapshotter::open(&requests.images.paths.snapshots(), Arc::new(Layers::of(requests))) {
                Ok(snapshotter) => Arc::new(snapshotter),
                Err(problem) => return error!("containerd cannot be served: {problem}"),
            };
        if let Err(problem) = snapshotter.reconcile().await {
            warn!("snapshots: {problem}");
        }
        let (stop, told) = watch::channel(false);
        let containerd = &requests.settings.snapshotter.image_service;
        let images = containerd.as_ref().map(|containerd| {
            let logins = Arc::new(KeptLogins::new(requests.images.paths.logins()));
            Arc::new(ImageService::new(containerd, logins))
        });
        let task = tokio::spawn(server::serve(listener, snapshotter.clone(), images, told));
        info!("serving containerd's snapshots");
        let _ = requests.snapshots.serving.set(Serving {
            snapshotter,
            stop,
            task: std::sync::Mutex::new(Some(task)),
        });
    }

    /// Takes no more calls, and waits for those under way.
    pub(super) async fn end(&self) {
        let Some(serving) = self.serving.get() else {
            return;
        };
        let _ = serving.stop.send(true);
        let task = serving
            .task
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(task) = task {
            let _ = tokio::time::timeout(LAST_CALLS, task).await;
        }
    }

    /// What was done and what there is, if the service runs.
    pub(super) fn figures(&self) -> Option<Figures> {
        let figures = self.serving.get()?.snapshotter.figures();
        figures.inspect_err(|problem| warn!("{problem}")).ok()
    }
}
