//! containerd's snapshots, served.
//!
//! The keeper holds the socket, so that a client that connects while there is no worker waits for the next one. The worker
//! answers if that socket listens, whatever the settings say, which may have changed since the keeper read them. Until the
//! store is open, calls wait. If it cannot be opened, calls fail with the reason, while the worker tries again. Calls that are under
//! way when a worker ends are finished, if they are quick; a client whose call is not repeats it.

mod admission_cache;
mod binds;
pub(crate) mod layer_services;
mod lazy;
mod own;
pub(crate) mod removed_images;

use std::os::unix::net::UnixListener;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{error, info, warn};
use xebec_keeper::listens;
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::SnapshotterSettings;
use xebec_snapshotter::Snapshotter;
use xebec_snapshotter::containerd::owners::Owners;
use xebec_snapshotter::image_service::ImageService;
use xebec_snapshotter::server::{self, Opened};

use crate::snapshot_service::{Serving, Snapshots};
use layer_services::LayerServices;
use lazy::Layers;
use xebec_engines::logins::KeptLogins;

/// How long it is until a store is tried again that could not be opened, the first time; then twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// How often the layers that removed snapshots showed are tried again, whether they can go by now.
const LET_GO: Duration = Duration::from_secs(10);
/// The longest.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Serves clients that connect to the socket, if it listens. Faults that prevent it are in the log, and the worker goes on: readers
/// need it. `service` tells the rest of the worker that it runs.
pub(crate) fn serve(
    listener: &UnixListener,
    services: LayerServices,
    settings: &SnapshotterSettings,
    service: &Snapshots,
) {
    if !listens(listener) {
        if settings.enabled {
            error!(
                "containerd is not served: the keeper has no socket for it; its messages say why. After a change of \
                 the settings, reload the service"
            );
        }
        return;
    }
    let listener = listener.try_clone().and_then(|listener| {
        listener.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(listener)
    });
    let listener = match listener {
        Ok(listener) => listener,
        Err(problem) => return error!("containerd cannot be served: {problem}"),
    };
    let (stop, told) = watch::channel(false);
    let (settled, opened) = watch::channel(Opened::Opening);
    let containerd = &settings.image_service;
    // Those that are kept grow old whether or not new ones come.
    let are_kept = containerd.is_some() || settings.login_age.is_some();
    let paths = services.images.paths().clone();
    let logins = are_kept.then(|| logins_of(&paths, settings));
    let layers = Arc::new(Layers::of(Arc::new(services), logins.clone()));
    let owners = settings.owners().map(Owners::at);
    tokio::spawn(open(paths, layers, owners, settled));
    let images = containerd
        .as_ref()
        .zip(logins)
        .map(|(containerd, logins)| Arc::new(ImageService::new(containerd, logins)));
    let task = tokio::spawn(server::serve(listener, opened.clone(), images, told));
    service.serve(serving(opened, stop, task));
}

/// The service, as the rest of the worker sees it.
fn serving(
    opened: watch::Receiver<Opened<Layers>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
) -> Serving {
    let (counted, settled) = (opened.clone(), opened);
    let figures = move || match &*counted.borrow() {
        Opened::Open(snapshotter) => snapshotter
            .figures()
            .inspect_err(|problem| warn!("{problem}"))
            .ok(),
        Opened::Opening | Opened::Failed(_) => None,
    };
    let problem = move || match &*settled.borrow() {
        Opened::Failed(problem) => Some(problem.clone()),
        Opened::Opening | Opened::Open(_) => None,
    };
    Serving {
        figures: Box::new(figures),
        problem: Box::new(problem),
        stop,
        task: Mutex::new(Some(task)),
    }
}

/// Logins of pulls, which get old.
fn logins_of(paths: &Paths, settings: &SnapshotterSettings) -> Arc<KeptLogins> {
    let logins = KeptLogins::new(paths.logins(), paths.tried_logins(), settings.login_age);
    let logins = Arc::new(logins);
    let kept = logins.clone();
    tokio::spawn(async move {
        loop {
            let same = kept.clone();
            match spawn_blocking(move || same.forget_old()).await {
                Ok(Some(pause)) => tokio::time::sleep(pause).await,
                _ => return,
            }
        }
    });
    logins
}

/// Opens the store, and goes on trying: a full disk is emptied, and a file system mounted.
async fn open(
    paths: Paths,
    layers: Arc<Layers>,
    owners: Option<Owners>,
    settled: watch::Sender<Opened<Layers>>,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let (root, layers) = (paths.snapshots(), layers.clone());
        let opened =
            spawn_blocking(move || Snapshotter::open(&root, layers).map_err(|error| error.to_string()));
        let problem = match opened.await.map_err(|error| error.to_string()).flatten() {
            Ok(snapshotter) => {
                let snapshotter = snapshotter.asking(owners);
                if let Err(problem) = snapshotter.reconcile().await {
                    warn!("snapshots: {problem}");
                }
                info!("serving containerd's snapshots");
                let snapshotter = Arc::new(snapshotter);
                let served = Arc::downgrade(&snapshotter);
                settled.send_replace(Opened::Open(snapshotter));
                return let_go(served).await;
            }
            Err(problem) => problem,
        };
        error!(
            "containerd's snapshots cannot be served, trying again in {} s: {problem}",
            pause.as_secs_f32()
        );
        settled.send_replace(Opened::Failed(problem));
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Lets go the layers that removed snapshots showed, where that could not be done when they were removed.
async fn let_go(snapshotter: Weak<Snapshotter<Layers>>) {
    while let Some(snapshotter) = snapshotter.upgrade() {
        snapshotter.let_go().await;
        drop(snapshotter);
        tokio::time::sleep(LET_GO).await;
    }
}
