//! The worker process: its start, in order, and its end.

mod orders;
mod serving;

use std::os::unix::net::UnixListener;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing::{info, warn};
use xebec_cache::store::LayerKey;
use xebec_fill::events::{EventLoop, Inherited};
use xebec_fill::fill_service::{FillParts, FillService};
use xebec_images::images::Images;
use xebec_keeper::client;
use xebec_kernel::fanotify::Group;
use xebec_kernel::file::remove_abandoned;
use xebec_kernel::journal::{Journal, LastWord};
use xebec_kernel::process;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::Settings;
use xebec_recordings::recordings::Recordings;
use xebec_views::unguarded_views::Suspects;
use xebec_views::views::Views;

use crate::durability::Durability;
use crate::services::{Opened, Services};
use crate::{containers, metrics_server, snapshots};
use orders::Orders;
use serving::Serving;

/// How long reads under way may take when the worker is replaced; the next worker answers those that are left.
const LAST_ANSWERS: Duration = Duration::from_millis(200);
/// How long tasks under way may take when the worker ends.
const LAST_TASKS: Duration = Duration::from_secs(2);
/// How deep layers' files lie below the folder of layers: by layer and index.
const LAYER_LEVELS: u32 = 2;

/// Runs the worker until it is told to stop, is replaced, or is idle. `inherited` comes from the keeper, before anything else
/// in the process has opened a descriptor.
///
/// The order matters:
///
/// 1. Signals of the keeper are heard first. The keeper blocks them for the worker, since one without a handler would end it.
/// 2. The worker watches the keeper, and starts another one if it dies, before it takes long for anything.
/// 3. The state on disk is opened from below: images, recordings, the fill service, views. Views are restored before a read is
///    answered, so that the fill service knows each layer that a mounted view shows. The services are made over that.
/// 4. Reads are answered. Readers have waited since the last worker ended.
/// 5. Work that may take long runs in the background.
/// 6. containerd and the command line are served last: they ask for all of the above.
///
/// # Errors
/// When the worker cannot start at all. The keeper then tries again.
pub fn run(paths: &Paths, settings: Settings, inherited: Inherited) -> Result<(), Failure> {
    process::set_name("xebec-worker");
    if let Err(error) = process::keep_memory_to_itself() {
        warn!("cannot rule out a dump of the worker's memory, which holds logins: {error}");
    }
    let (group, journal, [listener, containerd], left) = inherited.into_parts();

    let (runtime, orders) = start_runtime()?;
    note_process_id(paths);
    watch_keeper(paths, &settings, &journal);

    let (opened, newly_complete) = open(paths, settings, &runtime, &group, &journal)?;
    let services = Services::new(&opened);
    services.proofs.learn_shared_contents();
    let events = EventLoop::start(left, opened.fills.clone())
        .map_err(|error| Failure::host("read the guarded mount's events", error))?;
    info!(pid = std::process::id(), "worker ready");

    start_background_work(&runtime, &opened, &services, newly_complete);
    let serving = Serving::new(&opened, &services);
    let (snapshots, durability, history) = (services.snapshots, services.durability, services.history);
    {
        let _inside = runtime.enter();
        services.completions.resume();
        services.read_ahead.widen_restored();
        snapshots::serve(
            &containerd,
            services.layers,
            &opened.settings.snapshotter,
            &snapshots,
        );
    }
    let last_word = runtime.block_on(serving.serve(accepting(&listener)?, orders))?;

    runtime.block_on(snapshots.end());
    history.finish();
    end(last_word, runtime, &durability, &journal, events);
    Ok(())
}

/// The runtime, and the keeper's signals. Threads of the runtime let signals in as soon as somebody listens to them.
fn start_runtime() -> Result<(Runtime, Orders), Failure> {
    let listens = Arc::new(OnceLock::new());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .on_thread_start({
            let listens = listens.clone();
            move || {
                let () = listens.wait();
                orders::unblock();
            }
        })
        .worker_threads(2)
        // Decoding and indexing run here; two cores' worth keeps them from starving each other.
        .max_blocking_threads(16)
        .enable_all()
        .thread_name("xebec-worker")
        .build()
        .map_err(|error| Failure::host("start the runtime", error))?;
    let orders = {
        let _inside = runtime.enter();
        Orders::listen()
    };
    // Also after a failure: the threads must not wait for ever.
    let _ = listens.set(());
    let orders = orders?;
    orders::unblock();
    Ok((runtime, orders))
}

/// A keeper finds a worker that lost its keeper by this file, whatever became of the keeper that started it.
fn note_process_id(paths: &Paths) {
    let file = paths.run().join("worker.pid");
    if let Err(error) = xebec_keeper::write_process(&file, std::process::id().cast_signed()) {
        warn!("{}: {error}", file.display());
    }
}

/// Starts another keeper when this worker's keeper dies.
fn watch_keeper(paths: &Paths, settings: &Settings, journal: &Arc<Journal>) {
    let (paths, overrides) = (paths.clone(), settings.given.clone());
    xebec_keeper::watch::watch(journal.clone(), move || {
        client::start_keeper(&paths, &overrides, None)
    });
}

/// Opens the state on disk, and gives the layers that become complete from now on.
fn open(
    paths: &Paths,
    settings: Settings,
    runtime: &Runtime,
    group: &Arc<Group>,
    journal: &Arc<Journal>,
) -> Result<(Opened, UnboundedReceiver<LayerKey>), Failure> {
    let images = Images::open(paths)?;
    images.store().clean();
    let recordings = Recordings::new(paths, images.clone());
    recordings.kept().remove_damaged();
    let (completed, newly_complete) = tokio::sync::mpsc::unbounded_channel();
    let fills = FillService::new(
        FillParts {
            store: images.store().clone(),
            clients: images.clients().clone(),
            group: group.clone(),
            runtime: runtime.handle().clone(),
            completed,
        },
        &settings,
    );
    let suspects = Arc::new(Suspects::read(paths));
    let was_unguarded = journal.was_unguarded();
    let views = Views::restore(paths, &fills, &suspects, was_unguarded, settings.linger)?;
    let views = Arc::new(views);
    let reading = Arc::downgrade(&views);
    fills.read_by(Box::new(move |key| {
        let views = reading.upgrade();
        views.map_or_else(Default::default, |views| views.readers_of(key))
    }));
    journal.set_unguarded(false);
    let opened = Opened {
        images,
        recordings,
        fills,
        views,
        suspects,
        journal: journal.clone(),
        settings,
    };
    Ok((opened, newly_complete))
}

fn start_background_work(
    runtime: &Runtime,
    opened: &Opened,
    services: &Services,
    newly_complete: UnboundedReceiver<LayerKey>,
) {
    runtime.spawn_blocking(xebec_oci::read_authorities);
    runtime.spawn_blocking(xebec_kernel::memory::take_room);
    let (paths, quota) = (opened.images.paths().clone(), services.quota.clone());
    runtime.spawn_blocking(move || {
        quota.remove_strange_metadata(false);
        remove_abandoned_files(&paths);
    });
    runtime.spawn(services.proofs.clone().prove_completed(newly_complete));
    runtime.spawn(services.explanations.clone().watch_slow_readers());
    if let Some(address) = opened.settings.metrics {
        runtime.spawn(metrics_server::serve(address, services.metrics.clone()));
    }
    runtime.spawn(services.history.clone().run());
    runtime.spawn(services.upkeep.clone().run());
    runtime.spawn(services.prefetch_list.clone().run());
    runtime.spawn(containers::run(opened.images.paths().clone()));
}

/// Removes files that processes which died left half-written.
fn remove_abandoned_files(paths: &Paths) {
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
}

/// The command line's socket. The original stays open under its number, where a keeper that takes over finds it.
fn accepting(listener: &UnixListener) -> Result<UnixListener, Failure> {
    listener
        .try_clone()
        .map_err(|error| Failure::host("listen for the command line", error))
}

/// Ends the worker's tasks, and tells the keeper why.
fn end(last_word: LastWord, runtime: Runtime, durability: &Durability, journal: &Journal, events: EventLoop) {
    // The next worker does not know which files this one has not synced.
    durability.sync_notes();
    if last_word == LastWord::HandedOver {
        // New events wait in the kernel for the next worker from here on; this should be short.
        events.stop_reading();
        let deadline = Instant::now() + LAST_ANSWERS;
        while events.owed() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        journal.set_last_word(last_word);
        // Tasks under way end with the process; dropping them one by one would only take time from readers.
        std::mem::forget(runtime);
    } else {
        durability.sync_served();
        events.stop();
        runtime.shutdown_timeout(LAST_TASKS);
        journal.set_last_word(last_word);
    }
}
