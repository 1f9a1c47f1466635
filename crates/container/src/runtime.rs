//! The OCI runtime: finding it and calling it.
//!
//! Only the command line that `runc` and `crun` have in common is used, with `create` and `start` apart. So
//! the container's process is a child of this process, its input and output pass through no other process,
//! its terminal is ready and its name is recorded before its command runs, and a signal before that ends it.
//! `run --detach` has none of this. This crate does the work of `runc start` itself ([`exec_fifo`]), since another start
//! of runc takes 8 ms.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use xebec_kernel::file::is_same;
use xebec_kernel::mount::Top;
use xebec_kernel::process::{Instruction, filter_system_calls, with_umask};

use crate::layout::{PID_FILE, RUNTIME_LOG};
use crate::name::is_container_name;
use crate::{Directories, RunError, exec_fifo};

/// In order of preference: runc supports every layout of control groups.
const RUNTIMES: [&str; 2] = ["runc", "crun"];

/// Searched after `PATH`, which lacks the `sbin` directories in many users' shells.
const DIRECTORIES: [&str; 5] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
];

/// The umask of services, and docker's.
const DEFAULT_UMASK: u32 = 0o022;

/// How much of the runtime's log is read to find its last error. A log has a few lines.
const LOG_LIMIT: u64 = 1 << 20;

/// A runtime, and where it keeps its state.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    program: PathBuf,
    root: PathBuf,
    /// The system calls that it and the processes that it starts may make.
    filter: Option<Arc<[Instruction]>>,
}

/// The standard streams of a container.
pub(crate) struct Streams {
    pub(crate) stdin: Stdio,
    pub(crate) stdout: Stdio,
    pub(crate) stderr: Stdio,
}

/// The OCI runtimes that are installed, in the order in which they are preferred.
pub fn installed_runtimes() -> Vec<PathBuf> {
    RUNTIMES
        .iter()
        .filter_map(|name| find_program(name.as_ref()))
        .collect()
}

/// The files of the start of a process in a container.
#[derive(Clone, Debug)]
pub(crate) struct ExecPaths {
    pub(crate) process: PathBuf,
    pub(crate) pid_file: PathBuf,
    pub(crate) log: PathBuf,
    pub(crate) console: Option<PathBuf>,
}

impl Runtime {
    /// Finds the runtime that the user named, or the first that is installed.
    pub(crate) fn find(wanted: Option<&Path>, dirs: &Directories) -> Result<Self, RunError> {
        let program = match wanted {
            Some(wanted) => find_program(wanted).ok_or_else(|| wanted.display().to_string()),
            None => RUNTIMES
                .iter()
                .find_map(|name| find_program(name.as_ref()))
                .ok_or_else(|| RUNTIMES.join(" and ")),
        };
        let program = program.map_err(|tried| RunError::NoRuntime { tried })?;
        Ok(Runtime {
            program,
            root: dirs.runtime_state(),
            filter: None,
        })
    }

    /// Whether the runtime works under a system call filter ([`xebec_confinement::seccomp`]). Others than runc and crun
    /// may need more system calls.
    pub(crate) fn takes_filter(&self) -> bool {
        self.is_runc() || self.is_crun()
    }

    /// Filters the system calls of everything that [`Runtime::spawn`] starts from now on.
    pub(crate) fn filter_by(&mut self, filter: Option<Vec<Instruction>>) {
        self.filter = filter.map(Arc::from);
    }

    /// Runs `start`, which starts the runtime to create a process of a container, with the umask and the
    /// system call filter of containers.
    pub(crate) fn spawn<R: Send>(&self, start: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        let filter = self.filter.clone();
        with_default_umask(move || {
            // For this thread, which ends here, and for what it starts.
            filter.map_or(Ok(()), |filter| filter_system_calls(&filter))?;
            start()
        })
    }

    /// The path of the runtime's program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The command that creates the container `id` of a bundle, up to the point where its command would run.
    pub(crate) fn create_command(
        &self,
        id: &str,
        bundle: &Path,
        console: Option<&Path>,
        streams: Streams,
    ) -> Command {
        let mut command = self.command(&bundle.join(RUNTIME_LOG));
        command
            .arg("create")
            .arg("--bundle")
            .arg(bundle)
            .arg("--pid-file")
            .arg(bundle.join(PID_FILE));
        for_container(command, id, console, streams)
    }

    /// Runs [`Runtime::create_command`], and waits until the container is created.
    pub(crate) fn create(&self, id: &str, bundle: &Path, mut command: Command) -> Result<(), RunError> {
        self.check_create(id, bundle, self.spawn(|| command.status()))
    }

    /// The outcome of [`Runtime::create_command`].
    pub(crate) fn check_create(
        &self,
        id: &str,
        bundle: &Path,
        ended: io::Result<ExitStatus>,
    ) -> Result<(), RunError> {
        self.check(ended, &bundle.join(RUNTIME_LOG), "create", id)
    }

    /// Lets the command of a container run whose first process is `init`.
    pub(crate) fn start(&self, id: &str, bundle: &Path, init: BorrowedFd<'_>) -> Result<(), RunError> {
        if !self.is_crun() && exec_fifo::open(&self.root.join(id), init) {
            return Ok(());
        }
        let log = bundle.join(RUNTIME_LOG);
        let mut command = self.command(&log);
        command
            .arg("start")
            .arg(id)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.check(with_default_umask(|| command.status()), &log, "start", id)
    }

    /// Ends the container if it runs, and removes the runtime's state of it. Without a state there is nothing
    /// to do.
    pub(crate) fn delete(&self, id: &str) {
        let state = self.root.join(id);
        if state.exists() {
            // runc mounts its own program in its state for a moment (`cloned_binary.c`). If it is killed
            // meanwhile, the mount stays, and runc cannot remove it.
            for entry in fs::read_dir(&state).into_iter().flatten().flatten() {
                self.unmount_program(&entry.path());
            }
            self.run_quietly(&["delete", "--force", id]);
        }
    }

    /// Unmounts the runtime's program from a file. Any other mount stays, and so does the state then.
    fn unmount_program(&self, at: &Path) {
        let Ok(Some(top)) = Top::at(at) else { return };
        let mounted = top.info().root.to_string_lossy();
        // The kernel shows this suffix after a program that has been replaced since.
        let mounted = Path::new(mounted.strip_suffix("//deleted").unwrap_or(&mounted)).file_name();
        let is_program = mounted.is_some() && mounted == self.program.file_name();
        let is_file = fs::symlink_metadata(at).is_ok_and(|status| status.is_file());
        let is_own = is_file && (is_program || is_same(at, &self.program));
        if is_own && let Err(error) = top.detach() {
            tracing::debug!(%error, "cannot unmount the runtime's program from its state");
        }
    }

    /// A command that runs `args` inside the container, with no input and no output.
    pub(crate) fn exec_command(&self, id: &str, args: &[String]) -> Command {
        let mut command = self.command(Path::new("/dev/null"));
        command
            .arg("exec")
            .arg(id)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// The command that starts a process in the container `id`, and ends once it runs.
    pub(crate) fn exec_start_command(&self, id: &str, paths: &ExecPaths, streams: Streams) -> Command {
        let mut command = self.command(&paths.log);
        command
            .arg("exec")
            .arg("--detach")
            .arg("--process")
            .arg(&paths.process)
            .arg("--pid-file")
            .arg(&paths.pid_file);
        for_container(command, id, paths.console.as_deref(), streams)
    }

    /// The outcome of [`Runtime::exec_start_command`]. `is_heard` if the command has this process's standard error.
    pub(crate) fn check_exec(
        &self,
        id: &str,
        log: &Path,
        ended: io::Result<ExitStatus>,
        is_heard: bool,
    ) -> Result<(), RunError> {
        let has_failed = ended.as_ref().is_ok_and(|status| !status.success());
        // runc writes into its log what it also writes on the standard error that the command would have.
        if is_heard
            && has_failed
            && self.is_runc()
            && let Some(message) = last_logged_error(log)
        {
            return Err(RunError::RuntimeSaid {
                runtime: self.name(),
                id: id.to_owned(),
                message,
            });
        }
        self.check(ended, log, "run the command in", id)
    }

    fn command(&self, log: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--root")
            .arg(&self.root)
            .arg("--log")
            .arg(self.log_argument(log))
            .arg("--log-format")
            .arg("json");
        // A service manager sets these for this process, and a runtime passes them on to its container.
        for name in ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"] {
            command.env_remove(name);
        }
        command
    }

    /// The argument of `--log`. crun takes the text before a colon for the kind of log, so it gets the kind:
    /// the path may hold a colon.
    fn log_argument(&self, log: &Path) -> OsString {
        let mut argument = OsString::from(if self.is_crun() { "file:" } else { "" });
        argument.push(log);
        argument
    }

    fn check(
        &self,
        ended: io::Result<ExitStatus>,
        log: &Path,
        doing: &'static str,
        id: &str,
    ) -> Result<(), RunError> {
        let failed = |message| RunError::Runtime {
            runtime: self.name(),
            doing,
            id: id.to_owned(),
            message,
        };
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(failed(
                last_logged_error(log).unwrap_or_else(|| format!("it ended with {status}")),
            )),
            Err(error) => Err(failed(format!("it cannot be run: {error}"))),
        }
    }

    fn run_quietly(&self, args: &[&str]) {
        let mut command = self.command(Path::new("/dev/null"));
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match command.status() {
            Ok(status) if !status.success() => tracing::debug!(%status, ?args, "the runtime failed"),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, runtime = self.name(), "cannot run the runtime"),
        }
    }

    /// Whether the runtime is a version of runc, by its name.
    pub(crate) fn is_runc(&self) -> bool {
        self.name().contains("runc")
    }

    fn is_crun(&self) -> bool {
        self.name().contains("crun")
    }

    /// Whether this runtime created the container: each runtime has a state file of another name. Another
    /// runtime would only remove the directory, and the container would run on.
    fn has_state_of(&self, id: &str) -> bool {
        let file = if self.is_crun() { "status" } else { "state.json" };
        self.root.join(id).join(file).exists()
    }

    fn name(&self) -> String {
        self.program
            .file_name()
            .unwrap_or(self.program.as_os_str())
            .to_string_lossy()
            .into_owned()
    }
}

/// Starts a runtime with the umask that services have, whatever this process's is. The runtime creates mount
/// points in the container, and the container's users must be able to enter them.
fn with_default_umask<R: Send>(start: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    with_umask(DEFAULT_UMASK, start)?
}

/// The names of the containers of which any runtime has a state.
pub(crate) fn containers(dirs: &Directories) -> Vec<String> {
    let entries = fs::read_dir(dirs.runtime_state());
    let entries = entries.into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|id| is_container_name(id)).collect()
}

/// Ends a container that has no record, by the runtime that created it. Returns whether there was one.
pub(crate) fn delete_unrecorded(dirs: &Directories, id: &str) -> bool {
    let installed = RUNTIMES
        .iter()
        .filter_map(|name| Runtime::find(Some(name.as_ref()), dirs).ok());
    match installed.into_iter().find(|runtime| runtime.has_state_of(id)) {
        Some(runtime) => {
            runtime.delete(id);
            true
        }
        None => false,
    }
}

/// The rest of a command that starts a process: the socket for its terminal if it has one, its container, and its streams.
fn for_container(mut command: Command, id: &str, console: Option<&Path>, streams: Streams) -> Command {
    if let Some(console) = console {
        command.arg("--console-socket").arg(console);
    }
    command
        .arg(id)
        .stdin(streams.stdin)
        .stdout(streams.stdout)
        .stderr(streams.stderr);
    command
}

fn find_program(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return fs::canonicalize(program).ok().filter(|path| is_program(path));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .chain(DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The message of the last error in the runtime's log, which has one JSON object per line.
fn last_logged_error(log: &Path) -> Option<String> {
    use std::io::Read;
    let mut text = Vec::new();
    fs::File::open(log)
        .ok()?
        .take(LOG_LIMIT)
        .read_to_end(&mut text)
        .ok()?;
    last_error(&String::from_utf8_lossy(&text))
}

fn last_error(log: &str) -> Option<String> {
    let mut lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let error = lines.rfind(|line| line["level"] == "error" || line["level"] == "fatal")?;
    let message = error["msg"].as_str()?.trim();
    let advice = if message.contains("hybrid") {
        "; use runc instead (apt install runc)"
    } else {
        ""
    };
    Some(format!("{message}{advice}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_runtime_is_named_with_advice() {
        let dirs = Directories {
            state: "/s".into(),
            run: "/r".into(),
        };
        for wanted in ["/nonexistent/runc", "no-such-runtime", "./no-such-runtime"] {
            let error = Runtime::find(Some(wanted.as_ref()), &dirs)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(wanted) && error.contains("apt install runc"),
                "{error}"
            );
        }
        // A directory is not a program.
        assert!(Runtime::find(Some("/usr/bin".as_ref()), &dirs).is_err());
    }

    #[test]
    fn the_last_error_of_the_log_is_the_message() {
        let log = concat!(
            r#"{"level":"warning","msg":"slow","time":"t"}"#,
            "\n",
            r#"{"level":"error","msg":"first"}"#,
            "\nnot json\n",
            r#"{"level":"error","msg":"exec: \"x\": executable file not found in $PATH"}"#,
            "\n"
        );
        assert_eq!(
            last_error(log).unwrap(),
            "exec: \"x\": executable file not found in $PATH"
        );
        assert_eq!(last_error(""), None);
        assert!(
            last_error(r#"{"level":"error","msg":"hybrid mode"}"#)
                .unwrap()
                .contains("use runc")
        );
    }
}
