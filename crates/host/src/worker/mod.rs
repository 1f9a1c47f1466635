//! The worker: answers events, serves the command line, mounts views.
//!
//! It runs under the keeper, which holds the fanotify group, the journal and the listening socket, hands them
//! down by number, and starts the next worker when this one dies. So everything that must outlive a worker is in
//! files: layers in the cache, views in the run directory. A new worker reads them back before it reads events.
//!
//! * [`fills`]: from an event to pages that are there.
//! * [`views`]: which views are mounted, over which layers, for whom.
//! * [`requests`]: what the command line asks for.
//! * [`server`]: the socket.

pub mod fills;
pub mod requests;
pub mod server;
pub mod views;

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use crate::events::{EventLoop, Inherited};
use crate::failure::Failure;
use crate::image::Images;
use crate::paths::Paths;
use crate::sharing::SharedContents;
use crate::worker::fills::FillService;
use crate::worker::requests::Requests;
use crate::worker::views::Views;

/// A daemon without views ends after this long without a request. It costs little, and a start that finds it
/// running saves a few milliseconds.
const IDLE: Duration = Duration::from_secs(60);
/// How long a worker that is told to stop waits for its replies to be read.
const LAST_REPLIES: Duration = Duration::from_secs(1);
/// How often holders that have died are looked for.
const SWEEP: Duration = Duration::from_secs(2);

/// Runs the worker until it is told to stop, or is idle. `inherited` comes from the keeper, before anything else
/// in the process has opened a descriptor.
///
/// # Errors
/// When the worker cannot start at all. The keeper then tries again.
pub fn run(paths: &Paths, inherited: Inherited) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // Decoding and indexing run here; two cores' worth keeps them from starving each other.
        .max_blocking_threads(16)
        .enable_all()
        .thread_name("xebec-worker")
        .build()
        .map_err(|error| Failure::host("start the runtime", error))?;
    let (group, journal, listener, left) = inherited.into_parts();
    let images = Images::open(paths)?;
    images.store().clean();
    let handle = runtime.handle().clone();
    let (completed, newly_complete) = tokio::sync::mpsc::unbounded_channel();
    let fills = FillService::new(
        images.store().clone(),
        images.clients().clone(),
        group.clone(),
        handle,
        completed,
    );
    let views = Arc::new(Views::restore(paths, &fills)?);
    let requests = Arc::new(Requests {
        images,
        fills: fills.clone(),
        views,
        shared: Arc::new(SharedContents::default()),
        journal: journal.clone(),
        stop: tokio::sync::Notify::new(),
    });
    requests.learn_shared_contents();
    let events = EventLoop::start(left, fills)
        .map_err(|error| Failure::host("read the guarded mount's events", error))?;
    info!(pid = std::process::id(), "worker ready");
    runtime.spawn(requests.clone().prove_completed(newly_complete));
    let served = runtime.block_on(serve(listener, requests));
    events.stop();
    runtime.shutdown_timeout(Duration::from_secs(2));
    served
}

async fn serve(listener: UnixListener, requests: Arc<Requests>) -> Result<(), Failure> {
    let failed = |error| Failure::host("listen for the command line", error);
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = tokio::net::UnixListener::from_std(listener).map_err(failed)?;
    let mut sweep = tokio::time::interval(SWEEP);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut idle_since = tokio::time::Instant::now();
    let connections = Arc::new(());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (requests, alive) = (requests.clone(), connections.clone());
                    tokio::spawn(async move {
                        server::converse(stream, requests).await;
                        drop(alive);
                    });
                }
                Err(error) => warn!("cannot accept a connection: {error}"),
            },
            () = requests.stop.notified() => {
                // Whoever asked for it wants the answer.
                let deadline = tokio::time::Instant::now() + LAST_REPLIES;
                while Arc::strong_count(&connections) > 1 && tokio::time::Instant::now() < deadline {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                return Ok(());
            }
            // The keeper hands a request to stop on. Status 0 says that nothing needs events any more, so views go
            // first: one that stayed mounted would show zeros.
            _ = terminate.recv() => {
                requests.unmount_all();
                return Ok(());
            }
            _ = sweep.tick() => {
                if requests.journal.stop_requested() {
                    requests.unmount_all();
                    return Ok(());
                }
                requests.sweep();
                if requests.views.is_empty() && requests.root_was_replaced() {
                    info!("the root directory was removed: ending, so that the next command begins with the new one");
                    return Ok(());
                }
                if requests.views.is_empty() && Arc::strong_count(&connections) == 1 {
                    if idle_since.elapsed() > IDLE {
                        info!("idle: no views and no requests for {} s", IDLE.as_secs());
                        return Ok(());
                    }
                } else {
                    idle_since = tokio::time::Instant::now();
                }
            }
        }
    }
}
