//! Why a container could not be run, in words that name the thing and say what to do.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use xebec_kernel::mount::MountError;

use super::confinement::Cpus;
use super::{ExitCode, ImageConfigError, RecordError, SignalParseError, UserError};

/// What kept a container from running, or from becoming ready.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No OCI runtime is installed where one was looked for.
    #[error(
        "no container runtime: {tried} not found; install one (`apt install runc`), or name one with --runtime"
    )]
    NoRuntime {
        /// What was looked for.
        tried: String,
    },
    /// The container's name cannot be a file's name.
    #[error(
        "{0:?} cannot name a container; use up to 64 letters, digits, '.', '_' and '-', the first a letter or digit"
    )]
    Id(String),
    /// The name is taken.
    #[error(
        "a container named {id} exists already in {}; choose another name, or remove that directory", path.display()
    )]
    Exists {
        /// The name.
        id: String,
        /// Its directory.
        path: PathBuf,
    },
    /// Neither the image nor the user says what to run.
    #[error("nothing to run: the image has no Entrypoint and no Cmd; give a command after the image's name")]
    NoCommand,
    /// A string that the kernel would cut short.
    #[error("{what} holds a NUL byte, which no program can be given; remove it")]
    Nul {
        /// What holds it.
        what: &'static str,
    },
    /// A variable whose name cannot be one.
    #[error("{0:?} cannot name an environment variable: it is empty or holds '='")]
    EnvName(String),
    /// The working directory is not an absolute path.
    #[error("the working directory {0:?} is not an absolute path; give one that starts with '/'")]
    Workdir(String),
    /// The host's name is not one.
    #[error("{0:?} cannot be a host name; use up to 64 letters, digits, '.' and '-'")]
    Hostname(String),
    /// A volume that makes no sense.
    #[error("volume {volume:?}: {reason}")]
    Volume {
        /// The volume as it was given.
        volume: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No such capability.
    #[error(
        "{0:?} is no capability; use names such as NET_ADMIN or CAP_NET_ADMIN, or ALL (see capabilities(7))"
    )]
    Capability(String),
    /// A size that is none.
    #[error("{0:?} is no size; write a number and b, k, m or g, as 512m")]
    Size(String),
    /// A limit of memory that makes no sense.
    #[error("memory: {reason}")]
    Memory {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A number of processors that is none.
    #[error("{0:?} is no number of CPUs; write it as 1.5, and at least 0.01")]
    CpusText(String),
    /// More than there are.
    #[error("{cpus} CPUs: this host has {processors}; use 0.01 to {processors}.00")]
    Cpus {
        /// What was asked for.
        cpus: Cpus,
        /// What there is.
        processors: usize,
    },
    /// A number of processes that is none.
    #[error("{0:?} is no number of processes; use one above 0, or -1 for no limit")]
    PidsLimit(String),
    /// A limit that makes no sense.
    #[error("ulimit {ulimit:?}: {reason}")]
    Ulimit {
        /// The limit as it was given.
        ulimit: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A directory in memory that makes no sense.
    #[error("tmpfs {tmpfs:?}: {reason}")]
    Tmpfs {
        /// As it was given.
        tmpfs: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two mounts at one place.
    #[error("two things would be mounted at {}; leave one of them out", .0.display())]
    Mounted(PathBuf),
    /// An option of security that makes no sense, or that this host cannot do.
    #[error("--security-opt {option}: {reason}")]
    SecurityOption {
        /// As it was given.
        option: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An unknown network.
    #[error("unknown network {0:?}; use host or none")]
    Net(String),
    /// The user to run as could not be found.
    #[error(transparent)]
    User(#[from] UserError),
    /// The image's configuration makes no sense.
    #[error(transparent)]
    ImageConfig(#[from] ImageConfigError),
    /// The image's stop signal is none.
    #[error("the image's StopSignal: {0}")]
    StopSignal(#[from] SignalParseError),
    /// The container's record could not be kept.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The overlay could not be mounted.
    #[error("container {id}: {source}{}", overlay_advice(source))]
    Overlay {
        /// The container.
        id: String,
        /// What was tried, and the kernel's words.
        source: MountError,
    },
    /// The overlay could not be unmounted.
    #[error(transparent)]
    Unmount(#[from] MountError),
    /// A file or a directory of the container could not be handled.
    #[error("cannot {doing} {}: {source}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The kernel refused something that has no file.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The runtime said no.
    #[error("{runtime} could not {doing} container {id}: {message}")]
    Runtime {
        /// The runtime.
        runtime: String,
        /// What it was asked to do.
        doing: &'static str,
        /// The container.
        id: String,
        /// Its words.
        message: String,
    },
    /// A terminal was asked for where there is none.
    #[error("-t needs a terminal on standard input, and there is none; leave -t out, or use a terminal")]
    NoTerminal,
    /// A signal came before the container was started.
    #[error("stopped by signal {0} before the container was started")]
    Interrupted(i32),
    /// A probe cannot tell anything.
    #[error(
        "probe {0} is answered before the container is started, so it would tell nothing; stop what answers, or use another port"
    )]
    ReadyBefore(String),
    /// The container ended before every probe was seen.
    #[error("the container ended with exit code {} before it was ready ({waiting} not seen){log}", code.0)]
    ExitedBeforeReady {
        /// Its exit code.
        code: ExitCode,
        /// The probes that were still waiting.
        waiting: String,
        /// The last lines it wrote, as a sentence to append.
        log: String,
    },
    /// Not ready in time.
    #[error(
        "the container was not ready after {:.1} s ({waiting} not seen) and was stopped; --probe-timeout allows more{log}", after.as_secs_f64()
    )]
    ProbeTimeout {
        /// The time it was given.
        after: Duration,
        /// The probes that were still waiting.
        waiting: String,
        /// The last lines it wrote, as a sentence to append.
        log: String,
    },
    /// A probe cannot be watched at all.
    #[error("probe {probe} cannot be watched: {source}")]
    Probe {
        /// The probe.
        probe: String,
        /// The error.
        source: io::Error,
    },
}

impl RunError {
    /// The exit code that tells a script what went wrong, by docker's convention: 127 for a command that is
    /// not in the image, 126 for one that cannot be run, the container's own code (or 1) if it ended before
    /// it was ready, 128 plus the signal if it was interrupted, and 125 for everything else.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            RunError::Runtime { message, .. } if names_missing_command(message) => ExitCode(127),
            RunError::Runtime { message, .. } if is_about_command(message) => ExitCode(126),
            RunError::ExitedBeforeReady { code, .. } => ExitCode(code.0.max(1)),
            RunError::Interrupted(signal) => super::signal::exit_code_of(*signal),
            _ => ExitCode(125),
        }
    }
}

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

/// How runc 1.1 (`exec: "x": executable file not found`, `exec: "/x": stat /x: no such file or directory`) and
/// crun 1.8 (`executable file "x" not found`) say that the command is not there.
fn names_missing_command(message: &str) -> bool {
    let message = message.to_lowercase();
    let missing = message.contains("not found") || message.contains("no such file or directory");
    missing && (message.contains("exec: ") || message.contains("executable file"))
}

/// How they say that it is there and cannot be run.
fn is_about_command(message: &str) -> bool {
    let message = message.to_lowercase();
    message.contains("permission denied") && (message.contains("exec") || message.contains("open "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_can_tell_what_went_wrong() {
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
        assert_eq!(ended(ExitCode(0)).exit_code(), ExitCode(1), "never a success");
        assert_eq!(ended(ExitCode(5)).exit_code(), ExitCode(5));
    }
}
