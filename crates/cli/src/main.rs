//! The binary `xebec`: reads the command line, asks the daemon or does the work in this process, and prints the result.
//!
//! * [`args`]: the command line; [`completion`]: completion scripts and man pages.
//! * A file for each command, or for a family of commands, such as `run`, `lifecycle` and `images`.
//! * [`mod@print`]: the output, which survives a closed pipe; [`text`]: sizes, times and tables; [`progress`]: the progress of a command.
//! * [`report`]: how the supervisor of a container in the background tells the command that started it that the container runs.
//!
//! Promises: no other crate of the host side prints; a command that fails ends with the exit code of the failure's kind
//! (`protocol/src/failure.rs`), or with 125 if it was to run a program.
//!
//! May use: every crate of the host side. No crate uses this one.

#![deny(clippy::print_stdout, clippy::print_stderr)]

// First, for its macros: all other modules print with them.
#[macro_use]
mod print;

mod args;
mod bounded;
mod cache;
mod caller;
mod commit;
mod completion;
mod container_lookup;
mod containers;
mod cp;
mod ctr_pull;
mod daemon;
mod detach;
mod doctor;
mod exec;
mod explain;
mod failures;
mod footnotes;
mod images;
mod init;
mod inspect;
mod install;
mod lifecycle;
mod listing;
mod logging;
mod login;
mod logs;
mod network;
mod origin;
mod prefetch;
mod progress;
mod prompt;
mod record;
mod relay;
mod report;
mod run;
mod runtime;
mod slow_readers;
mod stats;
mod supervise;
mod template;
mod text;
mod volume;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::args::{CacheCommand, Cli, Command, ContainerCommand, DaemonCommand};

/// The exit code, docker's, of a command that otherwise ends with the code of its program, if the program was not run. Any other
/// code could be the program's own.
const NOT_RUN: u8 = 125;

fn main() -> ExitCode {
    // In a container there is nothing of Xebec but this program.
    if init::is_first_process() {
        return init::first_process();
    }
    // A worker takes over numbered descriptors, so nothing may be opened before it has them.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|argument| argument == daemon::WORKER_ARGUMENT)
    {
        return daemon::worker();
    }
    print::finish(command_line())
}

/// Carries the command out.
fn command_line() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let cli = match Cli::read(&words) {
        Ok(cli) => cli,
        Err(error) => return help_or_error(&error, &words),
    };
    let runs = cli.runs;
    if cli.json {
        print::failures_as_json();
    }
    let daemon_log = match &cli.command {
        Command::Daemon {
            command: DaemonCommand::Start(args),
        } => Some(args.log_format(&cli.root)),
        _ => None,
    };
    logging::start(cli.verbose, daemon_log);
    progress::set(cli.quiet, cli.verbose > 0);
    match execute(cli) {
        Ok(code) => code,
        Err(failure) => {
            print::failure(&failure);
            ExitCode::from(if runs { NOT_RUN } else { failure.kind.exit_code() })
        }
    }
}

/// Prints clap's text: the help or the version that was asked for, or the error in the command line.
fn help_or_error(error: &clap::Error, words: &[OsString]) -> ExitCode {
    if !error.use_stderr() {
        print::write_with(|| error.print());
    } else if Cli::asks_for_json(words) {
        print::failures_as_json();
        let text = error.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
        print::failure(&Failure::new(FailureKind::Usage, text));
    } else {
        let _ = error.print();
    }
    match error.use_stderr() && Cli::asks_to_run(words) {
        true => ExitCode::from(NOT_RUN),
        false => u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
    }
}

fn execute(cli: Cli) -> Result<ExitCode, Failure> {
    if execute_without_directories(&cli)? {
        return Ok(ExitCode::SUCCESS);
    }
    // This comes before the inherited descriptors are marked as this process's own.
    let report = match cli.supervisor {
        true => Some(report::Report::take()?),
        false => None,
    };
    caller::close_files();
    if let Err(error) = keep_to_itself(&cli.command) {
        tracing::warn!("cannot protect descriptors and memory from other processes: {error}");
    }
    // It reports the faults of the directories itself.
    if let Command::Doctor(args) = &cli.command {
        return doctor::doctor(&cli.root, &cli.run, args);
    }
    if only_reads(&cli.command) {
        check_root(&cli.root)?;
    }
    let paths = Paths::create(&cli.root, &cli.run).map_err(|error| Failure::new(FailureKind::Host, error))?;
    execute_in(&paths, cli.command, report)
}

/// Executes a command that makes no directories for Xebec. Returns false for any other command.
fn execute_without_directories(cli: &Cli) -> Result<bool, Failure> {
    match &cli.command {
        Command::Completion { shell } => {
            out!("{}", completion::script(*shell));
        }
        Command::Complete(args) => {
            completion::complete(&cli.root, &cli.run, args);
        }
        Command::Man { dir } => {
            clap_mangen::generate_to(Cli::documented(), dir)
                .map_err(|error| Failure::host(format!("write man pages to {}", dir.display()), error))?;
        }
        // Its directories are the host's, which need not be this process's.
        Command::Install(args) => {
            caller::make_usual_files();
            install::install(&cli.root, &cli.run, args)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Executes a command that works in Xebec's directories.
fn execute_in(paths: &Paths, command: Command, report: Option<report::Report>) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(args) => return supervise::run(paths, *args, report),
        Command::Start(args) => match (report, args.names.containers.as_slice()) {
            (Some(report), [name]) => return supervise::start_again(paths, name, report),
            _ => return lifecycle::start(paths, &args),
        },
        Command::Stop(args) => lifecycle::stop(paths, &args)?,
        Command::Restart(args) => return lifecycle::restart(paths, &args),
        Command::Kill(args) => lifecycle::send_signal(paths, &args)?,
        Command::Rm(args) => lifecycle::remove(paths, &args)?,
        Command::Wait(args) => lifecycle::wait(paths, &args)?,
        Command::Rename(args) => lifecycle::rename(paths, &args)?,
        Command::Pause(args) => lifecycle::set_paused(paths, &args, true)?,
        Command::Unpause(args) => lifecycle::set_paused(paths, &args, false)?,
        Command::Container {
            command: ContainerCommand::Prune { force },
        } => lifecycle::prune(paths, force)?,
        Command::Container {
            command: ContainerCommand::Restore { watch },
        } => return lifecycle::restore(paths, watch),
        Command::Logs(args) => logs::logs(paths, &args)?,
        Command::Mount(args) => images::mount(paths, &args)?,
        Command::Umount { dir } => images::umount(paths, &dir)?,
        Command::Index(args) => images::index(paths, &args)?,
        Command::Record(args) => record::record(paths, &args)?,
        Command::Pull(args) => images::pull(paths, &args)?,
        Command::Prefetch(args) => prefetch::prefetch(paths, &args)?,
        Command::Login(args) => login::login(paths, &args)?,
        Command::Logout(args) => login::logout(paths, &args)?,
        Command::CtrPull(args) => ctr_pull::ctr_pull(paths, &args)?,
        Command::DockerRelay(args) => relay::relay(paths, &args)?,
        Command::Check(args) => images::check(paths, &args)?,
        Command::Inspect(args) => inspect::inspect(paths, &args)?,
        Command::Images(args) => listing::images(paths, &args)?,
        Command::Ps(args) => containers::list(paths, &args)?,
        Command::Exec(args) => return exec::exec(paths, &args),
        Command::Cp(args) => cp::cp(paths, &args)?,
        Command::Commit(args) => commit::commit(paths, &args)?,
        Command::Push(args) => commit::push(paths, &args)?,
        Command::Stats(args) => stats::stats(paths, &args)?,
        Command::Top(args) => exec::top(paths, &args)?,
        Command::Network { command } => network::command(paths, &command)?,
        Command::Explain(args) => explain::explain(paths, &args)?,
        Command::Rmi(args) => cache::remove(paths, &args)?,
        Command::Volume { command } => volume::command(paths, &command)?,
        Command::Cache { command } => cache::command(paths, &command)?,
        Command::Daemon { command } => return daemon::command(paths, &command),
        Command::Completion { .. }
        | Command::Complete(_)
        | Command::Man { .. }
        | Command::Install(_)
        | Command::Doctor(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a command only shows the state in the root directory.
fn only_reads(command: &Command) -> bool {
    match command {
        Command::Images(_)
        | Command::Ps(_)
        | Command::Inspect(_)
        | Command::Logs(_)
        | Command::Explain(_)
        | Command::Cache {
            command: CacheCommand::Stat(_),
        } => true,
        Command::Check(args) => !args.all && !args.prove,
        _ => false,
    }
}

/// Refuses a root directory that is mistyped. On a host where Xebec has not been used yet it is missing, but the directory above it
/// is there.
fn check_root(root: &Path) -> Result<(), Failure> {
    let above = root.parent().filter(|above| !above.as_os_str().is_empty());
    match above {
        Some(above) if matches!(above.try_exists(), Ok(false)) => {
            let message = format!(
                "there is no root directory {}, and not even {}; is --root mistyped?",
                root.display(),
                above.display()
            );
            Err(Failure::new(FailureKind::NotFound, message))
        }
        _ => Ok(()),
    }
}

/// Keeps inherited descriptors, and the credentials that this process reads, from other processes.
fn keep_to_itself(command: &Command) -> std::io::Result<()> {
    let is_daemon = matches!(
        command,
        Command::Daemon {
            command: DaemonCommand::Start(_)
        }
    );
    // A daemon sees to it itself, once it has taken the descriptors that are handed down to it.
    if !is_daemon {
        xebec_kernel::process::keep_descriptors()?;
    }
    // A runtime reads from the descriptors of these, by a path through /proc. For `run` the daemon asks registries; `record` asks
    // them itself, and keeps its memory to itself before that.
    let has_runtime = match command {
        Command::Run(_) | Command::Start(_) | Command::Exec(_) => true,
        Command::Record(args) => !args.merge && !args.list && !args.remove,
        _ => false,
    };
    if !has_runtime {
        xebec_kernel::process::keep_memory_to_itself()?;
    }
    Ok(())
}
