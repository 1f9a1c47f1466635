//! One start of a container, by `xebec run`, `start` or a restart policy: the daemon mounts the view, this process runs the
//! container on it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use serde::Serialize;
use xebec_container::{Again, ConfigNotifier, Event, Identity, ImageConfig, Prepared, RunError, RunOptions};
use xebec_format::digest::Digest;
use xebec_keeper::client::{Daemon, unexpected_reply};
use xebec_kernel::clock::milliseconds_since_1970;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::{
    Allowed, Completion, Counters, Holder, ImageRequest, Loaded, Mounted, Purpose, Reply, Request,
    ServiceCommand, Touched,
};

use crate::args::{Pull, RunArgs};
use crate::caller;
use crate::container_lookup::directories;
use crate::origin::Origin;
use crate::progress::Progress;
use crate::report::Report;
use crate::slow_readers::{self, SlowReaders};

/// The statistics that `--stats` writes.
#[derive(Debug, Serialize)]
struct Stats {
    image: String,
    manifest: String,
    lazy: bool,
    /// Stages, in milliseconds: resolve, index, view, mount, create (overlay and container made), ready (from the
    /// command's start until the probe).
    stages_ms: BTreeMap<String, f64>,
    /// From the command line's start until ready, or until the container's end without a probe.
    total_ms: f64,
    /// The daemon's counters, from before the mount until ready.
    network: Network,
    fills: Fills,
    touched: Touched,
    /// The result of loading the runtime image, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime_image: Option<Loaded>,
}

#[derive(Debug, Serialize)]
struct Network {
    requests: u64,
    bytes: u64,
    retries: u64,
}

#[derive(Debug, Serialize)]
struct Fills {
    events: u64,
    cache_hits: u64,
    spans: u64,
    joins: u64,
    bytes_fetched: u64,
    pages_written: u64,
    failures: u64,
}

/// One start of a container.
pub(crate) struct Start {
    pub(crate) args: RunArgs,
    /// The command and surroundings from which the container is started again.
    pub(crate) origin: Origin,
    /// The name of a container that exists.
    pub(crate) name: Option<String>,
    pub(crate) again: Again,
    /// The manifest of its image, by an earlier start. A container that exists is started with that image, whatever the tag
    /// names by now.
    pub(crate) manifest: Option<Digest>,
    /// The container's name, once it has one.
    pub(crate) claimed: OnceCell<String>,
}

/// Why a container did not run, or not to its end.
pub(crate) enum Problem {
    Failure(Failure),
    Container(RunError),
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<RunError> for Problem {
    fn from(error: RunError) -> Self {
        Self::Container(error)
    }
}

impl Problem {
    /// The exit of the command after it: a container's problem has an exit code of its own.
    pub(crate) fn end(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Failure(failure) => Err(failure),
            Self::Container(error) => {
                errln!("xebec: {error}");
                Ok(error.exit_code().into())
            }
        }
    }
}

/// Runs a container, and waits for its end. Reports to the command that waits for its start.
pub(crate) fn run_container(
    paths: &Paths,
    job: &Start,
    report: Option<&mut Report>,
) -> Result<xebec_container::ExitCode, Problem> {
    let start = Instant::now();
    let args = &job.args;
    let is_detached = report.is_some();
    let options = job.options(is_detached)?;
    let daemon = Daemon::new(paths.clone());
    let wants_stats = args.stats.is_some();
    let before = if wants_stats { counters(&daemon) } else { None };
    let before = before.map(|counters| Before { start, counters });
    let holder = Holder::this_process("run")?;
    let request = job.mount_request(&holder);
    let progress = Arc::new(Progress::of(format!("start {}", args.service.image.image)));
    let prepared = Prepared::begin(&options, &directories(paths), {
        let (daemon, progress) = (daemon.clone(), progress.clone());
        move |notifier| {
            if is_detached {
                // It keeps no file system of the caller from being unmounted.
                let _ = std::env::set_current_dir("/");
            }
            mount(&daemon, &request, &progress, notifier)
        }
    });
    // It may still be shown how far its image has come.
    let (mut prepared, mounted) = prepared.inspect_err(|_| progress.end())?;
    let _ = job.claimed.set(prepared.name().to_owned());
    let mounted = match mounted {
        Ok(mounted) => mounted,
        Err(failure) => {
            prepared.give_up(&failure);
            return Err(failure.into());
        }
    };
    prepared.set_manifest(mounted.manifest.to_string());
    let mut over = StartOver::new(&daemon, &holder);
    let (name, began_ms) = (prepared.name().to_owned(), milliseconds_since_1970());
    let screen = args.tty.then(|| options.screen.clone());
    let readers = (!is_detached).then(|| SlowReaders::watch(&daemon, &name, screen));
    let result = run_on(prepared, &mounted, &mut over, report, |stages| {
        match (&args.stats, before) {
            (Some(file), Some(before)) => write_stats(file, &daemon, &mounted, stages, before),
            _ => Ok(()),
        }
    });
    drop(readers);
    if !is_detached && !matches!(result, Ok(xebec_container::ExitCode(0))) {
        slow_readers::tell_failed(paths, &name, began_ms);
    }
    over.end();
    // Also after a failure: nobody else would give the view back before the daemon notices that we are gone.
    let released = release(&daemon, &mounted, holder);
    let code = result?;
    released?;
    Ok(code)
}

/// Gives a view back.
fn release(daemon: &Daemon, mounted: &Mounted, holder: Holder) -> Result<(), Failure> {
    let view = Some(mounted.view.clone());
    daemon.ask(&Request::Release { view, holder }, &mut |_| ())?;
    Ok(())
}

/// Tells the daemon once when the start is over, beside the container's supervision, which must not wait for it.
struct StartOver {
    daemon: Daemon,
    holder: Holder,
    container: Option<String>,
    user: Option<Identity>,
    telling: Option<JoinHandle<()>>,
}

impl StartOver {
    fn new(daemon: &Daemon, holder: &Holder) -> Self {
        Self {
            daemon: daemon.clone(),
            holder: holder.clone(),
            container: None,
            user: None,
            telling: None,
        }
    }

    /// It was ready at that time, in milliseconds since 1970; or it ended.
    fn tell(&mut self, ready_ms: Option<u64>) {
        let request = Request::StartOver {
            holder: self.holder.clone(),
            container: self.container.clone(),
            ready_ms,
            user: self.user.take(),
        };
        let daemon = self.daemon.clone();
        // Nothing depends on it: an older daemon does not know this request.
        self.telling = Some(std::thread::spawn(move || {
            let _ = daemon.ask(&request, &mut |_| ());
        }));
    }

    /// The container is gone. Waits until all is known about its start.
    fn end(mut self) {
        if self.telling.is_none() {
            self.tell(None);
        }
        if let Some(telling) = self.telling {
            let _ = telling.join();
        }
    }
}

fn run_on(
    prepared: Prepared<'_>,
    mounted: &Mounted,
    over: &mut StartOver,
    mut report: Option<&mut Report>,
    mut ready: impl FnMut(BTreeMap<String, f64>) -> Result<(), Failure>,
) -> Result<xebec_container::ExitCode, Problem> {
    let image = ImageConfig::from_json(&mounted.config)
        .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
    let begin = Instant::now();
    let id = prepared.container_id().to_owned();
    let directory = prepared.directory().to_owned();
    let mut stages = mounted.stages_ms.clone();
    let mut started = begin;
    let mut written: Option<Result<(), Failure>> = None;
    let outcome = prepared.run(&mounted.path, &image, &mut |event| match event {
        Event::Created { user, .. } => {
            over.user = user;
            stages.insert("create".to_owned(), begin.elapsed().as_secs_f64() * 1e3);
        }
        Event::Started => started = Instant::now(),
        Event::Kept => {
            if let Some(report) = &mut report {
                report.started(&id, &directory);
            }
        }
        Event::Ready { .. } => {
            stages.insert("ready".to_owned(), started.elapsed().as_secs_f64() * 1e3);
            over.tell(Some(milliseconds_since_1970()));
            written = Some(ready(stages.clone()));
        }
        Event::Mounted { id } => over.container = Some(id),
        Event::Exited { .. } => {}
    });
    let code = outcome?;
    match written {
        Some(result) => result?,
        None => ready(stages)?,
    }
    Ok(code)
}

/// With `-v`: tells the daemon's steps, and how long each took.
fn tell_stages(mounted: &Mounted) {
    let how = match mounted.lazy {
        true => "lazily",
        false => "after layers were read whole",
    };
    tracing::info!("{} ({}) is mounted {how}", mounted.reference, mounted.manifest);
    for (stage, milliseconds) in &mounted.stages_ms {
        tracing::info!("{stage}: {}", crate::text::time(*milliseconds));
    }
}

impl Start {
    fn mount_request(&self, holder: &Holder) -> Request {
        let args = &self.args;
        let pull = match (self.again, args.pull) {
            // The container's layer lies on the image that the tag named at first. The tag's present image does not matter.
            (Again::ByUser | Again::ByPolicy, Pull::Always) => Pull::Missing,
            (_, pull) => pull,
        };
        Request::Mount {
            image: ImageRequest {
                pull: pull.into(),
                manifest: self.manifest,
                docker_config: self.origin.docker_config.clone().filter(|path| path.is_file()),
                ..caller::image_request(&args.service.image)
            },
            holder: holder.clone(),
            require_lazy: args.require_lazy,
            completion: args.complete.map(|deadline| Completion {
                deadline_seconds: deadline.as_secs(),
            }),
            purpose: match args.no_runtime_image {
                true => Purpose::Files,
                false => Purpose::Service(ServiceCommand {
                    learn: args.learn,
                    ..args.container.service(&args.service.command)
                }),
            },
            allowed: Allowed::default(),
            wants_configuration: true,
        }
    }

    fn options(&self, is_detached: bool) -> Result<RunOptions, Failure> {
        let args = &self.args;
        let caller = serde_json::to_value(&self.origin);
        Ok(RunOptions {
            id: self.name.clone(),
            interactive: args.interactive,
            tty: args.tty,
            rm: args.rm,
            exit_on_ready: args.exit_on_ready,
            detached: is_detached.then(|| args.kept.log_limits()),
            labels: args.kept.labels(),
            restart: args.kept.restart,
            stop_signal: args.kept.stop_signal,
            stop_timeout: args.kept.stop_timeout,
            caller: caller.map_err(|error| Failure::host("encode the command's arguments", error))?,
            again: self.again,
            ..args.container.options(&args.service.image, &args.service.command)
        })
    }
}

fn mount(
    daemon: &Daemon,
    request: &Request,
    progress: &Progress,
    notifier: &ConfigNotifier,
) -> Result<Mounted, Failure> {
    let mut listen = |reply: &Reply| match reply {
        // A configuration that is wrong is reported later, for the image that is mounted.
        Reply::Configuration { config, user } => {
            if let Ok(image) = ImageConfig::from_json(config) {
                notifier.notify(image, user.clone());
            }
        }
        reply => progress.show(reply),
    };
    let reply = daemon.ask(request, &mut listen);
    // The container's output comes next.
    progress.end();
    match reply? {
        Reply::Mounted(mounted) => {
            tell_stages(&mounted);
            Ok(*mounted)
        }
        _ => Err(unexpected_reply()),
    }
}

fn counters(daemon: &Daemon) -> Option<Counters> {
    match daemon.ask(&Request::Status, &mut |_| ()).ok()? {
        Reply::Status(status) => Some(status.counters),
        _ => None,
    }
}

fn loaded(daemon: &Daemon, view: &str) -> Option<Loaded> {
    let view = view.to_owned();
    match daemon.ask(&Request::Loaded { view }, &mut |_| ()) {
        Ok(Reply::Loaded { loaded }) => loaded,
        _ => None,
    }
}

fn touched(daemon: &Daemon, view: &str) -> Option<Touched> {
    match daemon
        .ask(
            &Request::Touched {
                view: view.to_owned(),
            },
            &mut |_| (),
        )
        .ok()?
    {
        Reply::Touched(touched) => Some(touched),
        _ => None,
    }
}

/// The moment and the counters from which statistics are counted.
#[derive(Clone, Copy)]
struct Before {
    start: Instant,
    counters: Counters,
}

/// Writes the statistics of a start to a file.
fn write_stats(
    file: &Path,
    daemon: &Daemon,
    mounted: &Mounted,
    stages: BTreeMap<String, f64>,
    before: Before,
) -> Result<(), Failure> {
    let after = counters(daemon).unwrap_or(before.counters);
    let touched = touched(daemon, &mounted.view).unwrap_or_default();
    let mut stats = stats(mounted, stages, &before, &after, touched);
    // Pages of its recording may still come after it is ready.
    stats.runtime_image = loaded(daemon, &mounted.view);
    if let Some(loaded) = &stats.runtime_image {
        stats.stages_ms.insert("load".to_owned(), loaded.milliseconds);
    }
    let text =
        serde_json::to_vec_pretty(&stats).map_err(|error| Failure::host("encode statistics", error))?;
    crate::caller::write(file, text)
        .map_err(|error| Failure::host(format!("write {}", file.display()), error))
}

fn stats(
    mounted: &Mounted,
    stages_ms: BTreeMap<String, f64>,
    before: &Before,
    after: &Counters,
    touched: Touched,
) -> Stats {
    let Before { start, counters } = before;
    let before = counters;
    Stats {
        image: mounted.reference.clone(),
        manifest: mounted.manifest.to_string(),
        lazy: mounted.lazy,
        stages_ms,
        total_ms: start.elapsed().as_secs_f64() * 1e3,
        network: Network {
            requests: after.network_requests.saturating_sub(before.network_requests),
            bytes: after.network_bytes.saturating_sub(before.network_bytes),
            retries: after.network_retries.saturating_sub(before.network_retries),
        },
        fills: Fills {
            events: after.events.saturating_sub(before.events),
            cache_hits: after.hits.saturating_sub(before.hits),
            spans: after.spans.saturating_sub(before.spans),
            joins: after.joins.saturating_sub(before.joins),
            bytes_fetched: after.bytes_fetched.saturating_sub(before.bytes_fetched),
            pages_written: after.bytes_written.saturating_sub(before.bytes_written) / 4096,
            failures: after.failures.saturating_sub(before.failures),
        },
        touched,
        runtime_image: None,
    }
}
