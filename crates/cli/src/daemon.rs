//! `xebec daemon`, and the worker that the keeper starts.

use std::path::Path;
use std::process::ExitCode;

use xebec_daemon::{failpoints, worker};
use xebec_fill::events::{Inherited, take_inherited};
use xebec_keeper::client::{Daemon, not_running, unexpected_reply};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::{Overrides, Settings};
use xebec_protocol::wire::{Reply, Request, Status, users};

use crate::args::{DaemonCommand, StartArgs};
use crate::text;

/// First argument of a worker; `xebec worker ROOT RUN OVERRIDES`, the last as JSON.
pub(crate) const WORKER_ARGUMENT: &str = "worker";

/// `xebec daemon …`.
pub(crate) fn command(paths: &Paths, command: &DaemonCommand) -> Result<ExitCode, Failure> {
    let daemon = Daemon::new(paths.clone());
    match command {
        DaemonCommand::Start(args) => start(paths, args)?,
        DaemonCommand::Status(args) => status(paths, &daemon, args.json)?,
        DaemonCommand::Metrics => metrics(&daemon)?,
        DaemonCommand::Stop { force } => stop(&daemon, *force)?,
        DaemonCommand::Upgrade { program } => upgrade(&daemon, program.as_deref())?,
        DaemonCommand::JournalVersion => outln!("{}", xebec_keeper::JOURNAL_VERSION),
        DaemonCommand::Worker => {
            return Err(Failure::new(
                FailureKind::Usage,
                "only the keeper starts a worker",
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the keeper in this process, until the daemon is stopped.
fn start(paths: &Paths, args: &StartArgs) -> Result<(), Failure> {
    let overrides = args.overrides();
    // The user who made wrong settings sees this message; the worker's would be in a log.
    let settings = Settings::load(&paths.settings(), &overrides)?;
    let overrides = serde_json::Value::Object(overrides).to_string();
    // The daemon must not keep the file system busy on which somebody happened to start it.
    std::env::set_current_dir("/").map_err(|error| Failure::host("go to /", error))?;
    let mut config = xebec_keeper::KeeperConfig::new(
        paths.root(),
        paths.run(),
        vec![
            WORKER_ARGUMENT.into(),
            paths.root().into(),
            paths.run().into(),
            overrides.into(),
        ],
    );
    config.snapshots = settings.snapshotter.socket(paths);
    xebec_keeper::run(&config).map_err(|error| Failure::new(FailureKind::Host, error))
}

fn status(paths: &Paths, daemon: &Daemon, is_json: bool) -> Result<(), Failure> {
    let status = daemon.status()?;
    if is_json {
        return text::print_json(&status);
    }
    print_status(paths, &status);
    Ok(())
}

fn metrics(daemon: &Daemon) -> Result<(), Failure> {
    let Reply::Metrics { text } = daemon.ask_running(&Request::Metrics)?.ok_or_else(not_running)? else {
        return Err(unexpected_reply());
    };
    out!("{text}");
    Ok(())
}

fn stop(daemon: &Daemon, force: bool) -> Result<(), Failure> {
    if let Some(reason) = daemon.stop(force)? {
        errln!(
            "xebec: everything is unmounted, but {reason}: its reads of missing pages fail with EIO. The daemon stops \
             after the last reader"
        );
    }
    Ok(())
}

/// Replaces the running daemon by `program`, or by this very program.
fn upgrade(daemon: &Daemon, program: Option<&Path>) -> Result<(), Failure> {
    let program = match program {
        Some(program) => program.canonicalize(),
        None => std::env::current_exe(),
    };
    let program = program.map_err(|error| Failure::host("find the new program", error))?;
    let status = daemon.upgrade(&program)?;
    outln!(
        "xebec {} (keeper {}, worker {}) from {}",
        status.version,
        status.keeper_pid,
        status.worker_pid,
        program.display()
    );
    Ok(())
}

/// The worker's main: `xebec worker ROOT RUN OVERRIDES`.
pub(crate) fn worker() -> ExitCode {
    failpoints::arrange();
    // Before anything else opens a descriptor.
    let inherited = match take_inherited() {
        Ok(inherited) => inherited,
        Err(error) => {
            errln!("xebec worker: {error}");
            return ExitCode::from(FailureKind::Usage.exit_code());
        }
    };
    match run_worker(inherited) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{failure}");
            errln!("xebec worker: {failure}");
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

fn run_worker(inherited: Inherited) -> Result<(), Failure> {
    let mut arguments = std::env::args_os().skip(2);
    let (Some(root), Some(run)) = (arguments.next(), arguments.next()) else {
        let message = "a worker needs the root and the run directory; only the keeper starts it";
        return Err(Failure::new(FailureKind::Usage, message));
    };
    crate::caller::close_files();
    let paths = Paths::create(Path::new(&root), Path::new(&run))
        .map_err(|error| Failure::new(FailureKind::Host, error))?;
    let overrides = arguments.next().unwrap_or_default();
    let overrides: Overrides = serde_json::from_slice(overrides.as_encoded_bytes()).unwrap_or_default();
    let settings = Settings::load(&paths.settings(), &overrides);
    // Readers wait for this worker: a file that was broken since the start must not keep it from serving them.
    let (settings, problem) = match settings {
        Ok(settings) => (settings, None),
        Err(failure) => (Settings::default(), Some(failure)),
    };
    crate::logging::start(0, Some(settings.log));
    if let Some(failure) = problem {
        tracing::error!("{failure}; going on with default settings");
    }
    worker::run(&paths, settings, inherited)
}

fn print_status(paths: &Paths, status: &Status) {
    outln!(
        "xebec {} (keeper {}, worker {})",
        status.version,
        status.keeper_pid,
        status.worker_pid
    );
    if status.ending {
        outln!(
            "STOPPING: the daemon was told to stop; reads of missing pages on unmounted views fail with EIO"
        );
    }
    print_fills(status);
    print_suspects(status);
    print_snapshots(status);
    print_views(paths, status);
}

fn print_fills(status: &Status) {
    let counters = &status.counters;
    outln!("restarts of the worker   {}", status.restarts);
    outln!("readers waiting          {}", status.queue);
    if let Some(oldest) = &status.oldest_reader {
        outln!(
            "waiting longest          {}, {} for {}, which is waiting for {}",
            text::waiting_process(oldest),
            text::time(oldest.waited_ms),
            oldest.file.as_deref().unwrap_or("an unknown file"),
            text::wait_reason(&oldest.phase),
        );
    }
    outln!("events, already present  {}, {}", counters.events, counters.hits);
    outln!("spans written            {}", counters.spans);
    outln!("fetched for fills        {}", text::size(counters.bytes_fetched));
    outln!(
        "network                  {} in {}, {}",
        text::size(counters.network_bytes),
        text::count(counters.network_requests, "request"),
        text::count(counters.network_retries, "retry")
    );
    outln!("failed fills             {}", counters.failures);
}

/// Processes that may have read zeros.
fn print_suspects(status: &Status) {
    for suspect in &status.suspects {
        let on = suspect.processes.iter();
        let on: Vec<_> = on
            .map(|process| format!("{} ({})", process.command, process.pid))
            .collect();
        outln!(
            "MAY HAVE READ ZEROS: processes on an old view of {}; restart {}",
            suspect.reference,
            on.join(", ")
        );
    }
}

/// Prints the counts of containerd's snapshots and layers, or why containerd is not served.
fn print_snapshots(status: &Status) {
    if let Some(problem) = &status.snapshots_problem {
        outln!("containerd is not served: {problem}");
    }
    let Some(snapshots) = &status.snapshots else {
        return;
    };
    outln!(
        "containerd's snapshots   {} active, {} views, {} committed ({} lazy)",
        snapshots.active,
        snapshots.views,
        snapshots.committed,
        snapshots.committed_lazy
    );
    let unpacked = snapshots.unpacked.iter();
    let unpacked: Vec<_> = unpacked
        .map(|(reason, layers)| format!(", {layers} unpacked: {reason}"))
        .collect();
    outln!(
        "layers it asked for      {} lazy{}",
        snapshots.lazy,
        unpacked.concat()
    );
}

fn print_views(paths: &Paths, status: &Status) {
    // A record that cannot be read costs a name only.
    let containers = xebec_container::list(paths.run());
    let containers = containers.map_or_else(|_| Vec::new(), |listed| listed.records);
    if status.lingering_views > 0 {
        outln!("views kept for later     {}", status.lingering_views);
    }
    for view in &status.views {
        outln!(
            "{}: {}, {} complete; used by {}",
            view.reference,
            text::layers(view.layers as u64),
            view.complete_layers,
            users(&view.path, &view.holders, &containers).join(", ")
        );
    }
}
