//! Why a container could not be run. Each message names the thing, and says what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use xebec_confinement::ConfinementError;
use xebec_kernel::mount::MountError;
use xebec_network::NetworkError;
use xebec_volume::VolumeError;

use crate::command_problem::CommandProblem;
use crate::{ExitCode, ImageConfigError, SignalParseError, UserError};

/// A failure that kept a container from running, or from becoming ready.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No OCI runtime is installed.
    #[error(
        "no container runtime: {tried} not found; install one (`apt install runc`), or name one with --runtime"
    )]
    NoRuntime {
        /// The programs that were looked for.
        tried: String,
    },
    /// The container's name cannot be a file's name.
    #[error(
        "{0:?} cannot name a container; use up to 64 letters, digits, '.', '_' and '-', the first a letter or digit"
    )]
    Id(String),
    /// A container of that name exists.
    #[error(
        "a container named {0} exists already; choose another name, or remove that container: xebec rm {0}"
    )]
    Exists(String),
    /// There is no container of that name to start again.
    #[error("no container is named {0}; `xebec ps -a` lists all")]
    Missing(String),
    /// A version that kept nothing about its containers made it.
    #[error(
        "an earlier version of Xebec made the container {id}, and did not note how to start it; its layer is in {}, and \
         `xebec rm {id}` removes it", path.display()
    )]
    MadeEarlier {
        /// The name.
        id: String,
        /// Its directory.
        path: PathBuf,
    },
    /// Another command works on the container.
    #[error("another command works on the container {0} just now; try again")]
    Busy(String),
    /// Not a restart policy.
    #[error("{0:?} is no restart policy; use no, on-failure, on-failure:N, always or unless-stopped")]
    RestartPolicy(String),
    /// Neither the image nor the user names a command.
    #[error("nothing to run: the image has no Entrypoint and no Cmd; give a command after the image's name")]
    NoCommand,
    /// The command is not in the image, or cannot be executed.
    #[error("the command {program:?} cannot be run: {reason}; {}", advice(program))]
    Command {
        /// The command, without its arguments.
        program: String,
        /// The problem of the command.
        reason: CommandProblem,
    },
    /// A command that is to join a container is not there, or cannot be executed.
    #[error("the command {program:?} cannot be run in container {id}: {reason}")]
    ExecCommand {
        /// The command, without its arguments.
        program: String,
        /// The container.
        id: String,
        /// The problem of the command.
        reason: CommandProblem,
    },
    /// No command is to be run in a container that runs.
    #[error("nothing to run: give a command after the container's name")]
    NoExecCommand,
    /// The container does not run, or cannot be reached.
    #[error(transparent)]
    Running(#[from] RunningError),
    /// A string with a NUL byte, at which the kernel would cut it.
    #[error("{what} holds a NUL byte, which no program can receive; remove it")]
    Nul {
        /// The part of the process that holds it.
        what: &'static str,
    },
    /// Not the name of an environment variable.
    #[error("{0:?} cannot name an environment variable: it is empty or holds '='")]
    EnvName(String),
    /// The working directory is not an absolute path.
    #[error("the working directory {0:?} is not an absolute path; give one that starts with '/'")]
    Workdir(String),
    /// Not a host name.
    #[error("{0:?} cannot be a host name; use up to 64 letters, digits, '.' and '-'")]
    Hostname(String),
    /// A volume that cannot be mounted.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The container cannot be confined as the user asks.
    #[error(transparent)]
    Confinement(#[from] ConfinementError),
    /// An unknown namespace.
    #[error("{option} {value:?} is unknown; use {known}")]
    Namespace {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// The values that it may have, in words.
        known: &'static str,
    },
    /// A program that cannot be the first process of a container.
    #[error("--init: {}: {reason}; install Debian's package tini, or use a static build of xebec", path.display())]
    Init {
        /// The program.
        path: PathBuf,
        /// The defect of the program, in words.
        reason: String,
    },
    /// A container whose namespace is asked for does not run.
    #[error("no container named {0} is running, whose processes could be shared; see `xebec ps`")]
    NotRunning(String),
    /// The container's network could not be made.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// An option that the container's network cannot give.
    #[error("{option} has no effect with --network {net}: {reason}")]
    NetworkOption {
        /// The option.
        option: &'static str,
        /// The network.
        net: String,
        /// Why.
        reason: &'static str,
    },
    /// The container whose network another one is to share does not run.
    #[error(
        "no container named {0} is running, so that its network cannot be shared; `xebec ps` lists those that run"
    )]
    NoSuchNetworkContainer(String),
    /// The user that the container runs as was not found.
    #[error(transparent)]
    User(#[from] UserError),
    /// The image's configuration cannot be used.
    #[error(transparent)]
    ImageConfig(#[from] ImageConfigError),
    /// The image's stop signal does not exist.
    #[error("the image's StopSignal: {0}")]
    StopSignal(#[from] SignalParseError),
    /// The container's record could not be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The overlay could not be mounted.
    #[error("container {id}: {source}{}", overlay_advice(source))]
    Overlay {
        /// The container.
        id: String,
        /// The mount that failed, with the kernel's error.
        source: MountError,
    },
    /// The overlay could not be unmounted.
    #[error(transparent)]
    Unmount(#[from] MountError),
    /// An operation on a file or directory of the container failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// The operation.
        doing: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A system call that concerns no file failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The runtime failed.
    #[error("{runtime} could not {doing} container {id}: {message}")]
    Runtime {
        /// The runtime.
        runtime: String,
        /// The operation.
        doing: &'static str,
        /// The container.
        id: String,
        /// The runtime's message.
        message: String,
    },
    /// The runtime failed, and has said why on this process's standard error.
    #[error("the command was not run in container {id}, for the reason that {runtime} gives above")]
    RuntimeSaid {
        /// The runtime.
        runtime: String,
        /// The container.
        id: String,
        /// The runtime's message.
        message: String,
    },
    /// The user asked for a terminal, and standard input is none.
    #[error("-t needs a terminal on standard input, and there is none; leave -t out, or use a terminal")]
    NoTerminal,
    /// A signal came before the container's command began.
    #[error("stopped by signal {0} before the container was started")]
    Interrupted(i32),
    /// A probe succeeds before the container exists.
    #[error(
        "probe {0} is answered before the container is started, so it would tell nothing; stop what answers, or use another port"
    )]
    ReadyBefore(String),
    /// The container ended before every probe succeeded.
    #[error("the container ended with exit code {} before it was ready ({waiting}){log}", code.0)]
    ExitedBeforeReady {
        /// Its exit code.
        code: ExitCode,
        /// The probes that had not succeeded, and what became of them.
        waiting: String,
        /// The last lines that the container wrote, as a sentence to append.
        log: String,
    },
    /// The container was not ready in time.
    #[error(
        "the container was not ready after {:.1} s ({waiting}) and was stopped; --probe-timeout allows more{log}", after.as_secs_f64()
    )]
    ProbeTimeout {
        /// The time that it had.
        after: Duration,
        /// The probes that had not succeeded, and what became of them.
        waiting: String,
        /// The last lines that the container wrote, as a sentence to append.
        log: String,
    },
    /// A probe cannot be tried.
    #[error("probe {probe} cannot be watched: {source}")]
    Probe {
        /// The probe.
        probe: String,
        /// The error.
        source: io::Error,
    },
}

impl RunError {
    /// The error of an operation on a file, for `map_err`.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }

    /// The error of a system call that concerns no file, for `map_err`.
    pub(crate) fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self + Copy {
        move |source| Self::System { doing, source }
    }

    /// The exit code that tells a script the kind of the failure, by docker's convention. 127 is a command that the
    /// image does not have, and 126 one that cannot be executed. If the container ended before it was ready, the code is the
    /// container's own (or 1). After an interruption it is 128 plus the signal. 125 is everything else.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            RunError::Command { reason, .. } | RunError::ExecCommand { reason, .. } => {
                match reason.is_missing() {
                    true => ExitCode(127),
                    false => ExitCode(126),
                }
            }
            RunError::Runtime { message, .. } | RunError::RuntimeSaid { message, .. }
                if names_missing_command(message) =>
            {
                ExitCode(127)
            }
            RunError::Runtime { message, .. } | RunError::RuntimeSaid { message, .. }
                if is_about_command(message) =>
            {
                ExitCode(126)
            }
            RunError::ExitedBeforeReady { code, .. } => ExitCode(code.0.max(1)),
            RunError::Interrupted(signal) => ExitCode::of_signal(*signal),
            _ => ExitCode(125),
        }
    }
}

/// Why a container cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum RunningError {
    /// It has ended, or has not begun.
    #[error("container {0} is not running; start it first (`xebec start {0}`)")]
    NotRunning(String),
    /// Its process ids belong to another namespace.
    #[error(
        "container {0} was started in another process namespace; run this command where `xebec run` was called"
    )]
    OtherNamespace(String),
    /// Its root cannot be opened.
    #[error("cannot open the root directory of container {id}: {source}")]
    Root {
        /// The container.
        id: String,
        /// The error.
        source: io::Error,
    },
}

/// A record could not be written, read or cleaned up.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// An operation on the record's file failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A running container has that name.
    #[error(
        "a container named {0} is running already, or about to; choose another name, or stop it: xebec stop {0}"
    )]
    Running(String),
    /// A newer version wrote the file.
    #[error("{} is of format {version}: a newer version of Xebec wrote it; use that version", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The format's version.
        version: u32,
    },
    /// The start time of a process cannot be read.
    #[error("cannot find out when process {0} was started; is /proc mounted?")]
    NoStartTime(i32),
    /// The kernel gives no random bytes.
    #[error("cannot get random bytes to name the control groups of container {id}: {source}")]
    Random {
        /// The container.
        id: String,
        /// The error.
        source: io::Error,
    },
    /// Leftovers of a container cannot be removed.
    #[error("cannot clean up after container {id}: {message}")]
    Stale {
        /// The container.
        id: String,
        /// The operation that failed, with its error.
        message: String,
    },
}

impl RecordError {
    /// The error of an operation on a file, for `map_err`.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }
}

/// Advice about a command that cannot be run.
fn advice(program: &str) -> &'static str {
    match program.starts_with('-') {
        true => "options go before the image, and what follows it is the command",
        false => "check the command and --entrypoint",
    }
}

/// Advice about an overlay that cannot be mounted.
fn overlay_advice(error: &MountError) -> &'static str {
    let MountError::Create { source, .. } = error else {
        return "";
    };
    match Errno::from_io_error(source) {
        Some(Errno::PERM | Errno::ACCESS) => "; mounting needs root",
        Some(Errno::NODEV) => "; this kernel has no overlayfs (modprobe overlay)",
        Some(Errno::INVAL) => {
            "; the root directory must be on a file system that can be an upper layer (ext4, xfs, btrfs, tmpfs)"
        }
        _ => "",
    }
}

/// Whether the runtime says that the command does not exist, as runc 1.1 (`exec: "x": executable file not
/// found`, `exec: "/x": stat /x: no such file or directory`) and crun 1.8 (`executable file "x" not found`)
/// do.
fn names_missing_command(message: &str) -> bool {
    let message = message.to_lowercase();
    let missing = message.contains("not found") || message.contains("no such file or directory");
    missing && (message.contains("exec: ") || message.contains("executable file"))
}

/// Whether the runtime says that the command exists and cannot be executed.
fn is_about_command(message: &str) -> bool {
    let message = message.to_lowercase();
    let cannot = message.contains("permission denied") || message.contains("is a directory");
    cannot && (message.contains("exec") || message.contains("open "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_after_the_image_is_told_where_it_goes() {
        let said = |program: &str| {
            let (program, reason) = (program.to_owned(), CommandProblem::Missing);
            RunError::Command { program, reason }.to_string()
        };
        let option = said("--rm");
        assert!(option.contains("options go before the image"), "{option}");
        let command = said("/bin/nosuch");
        assert!(
            command.contains("check the command and --entrypoint"),
            "{command}"
        );
    }

    #[test]
    fn exit_codes_follow_dockers_convention() {
        let code = |message: &str| {
            let (runtime, id, message) = ("runc".into(), "box".into(), message.into());
            RunError::Runtime {
                runtime,
                doing: "create",
                id,
                message,
            }
            .exit_code()
            .0
        };
        let start = "runc create failed: unable to start container process: ";
        assert_eq!(
            code(&format!("{start}exec: \"x\": executable file not found in $PATH")),
            127
        );
        assert_eq!(
            code(&format!(
                "{start}exec: \"/x\": stat /x: no such file or directory"
            )),
            127
        );
        assert_eq!(
            code("executable file `/x` not found in $PATH: No such file or directory"),
            127
        );
        assert_eq!(code(&format!("{start}exec: \"/x\": permission denied")), 126);
        assert_eq!(code(&format!("{start}exec: \"/x\": is a directory")), 126);
        assert_eq!(
            code(&format!("{start}error mounting /a: no such file or directory")),
            125
        );
        assert_eq!(RunError::Interrupted(15).exit_code(), ExitCode(143));
        assert_eq!(RunError::NoCommand.exit_code(), ExitCode(125));
        let ended = |code| RunError::ExitedBeforeReady {
            code,
            waiting: String::new(),
            log: String::new(),
        };
        assert_eq!(
            ended(ExitCode(0)).exit_code(),
            ExitCode(1),
            "a container that was not ready succeeded"
        );
        assert_eq!(ended(ExitCode(5)).exit_code(), ExitCode(5));
    }
}
