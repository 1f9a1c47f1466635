//! The OCI runtime: finding it and calling it.
//!
//! Only the command line that `runc` and `crun` have in common is used, with `create` and `start` apart: the container's
//! process is this process's child, its input and output pass through nobody, its terminal is ready and its name is on
//! record before its command begins, and who asks for the end before that gets it. `run --detach` has none of this. What
//! `runc start` does is done here, since starting runc once more takes 8 ms: see `gate`.

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

use super::bundle::{Bundle, is_name};
use super::{Directories, RunError, exec_fifo};

/// In order of preference: runc is the one that takes every layout of control groups.
const RUNTIMES: [&str; 2] = ["runc", "crun"];

/// Looked through after `PATH`, which lacks the `sbin` directories in many a user's shell.
const DIRECTORIES: [&str; 5] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
];

/// As Docker has it, too.
const USUAL_UMASK: u32 = 0o022;

/// Most of the runtime's log that is read to find its last word.
const LOG_LIMIT: u64 = 1 << 20;

/// A runtime and where it keeps its state.
#[derive(Clone, Debug)]
pub(super) struct Runtime {
    program: PathBuf,
    root: PathBuf,
    /// The system calls that it, and what it makes, may make.
    filter: Option<Arc<[Instruction]>>,
}

/// The standard streams of a container.
pub(super) struct Streams {
    pub stdin: Stdio,
    pub stdout: Stdio,
    pub stderr: Stdio,
}

impl Runtime {
    /// Finds the runtime that was asked for, or the first that is installed.
    pub(super) fn find(wanted: Option<&Path>, dirs: &Directories) -> Result<Self, RunError> {
        let program = match wanted {
            Some(wanted) => look_for(wanted).ok_or_else(|| wanted.display().to_string()),
            None => RUNTIMES
                .iter()
                .find_map(|name| look_for(name.as_ref()))
                .ok_or_else(|| RUNTIMES.join(" and ")),
        };
        let program = program.map_err(|tried| RunError::NoRuntime { tried })?;
        Ok(Runtime {
            program,
            root: root(dirs),
            filter: None,
        })
    }

    /// Whether it is one that can do with the calls that are left to it.
    pub(super) fn takes_filter(&self) -> bool {
        self.is_runc() || self.is_crun()
    }

    /// What it makes is filtered so from now on ([`super::seccomp`]).
    pub(super) fn filter_by(&mut self, filter: Option<Vec<Instruction>>) {
        self.filter = filter.map(Arc::from);
    }

    /// Starts what makes a container's processes, as they are to be.
    pub(super) fn begin<R: Send>(&self, start: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
        let filter = self.filter.clone();
        as_usual(move || {
            // For this thread only, which ends here, and for what it starts.
            filter.map_or(Ok(()), |filter| filter_system_calls(&filter))?;
            start()
        })
    }

    /// Where the runtime's program is.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// What makes the container of a bundle up to the point where its command would begin.
    pub(super) fn creation(&self, bundle: &Bundle, console: Option<&Path>, streams: Streams) -> Command {
        let mut command = self.command(&log_in(bundle.path()));
        command
            .arg("create")
            .arg("--bundle")
            .arg(bundle.path())
            .arg("--pid-file")
            .arg(bundle.pid_file());
        if let Some(console) = console {
            command.arg("--console-socket").arg(console);
        }
        command
            .arg(bundle.id())
            .stdin(streams.stdin)
            .stdout(streams.stdout)
            .stderr(streams.stderr);
        command
    }

    /// Makes the container by [`Runtime::creation`], and waits until it is made.
    pub(super) fn create(&self, bundle: &Bundle, mut creation: Command) -> Result<(), RunError> {
        self.created(bundle, self.begin(|| creation.status()))
    }

    /// What came of a creation.
    pub(super) fn created(&self, bundle: &Bundle, ended: io::Result<ExitStatus>) -> Result<(), RunError> {
        self.ended(ended, &log_in(bundle.path()), "create", bundle.id())
    }

    /// Lets the command of a container begin whose first process is `init`.
    pub(super) fn start(&self, id: &str, bundle: &Path, init: BorrowedFd<'_>) -> Result<(), RunError> {
        if !self.is_crun() && exec_fifo::open(&self.root.join(id), init) {
            return Ok(());
        }
        let log = log_in(bundle);
        let mut command = self.command(&log);
        command
            .arg("start")
            .arg(id)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.ended(as_usual(|| command.status()), &log, "start", id)
    }

    /// Sends a signal that the kernel's own call cannot name safely: a real-time one.
    pub(super) fn kill(&self, id: &str, signal: i32) {
        self.quietly(&["kill", id, &signal.to_string()]);
    }

    /// Ends the container if it runs and removes its state; no error if there is none.
    pub(super) fn delete(&self, id: &str) {
        let state = self.root.join(id);
        if state.exists() {
            // runc mounts its own program there for a moment (`cloned_binary.c`). One that is killed then leaves that, and cannot
            // remove it either. What is no mount is left alone.
            for entry in fs::read_dir(&state).into_iter().flatten().flatten() {
                self.unmount_program(&entry.path());
            }
            self.quietly(&["delete", "--force", id]);
        }
    }

    /// Unmounts the runtime's program from a file. Anything else that is mounted there stays, and so does the state then.
    fn unmount_program(&self, at: &Path) {
        let Ok(Some(top)) = Top::at(at) else { return };
        let mounted = top.info().root.to_string_lossy();
        // As the kernel shows a program that has been replaced since.
        let mounted = Path::new(mounted.strip_suffix("//deleted").unwrap_or(&mounted)).file_name();
        let is_program = mounted.is_some() && mounted == self.program.file_name();
        let is_file = fs::symlink_metadata(at).is_ok_and(|status| status.is_file());
        let is_own = is_file && (is_program || is_same(at, &self.program));
        if is_own && let Err(error) = top.detach() {
            tracing::debug!(%error, "a runtime's program stays mounted");
        }
    }

    /// A command that runs `args` inside the container, with no input and no output.
    pub(super) fn exec(&self, id: &str, args: &[String]) -> Command {
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

    fn command(&self, log: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--root")
            .arg(&self.root)
            .arg("--log")
            .arg(self.log_argument(log))
            .arg("--log-format")
            .arg("json");
        // Meant for this process, and a runtime would hand them on.
        for name in ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"] {
            command.env_remove(name);
        }
        command
    }

    /// crun takes what is before a colon for the kind of log, so a path with a colon in it needs one more.
    fn log_argument(&self, log: &Path) -> OsString {
        let mut argument = OsString::from(if self.is_crun() { "file:" } else { "" });
        argument.push(log);
        argument
    }

    fn ended(
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
                last_word(log).unwrap_or_else(|| format!("it ended with {status}")),
            )),
            Err(error) => Err(failed(format!("it cannot be run: {error}"))),
        }
    }

    fn quietly(&self, args: &[&str]) {
        let mut command = self.command(Path::new("/dev/null"));
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match command.status() {
            Ok(status) if !status.success() => tracing::debug!(%status, ?args, "the runtime did not agree"),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, runtime = self.name(), "the runtime cannot be run"),
        }
    }

    /// Whether it is runc, by whatever version of its name.
    pub(super) fn is_runc(&self) -> bool {
        self.name().contains("runc")
    }

    fn is_crun(&self) -> bool {
        self.name().contains("crun")
    }

    /// Whether this runtime made the container: each keeps a file of its own name. One that did not would only
    /// remove the directory, and the container would run on.
    fn keeps(&self, id: &str) -> bool {
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

/// Starts a runtime with the mask for new files that services have: what it makes in a container, such as places to mount things
/// at, is for the container's users, who are not to be shut out as other users of the host are.
fn as_usual<R: Send>(start: impl FnOnce() -> io::Result<R> + Send) -> io::Result<R> {
    with_umask(USUAL_UMASK, start)?
}

/// What the runtime has to say of a container's making and starting.
fn log_in(bundle: &Path) -> PathBuf {
    bundle.join("runtime.log")
}

/// Where runtimes keep their state: a directory for each container.
fn root(dirs: &Directories) -> PathBuf {
    dirs.run.join("runtime")
}

/// The containers that any runtime knows.
pub(super) fn containers(dirs: &Directories) -> Vec<String> {
    let entries = fs::read_dir(root(dirs)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|id| is_name(id)).collect()
}

/// Ends a container of which only the runtime knows, by the runtime that made it. Tells whether there was one.
pub(super) fn delete_unknown(dirs: &Directories, id: &str) -> bool {
    let installed = RUNTIMES
        .iter()
        .filter_map(|name| Runtime::find(Some(name.as_ref()), dirs).ok());
    match installed.into_iter().find(|runtime| runtime.keeps(id)) {
        Some(runtime) => {
            runtime.delete(id);
            true
        }
        None => false,
    }
}

fn look_for(program: &Path) -> Option<PathBuf> {
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

/// The message of the last error in the runtime's log, one JSON object per line.
fn last_word(log: &Path) -> Option<String> {
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
    fn a_runtime_that_is_not_there_is_named_with_what_to_do() {
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
        // A directory is no program.
        assert!(Runtime::find(Some("/usr/bin".as_ref()), &dirs).is_err());
    }

    #[test]
    fn the_runtimes_last_error_is_its_answer() {
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
