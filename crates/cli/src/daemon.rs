//! `xebec daemon`, and the worker that the keeper starts.

use std::path::PathBuf;
use std::process::ExitCode;

use xebec_host::client::Daemon;
use xebec_host::events::take_inherited;
use xebec_host::failure::{Failure, FailureKind};
use xebec_host::keeper;
use xebec_host::paths::Paths;
use xebec_host::protocol::{Reply, Request, Status};
use xebec_host::worker;

use crate::args::DaemonCommand;
use crate::text;

/// First argument of a worker; `xebec worker ROOT RUN`.
pub(crate) const WORKER_ARGUMENT: &str = "worker";

/// `xebec daemon …`.
pub(crate) fn command(paths: &Paths, command: &DaemonCommand) -> Result<ExitCode, Failure> {
    let daemon = Daemon::new(paths.clone());
    match command {
        DaemonCommand::Status(args) => {
            if !daemon.is_running() {
                return Err(Failure::new(
                    FailureKind::NotFound,
                    "no daemon is running; any command starts it",
                ));
            }
            let status = match daemon.ask(&Request::Status, &mut |_| ())? {
                Reply::Status(status) => status,
                _ => {
                    return Err(Failure::new(
                        FailureKind::Host,
                        "the daemon answered something else",
                    ));
                }
            };
            if args.json {
                crate::print_json(&status)?
            } else {
                print_status(&status)
            }
        }
        DaemonCommand::Stop { force } => {
            if daemon.is_running() {
                daemon.stop(*force)?;
            }
        }
        DaemonCommand::Start => {
            // A daemon must not keep the file system busy on which somebody happened to start it.
            std::env::set_current_dir("/").map_err(|error| Failure::host("go to /", error))?;
            let config = keeper::KeeperConfig::new(
                paths.root(),
                paths.run(),
                vec![WORKER_ARGUMENT.into(), paths.root().into(), paths.run().into()],
            );
            keeper::run(&config).map_err(|error| Failure::new(FailureKind::Host, error))?;
        }
        DaemonCommand::Worker => {
            return Err(Failure::new(
                FailureKind::Usage,
                "only the keeper starts a worker",
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The worker's main: `xebec worker ROOT RUN`.
pub(crate) fn worker() -> ExitCode {
    // Before anything else opens a descriptor.
    let inherited = match take_inherited() {
        Ok(inherited) => inherited,
        Err(error) => {
            eprintln!("xebec worker: {error}");
            return ExitCode::from(FailureKind::Usage.exit_code());
        }
    };
    crate::log_to_stderr(0, true);
    let mut directories = std::env::args_os().skip(2).map(PathBuf::from);
    let (Some(root), Some(run)) = (directories.next(), directories.next()) else {
        eprintln!("xebec worker: needs the root and the run directory");
        return ExitCode::from(FailureKind::Usage.exit_code());
    };
    let result = Paths::create(&root, &run)
        .map_err(|error| Failure::host("make the directories", error))
        .and_then(|paths| worker::run(&paths, inherited));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{failure}");
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

fn print_status(status: &Status) {
    let counters = &status.counters;
    println!(
        "xebec {} (keeper {}, worker {})",
        status.version, status.keeper_pid, status.worker_pid
    );
    println!("restarts of the worker   {}", status.restarts);
    println!("readers waiting          {}", status.queue);
    println!("events, already present  {}, {}", counters.events, counters.hits);
    println!("spans written            {}", counters.spans);
    println!("fetched for fills        {}", text::size(counters.bytes_fetched));
    println!(
        "network                  {} in {} requests, {} retries",
        text::size(counters.network_bytes),
        counters.network_requests,
        counters.network_retries
    );
    println!("failed fills             {}", counters.failures);
    for view in &status.views {
        println!(
            "view {} of {}: {} layers, {} complete, held by {}",
            view.path.display(),
            view.reference,
            view.layers,
            view.complete_layers,
            view.holders.len()
        );
    }
}
