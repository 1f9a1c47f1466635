//! The start of the worker, in order, and what it waits for then.

use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{debug, info, warn};
use xebec_fill::events::{EventLoop, Inherited};
use xebec_fill::fill_service::FillService;
use xebec_images::images::Images;
use xebec_keeper::client;
use xebec_kernel::file::{remove_abandoned, write_atomically};
use xebec_kernel::journal::{Custody, LastWord};
use xebec_kernel::process::{self, Child};
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::Settings;
use xebec_recordings::recordings::Recordings;
use xebec_views::sharing::SharedContents;
use xebec_views::unguarded_views::Suspects;
use xebec_views::views::Views;

use crate::services::Services;
use crate::{containers, metrics, quota, server, upkeep};

/// A daemon without views ends after this long without a request. It costs little, and a start that finds it
/// running saves a few milliseconds.
const IDLE: Duration = Duration::from_secs(60);
/// How long a worker that is told to stop waits for its replies to be read.
const LAST_REPLIES: Duration = Duration::from_secs(1);
/// How long requests under way may take when the worker is replaced; their clients ask the next one otherwise.
const LAST_REQUESTS: Duration = Duration::from_secs(1);
/// How long reads under way may take then; the next worker answers those that are left.
const LAST_ANSWERS: Duration = Duration::from_millis(200);
/// How often holders that have died are looked for.
const SWEEP: Duration = Duration::from_secs(2);

/// How deep layers' files lie below the folder of layers: by layer and index.
const LAYER_LEVELS: u32 = 2;

/// Runs the worker until it is told to stop, or is idle. `inherited` comes from the keeper, before anything else
/// in the process has opened a descriptor.
///
/// # Errors
/// When the worker cannot start at all. The keeper then tries again.
pub fn run(paths: &Paths, settings: Settings, inherited: Inherited) -> Result<(), Failure> {
    process::set_name("xebec-worker");
    if let Err(error) = process::keep_memory_to_itself() {
        warn!("a dump of the worker's memory, which holds logins, cannot be ruled out: {error}");
    }
    // Signals wait until somebody listens; a runtime has threads before that.
    let listens = Arc::new(OnceLock::new());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .on_thread_start({
            let listens = listens.clone();
            move || unblock_orders(listens.wait())
        })
        .worker_threads(2)
        // Decoding and indexing run here; two cores' worth keeps them from starving each other.
        .max_blocking_threads(16)
        .enable_all()
        .thread_name("xebec-worker")
        .build()
        .map_err(|error| Failure::host("start the runtime", error))?;
    let (group, journal, [listener, containerd], left) = inherited.into_parts();
    // Whoever looks for a worker without a keeper finds it here, whatever became of the keeper that started it.
    let pid_file = paths.run().join("worker.pid");
    if let Err(error) = write_atomically(&pid_file, format!("{}\n", std::process::id()).as_bytes()) {
        warn!("{}: {error}", pid_file.display());
    }
    let orders = {
        let _inside = runtime.enter();
        Orders::listen()
    };
    let _ = listens.set(());
    let orders = orders?;
    unblock_orders(&());
    let (start_paths, overrides) = (paths.clone(), settings.given.clone());
    xebec_keeper::watch::watch(journal.clone(), move || {
        client::start_keeper(&start_paths, &overrides, None)
    });
    let images = Images::open(paths)?;
    images.store().clean();
    let recordings = Recordings::new(paths, images.clone());
    recordings.kept().remove_damaged();
    let handle = runtime.handle().clone();
    let (completed, newly_complete) = tokio::sync::mpsc::unbounded_channel();
    let fills = FillService::new(
        images.store().clone(),
        images.clients().clone(),
        group.clone(),
        handle,
        completed,
        &settings,
    );
    let suspects = Suspects::read(paths);
    let views = Arc::new(Views::restore(
        paths,
        &fills,
        &suspects,
        journal.was_unguarded(),
        settings.linger,
    )?);
    let reading = Arc::downgrade(&views);
    fills.read_by(Box::new(move |key| {
        let views = reading.upgrade();
        views.map_or_else(Default::default, |views| views.readers_of(key))
    }));
    journal.set_unguarded(false);
    let requests = Arc::new(Services {
        images,
        recordings,
        fills: fills.clone(),
        views,
        suspects,
        shared: Arc::new(SharedContents::default()),
        journal: journal.clone(),
        settings,
        eviction: Default::default(),
        paces: Arc::default(),
        strictness: Arc::default(),
        starts: Default::default(),
        loadings: Default::default(),
        background: Default::default(),
        unsynced_views: std::sync::Mutex::default(),
        corrections: std::sync::Mutex::default(),
        stop: tokio::sync::Notify::new(),
        ended: AtomicBool::new(false),
        hand_over: tokio::sync::Notify::new(),
        snapshots: Default::default(),
    });
    requests.images.store().room().set(quota::Evictor::of(&requests));
    requests.learn_shared_contents();
    let events = EventLoop::start(left, fills)
        .map_err(|error| Failure::host("read the guarded mount's events", error))?;
    info!(pid = std::process::id(), "worker ready");
    runtime.spawn_blocking(xebec_oci::read_authorities);
    runtime.spawn_blocking(xebec_kernel::memory::take_room);
    let (paths, starting) = (paths.clone(), requests.clone());
    runtime.spawn_blocking(move || {
        starting.remove_strange_metadata(false);
        remove_abandoned(&paths.layers(), LAYER_LEVELS);
        let directories = [
            &paths.images(),
            &paths.views(),
            &paths.mounts(),
            paths.run(),
            paths.root(),
        ];
        directories
            .into_iter()
            .for_each(|directory| remove_abandoned(directory, 0));
    });
    runtime.spawn(requests.clone().prove_completed(newly_complete));
    runtime.spawn(requests.clone().watch_slow_readers());
    if let Some(address) = requests.settings.metrics {
        runtime.spawn(metrics::serve(address, requests.clone()));
    }
    runtime.spawn(upkeep::run(requests.clone()));
    runtime.spawn(containers::run(requests.clone()));
    {
        let _inside = runtime.enter();
        requests.resume_completions();
        requests.widen_restored();
        requests.serve_containerd(&containerd);
    }
    // The original stays open under its number, where a keeper that takes over finds it.
    let accepting = listener
        .try_clone()
        .map_err(|error| Failure::host("listen for the command line", error))?;
    let last_word = runtime.block_on(serve(accepting, requests.clone(), orders))?;
    runtime.block_on(requests.snapshots.end());
    match last_word {
        LastWord::HandedOver => {
            // The next one does not know of it.
            requests.sync_notes();
            // New events wait in the kernel for the next worker from here on; this should be short.
            events.stop_reading();
            let deadline = Instant::now() + LAST_ANSWERS;
            while events.owed() > 0 && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            journal.set_last_word(LastWord::HandedOver);
            // Tasks under way end with the process; dropping them one by one would only take time from readers.
            std::mem::forget(runtime);
        }
        word => {
            requests.sync_notes();
            upkeep::sync_served(&requests.fills);
            events.stop();
            runtime.shutdown_timeout(Duration::from_secs(2));
            journal.set_last_word(word);
        }
    }
    Ok(())
}

/// What the keeper tells by signals. The keeper starts a worker with these blocked, and they are listened to before they
/// are let in: a signal without a handler would end the worker with readers waiting.
struct Orders {
    stop: Signal,
    replace: Signal,
}

/// In each thread once somebody listens, so that programs that it starts inherit nothing blocked.
fn unblock_orders(_listens: &()) {
    if let Err(error) = process::unblock_signals(&xebec_keeper::WORKER_SIGNALS) {
        warn!("cannot listen to the keeper: {error}");
    }
}

impl Orders {
    fn listen() -> Result<Orders, Failure> {
        let failed = |error| Failure::host("listen for signals", error);
        Ok(Orders {
            stop: signal(SignalKind::terminate()).map_err(failed)?,
            replace: signal(SignalKind::from_raw(xebec_keeper::REPLACE)).map_err(failed)?,
        })
    }
}

/// Whether somebody is there to start the next worker. If not, this one must go on: it holds the group.
fn keeper_lives(requests: &Services) -> bool {
    let keeper = Child::open(requests.journal.counters().keeper_pid);
    let lives = keeper.is_ok_and(|keeper| !keeper.has_ended().unwrap_or(true));
    if !lives {
        warn!("told to make room for another worker, but there is no keeper that would start it; going on");
    }
    lives
}

/// Serves until there is nothing more to do, or somebody else is to do it; gives what is to be said at the end.
async fn serve(
    listener: UnixListener,
    requests: Arc<Services>,
    mut orders: Orders,
) -> Result<LastWord, Failure> {
    let failed = |error| Failure::host("listen for the command line", error);
    listener.set_nonblocking(true).map_err(failed)?;
    let listener = tokio::net::UnixListener::from_std(listener).map_err(failed)?;
    let mut sweep = tokio::time::interval(SWEEP);
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
                return Ok(LastWord::Finished);
            }
            // Clients that come now wait in the socket's queue; those that are here get a moment.
            _ = orders.replace.recv() => {
                if !keeper_lives(&requests) {
                    continue;
                }
                let deadline = tokio::time::Instant::now() + LAST_REQUESTS;
                while Arc::strong_count(&connections) > 1 && tokio::time::Instant::now() < deadline {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                requests.hand_over.notify_waiters();
                let deadline = tokio::time::Instant::now() + LAST_REPLIES;
                while Arc::strong_count(&connections) > 1 && tokio::time::Instant::now() < deadline {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                // One of the last requests was to stop, and its client was told that it is done.
                if requests.ended.load(Ordering::Acquire) {
                    return Ok(LastWord::Finished);
                }
                if keeper_lives(&requests) {
                    return Ok(LastWord::HandedOver);
                }
            }
            // The keeper hands a request to stop on. Status 0 says that nothing needs events any more, so views go
            // first: one that stayed mounted would show zeros.
            _ = orders.stop.recv() => {
                if requests.without_turn(Services::begin_to_end).await?.is_none() {
                    return Ok(LastWord::Finished);
                }
            }
            _ = sweep.tick() => {
                if requests.without_turn(Services::has_come_to_its_end).await? {
                    return Ok(LastWord::Finished);
                }
                requests.sweep();
                if requests.views.are_unused() && requests.root_was_replaced() {
                    requests.views.take_down_unused(|_| true);
                    info!("the root directory was removed: ending, so that the next command begins with the new one");
                    return Ok(LastWord::Finished);
                }
                // A service manager's service stays until it is stopped.
                let is_own = requests.journal.custody() == Custody::Own;
                // containerd cannot start it.
                let is_awaited = requests.snapshots.are_served();
                if is_own
                    && !is_awaited
                    && requests.views.are_unused()
                    && requests.suspects.is_empty()
                    && Arc::strong_count(&connections) == 1
                {
                    if idle_since.elapsed() > IDLE
                        && let Some(reason) = requests.without_turn(Services::end_if_unused).await?
                    {
                        debug!("not idle: {reason}");
                        idle_since = tokio::time::Instant::now();
                    } else if idle_since.elapsed() > IDLE {
                        info!("idle: no views and no requests for {} s", IDLE.as_secs());
                        return Ok(LastWord::Finished);
                    }
                } else {
                    idle_since = tokio::time::Instant::now();
                }
            }
        }
    }
}
