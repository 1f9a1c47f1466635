//! A command that joins a container that runs.
//!
//! The container's own runtime starts it (`runc exec`, `crun exec`), so it gets the container's namespaces,
//! control groups and inner filter of system calls. The rest is in a `process.json` of ours: the process of
//! the container's own configuration with another command line ([`process`]). So the command has the
//! capabilities, the limits, `noNewPrivileges` and the labels of the container, and never more. The outer
//! filter, which the runtime does not know of ([`seccomp`]), is installed on the runtime again.
//!
//! As for `create`, the runtime is told to end once the command runs. This process is then the command's
//! parent: input and output pass through nobody else, and the exit status is the command's own.

mod files;
mod limits;
pub(crate) mod options;
mod process;

use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};

use serde_json::Value;
use signal_hook::consts::SIGWINCH;
use xebec_confinement::seccomp;
use xebec_kernel::file::read_limited;

use self::files::ExecFiles;
use self::limits::OpenFiles;
use self::options::ExecOptions;
use crate::init::{Init, become_subreaper, read_pid};
use crate::layout::CONFIG;
use crate::output::Tail;
use crate::running::is_root_of_mounts;
use crate::runtime::Runtime;
use crate::signal_watch::SignalWatch;
use crate::stdio::{ContainerStdio, finish_copies};
use crate::supervisor::asks_to_end;
use crate::supervisor_event::SupervisorEvent;
use crate::terminal::Terminal;
use crate::user;
use crate::{Directories, ExitCode, Record, RunError, RunOptions, command_check, terminal};

/// Largest configuration that is read. Command line and environment, which are the largest part of it, are
/// bounded by the kernel (`ARG_MAX`).
const CONFIG_LIMIT: u64 = 64 << 20;

/// Runs a command in a container that runs, and waits for its end. Meanwhile this process forwards `SIGINT`,
/// `SIGTERM`, `SIGHUP`, `SIGQUIT`, `SIGUSR1` and `SIGUSR2` to it. The process becomes a child subreaper and
/// keeps its handlers of these signals, so a program should end soon after this function returns.
///
/// # Errors
/// The failure that kept the command from running. A command that ran and ended is no error, with any exit code.
pub fn exec(record: &Record, options: &ExecOptions, dirs: &Directories) -> Result<ExitCode, RunError> {
    if options.tty && options.interactive && !terminal::stdin_is_terminal() {
        return Err(RunError::NoTerminal);
    }
    record.running_pid()?;
    match exec_in(record, options, dirs) {
        // The files of a container that has ended meanwhile are gone.
        Err(error @ RunError::File { .. }) => Err(record.running_pid().err().map_or(error, RunError::from)),
        outcome => outcome,
    }
}

fn exec_in(record: &Record, options: &ExecOptions, dirs: &Directories) -> Result<ExitCode, RunError> {
    let bundle = dirs.bundles().join(&record.id);
    let config = read_config(&bundle)?;
    let process = process_of(record, &config, options)?;
    // Where the container's first process has gone into a directory (chroot(2)), the runtime sees more than it does.
    if let Ok(root) = record.open_root()
        && is_root_of_mounts(root.as_fd())
    {
        command_check::check_joining(root.as_fd(), &record.id, &process)?;
    }
    let mut runtime = Runtime::find(Some(&record.runtime), dirs)?;
    runtime.filter_by(seccomp::outer_filter_of(&config));
    let (sender, receiver) = mpsc::channel();
    // Before anything that would have to be cleaned up.
    let signals = SignalWatch::start(&sender)?;
    let files = ExecFiles::create(&bundle, &process)?;
    let start = Start {
        record,
        runtime: &runtime,
        files: &files,
        process: &process,
    };
    if options.detach {
        return start.detached();
    }
    let code = start.attached(options, &sender, &receiver);
    drop(signals);
    code
}

fn read_config(bundle: &Path) -> Result<Value, RunError> {
    let path = bundle.join(CONFIG);
    let failed = || RunError::file("read the container's configuration from", &path);
    let text = read_limited(&path, CONFIG_LIMIT).map_err(failed())?;
    serde_json::from_slice(&text).map_err(|error| failed()(error.into()))
}

fn process_of(record: &Record, config: &Value, options: &ExecOptions) -> Result<Value, RunError> {
    let own = config.get("process").cloned().unwrap_or_default();
    let users = match &options.user {
        None => None,
        Some(wanted) => {
            let root = record.open_root()?;
            let number = own["user"]["uid"].as_u64().unwrap_or_default().to_string();
            // The user that the container was started with need not be listed any more.
            let before = user::resolve_at(&root, &number).map(|identity| identity.home);
            Some(process::Users {
                wanted: user::resolve_at(&root, wanted)?,
                home_before: before.ok(),
            })
        }
    };
    process::compose(own, options, users)
}

/// The start of a command by the runtime.
struct Start<'a> {
    record: &'a Record,
    runtime: &'a Runtime,
    files: &'a ExecFiles,
    process: &'a Value,
}

impl Start<'_> {
    /// Starts the command as nobody's child.
    fn detached(&self) -> Result<ExitCode, RunError> {
        let streams = crate::runtime::Streams {
            stdin: std::process::Stdio::null(),
            stdout: std::process::Stdio::null(),
            stderr: std::process::Stdio::null(),
        };
        self.run(
            self.runtime
                .exec_start_command(&self.record.id, self.files.paths(), streams),
            false,
        )?;
        // It is written before the runtime ends.
        let pid = read_pid(&self.files.paths().pid_file)?;
        tracing::info!(pid = pid.as_raw_pid(), "the command runs");
        Ok(ExitCode(0))
    }

    /// Starts the command, and waits for its end.
    fn attached(
        &self,
        options: &ExecOptions,
        sender: &Sender<SupervisorEvent>,
        receiver: &Receiver<SupervisorEvent>,
    ) -> Result<ExitCode, RunError> {
        become_subreaper()?;
        let streams_of = RunOptions {
            tty: options.tty,
            screen: options.screen.clone(),
            interactive: options.interactive,
            ..RunOptions::default()
        };
        let mut stdio = ContainerStdio::prepare(self.files.console_socket(), &streams_of)?;
        let mut paths = self.files.paths().clone();
        paths.console = stdio.console().map(Path::to_owned);
        let streams = stdio.streams(&streams_of)?;
        let command = self.runtime.exec_start_command(&self.record.id, &paths, streams);
        let started = self.run(command, !options.tty);
        // A key of the terminal that interrupts this process interrupts the runtime as well.
        started.map_err(|error| interruption(receiver).unwrap_or(error))?;
        let init = Init::open(&paths.pid_file)?;
        let forwarding = stdio.forward(&streams_of, None, &Tail::default(), sender)?;
        init.watch(sender)?;
        let code = wait(receiver, &init, forwarding.terminal.as_ref())?;
        finish_copies(forwarding.copies);
        Ok(code)
    }

    /// `is_heard` if the user sees the runtime's standard error.
    fn run(&self, mut command: Command, is_heard: bool) -> Result<(), RunError> {
        let limit = OpenFiles::of(self.process);
        let ended = self.runtime.spawn(|| command.status());
        drop(limit);
        let outcome = self
            .runtime
            .check_exec(&self.record.id, &self.files.paths().log, ended, is_heard);
        // A container that has just ended is the likeliest cause, and the runtime's words for it differ.
        outcome.map_err(|error| self.record.running_pid().err().map_or(error, RunError::from))
    }
}

fn interruption(events: &Receiver<SupervisorEvent>) -> Option<RunError> {
    events.try_iter().find_map(|event| match event {
        SupervisorEvent::Signal(signal) if asks_to_end(signal) => Some(RunError::Interrupted(signal)),
        _ => None,
    })
}

/// Forwards signals until the command has ended.
fn wait(
    events: &Receiver<SupervisorEvent>,
    init: &Init,
    terminal: Option<&Terminal>,
) -> Result<ExitCode, RunError> {
    loop {
        match events.recv() {
            Ok(SupervisorEvent::Exited(code)) => return Ok(code),
            Ok(SupervisorEvent::Signal(SIGWINCH)) => {
                if let Some(terminal) = terminal {
                    terminal.resize();
                }
            }
            Ok(SupervisorEvent::Signal(signal)) => {
                init.send(signal);
            }
            Ok(_) => {}
            // Cannot be: the caller owns a sender of the channel.
            Err(_) => {
                let source = std::io::Error::other("no thread watches it");
                return Err(RunError::system("wait for the command")(source));
            }
        }
    }
}
