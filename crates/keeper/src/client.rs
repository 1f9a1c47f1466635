//! The command line's side of the daemon's socket: starts the daemon when there is none, asks, and listens.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use xebec_kernel::file::{is_same, write_atomically};
use xebec_kernel::process::{Child, Spawn};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::settings::{Overrides, Settings};
use xebec_protocol::wire::{MAX_LINE, Reply, Request, Status};

use crate::guard;

/// How long a daemon that was just started may take until its socket answers.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long another keeper, that was started at the same moment and won, may take to listen.
const RIVAL_START: Duration = Duration::from_secs(3);
/// How long a daemon may take to end. Its worker finishes its answers, then everything is unmounted.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a new program may take to have replaced keeper and worker.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a request is sent again because the worker died before it answered. The worker restarts by itself;
/// a request that kills it every time must end some day.
const ATTEMPTS: u32 = 3;

/// A connection maker to one installation's daemon.
#[derive(Clone, Debug)]
pub struct Daemon {
    paths: Paths,
}

/// The daemon gave a reply that does not belong to the request.
pub fn unexpected_reply() -> Failure {
    Failure::new(
        FailureKind::Host,
        "the daemon's reply does not belong to the request; is the daemon of another version? `xebec daemon upgrade` \
         replaces it by this one",
    )
}

/// No daemon runs, and the command must not start one.
pub fn not_running() -> Failure {
    Failure::new(
        FailureKind::NotFound,
        "no daemon is running; the next `xebec run`, `mount` or `pull` starts it",
    )
}

impl Daemon {
    /// The daemon of the installation at `paths`, running or not.
    pub fn new(paths: Paths) -> Self {
        Self { paths }
    }

    /// Whether a daemon is running.
    pub fn is_running(&self) -> bool {
        UnixStream::connect(self.paths.socket()).is_ok()
    }

    /// Sends `request`, starting the daemon if need be, and gives its final reply; the others go to `listen`.
    ///
    /// # Errors
    /// The daemon's own failures; a daemon that does not start or dies again and again.
    pub fn ask(&self, request: &Request, listen: &mut dyn FnMut(&Reply)) -> Result<Reply, Failure> {
        let connect = || self.connect(request).map(Some);
        let reply = self.exchange(request, listen, &connect)?;
        reply.ok_or_else(not_running)
    }

    /// Sends `request` to the daemon that runs and gives its final reply. `None` when no daemon runs: none is started, not even
    /// when the daemon ends while it is asked.
    ///
    /// # Errors
    /// The daemon's own failures; a daemon that dies again and again.
    pub fn ask_running(&self, request: &Request) -> Result<Option<Reply>, Failure> {
        let connect = || match UnixStream::connect(self.paths.socket()) {
            Ok(stream) => self.check_root(request).map(|()| Some(stream)),
            Err(_) => Ok(None),
        };
        self.exchange(request, &mut |_| (), &connect)
    }

    fn exchange(
        &self,
        request: &Request,
        listen: &mut dyn FnMut(&Reply),
        connect: &dyn Fn() -> Result<Option<UnixStream>, Failure>,
    ) -> Result<Option<Reply>, Failure> {
        let mut attempt = 1;
        loop {
            let Some(stream) = connect()? else {
                return Ok(None);
            };
            match converse(&stream, request, listen) {
                Ok(Reply::Failed(failure)) => return Err(failure),
                // Not its fault, so not counted; each time costs a worker's start.
                Ok(Reply::Again) => tracing::debug!("the worker is being replaced; asking the next one"),
                Ok(reply) => return Ok(Some(reply)),
                Err(error) if attempt < ATTEMPTS => {
                    tracing::debug!(%error, attempt, "the daemon's worker went away; asking again");
                    attempt += 1;
                }
                Err(error) => {
                    let log = self.paths.daemon_log();
                    let message = format!("the daemon did not answer ({error}); see {}", log.display());
                    return Err(Failure::new(FailureKind::Host, message));
                }
            }
        }
    }

    /// Stops the daemon, if one runs, and waits until it is gone; by force it may have to stay for readers, which it refuses: then it
    /// is not waited for, and the reason is given.
    ///
    /// # Errors
    /// When views are in use and `force` is not given, or it does not end.
    pub fn stop(&self, force: bool) -> Result<Option<String>, Failure> {
        let (_, keeper) = match self.with_keeper() {
            Err(failure) if failure.kind == FailureKind::NotFound => return Ok(None),
            found => found?,
        };
        if let Some(Reply::Stays { reason }) = self.ask_running(&Request::Stop { force })? {
            return Ok(Some(reason));
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        // A command that asks for an image just now starts another daemon, with a keeper of its own.
        while !keeper.has_ended().unwrap_or(true) {
            if Instant::now() > deadline {
                let message = format!("the daemon did not end within {} s", STOP_TIMEOUT.as_secs());
                return Err(Failure::new(FailureKind::Host, message));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(None)
    }

    fn connect(&self, request: &Request) -> Result<UnixStream, Failure> {
        let socket = self.paths.socket();
        if let Ok(stream) = UnixStream::connect(&socket) {
            self.check_root(request)?;
            return Ok(stream);
        }
        let keeper = self.start()?;
        let deadline = Instant::now() + START_TIMEOUT;
        let mut given_up = None;
        let mut pause = Duration::from_millis(1);
        loop {
            let error = match UnixStream::connect(&socket) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            // One that ended at once may have found another that is just starting: that one gets a moment.
            if given_up.is_none() && keeper.try_wait().ok().flatten().is_some() {
                given_up = Some(Instant::now() + RIVAL_START);
            }
            let now = Instant::now();
            if now > deadline || given_up.is_some_and(|moment| now > moment) {
                return Err(self.not_started(&error));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Checks that the daemon of this run directory keeps its state in this root directory: its mount of the cache shows that. A
    /// daemon whose cache was removed can still be ended, and name its users.
    fn check_root(&self, request: &Request) -> Result<(), Failure> {
        let guarded = self.paths.guarded();
        let status = rustix::fs::statx(
            rustix::fs::CWD,
            &guarded,
            rustix::fs::AtFlags::empty(),
            rustix::fs::StatxFlags::INO,
        );
        let is_mounted = status.is_ok_and(|status| {
            status
                .stx_attributes
                .contains(rustix::fs::StatxAttributes::MOUNT_ROOT)
        });
        if !is_mounted || is_same(&self.paths.layers(), &guarded) {
            return Ok(());
        }
        if guard::shows_deleted_cache(&guarded) {
            if matches!(request, Request::Stop { .. } | Request::Status) {
                return Ok(());
            }
            let message = format!(
                "{} was removed while the daemon runs; end that daemon by `xebec daemon stop --force`, and the next command starts \
                 another",
                self.paths.layers().display()
            );
            return Err(Failure::new(FailureKind::Host, message));
        }
        let message = format!(
            "the daemon of {} has another root directory than {}; give the one that it was started with by --root, or another \
             --run",
            self.paths.run().display(),
            self.paths.root().display()
        );
        Err(Failure::new(FailureKind::Usage, message))
    }

    fn not_started(&self, error: &io::Error) -> Failure {
        let log = self.paths.daemon_log();
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let last = text.lines().rfind(|line| !line.trim().is_empty());
        // The last words in the log count more than the error of the socket, at which nobody listens.
        let last = last.map_or_else(
            || format!("its log is empty, and its socket: {error}"),
            str::to_owned,
        );
        let message = format!(
            "the daemon did not start: {last}; see {}, and try `xebec doctor`",
            log.display()
        );
        Failure::new(FailureKind::Host, message)
    }

    /// Starts the keeper in a session of its own. Two that start at once settle it by the keeper's lock.
    fn start(&self) -> Result<Child, Failure> {
        // The daemon would say so too, but in its log.
        Settings::load(&self.paths.settings(), &Overrides::new())?;
        let log = self.paths.daemon_log();
        let open = || -> io::Result<File> { File::options().create(true).append(true).open(&log) };
        let output = open().map_err(|error| Failure::host(format!("open {}", log.display()), error))?;
        start_keeper(&self.paths, &Overrides::new(), Some(&output))
            .map_err(|error| Failure::host("start the daemon", error))
    }

    /// The status of the daemon that runs.
    ///
    /// # Errors
    /// `NotFound` when no daemon runs; as [`Daemon::ask_running`].
    pub fn status(&self) -> Result<Status, Failure> {
        match self.ask_running(&Request::Status)? {
            Some(Reply::Status(status)) => Ok(*status),
            Some(_) => Err(unexpected_reply()),
            None => Err(not_running()),
        }
    }

    /// Replaces the running daemon by `program`, without a reader noticing more than a pause. Gives its status.
    ///
    /// # Errors
    /// When no daemon runs, when the program could not take over its journal, or did not within a time.
    pub fn upgrade(&self, program: &Path) -> Result<Status, Failure> {
        if !self.is_running() {
            let message = "no daemon is running; the next command starts the new program";
            return Err(Failure::new(FailureKind::NotFound, message));
        }
        let (before, keeper) = self.with_keeper()?;
        match journal_version_of(program) {
            Some(version) if version == before.journal_version => {}
            Some(_) => {
                let message = format!(
                    "{} cannot take over from the daemon of version {}, which keeps its journal in another form: stop \
                     what runs on its views, then `xebec daemon stop`",
                    program.display(),
                    before.version
                );
                return Err(Failure::new(FailureKind::Usage, message));
            }
            None => {
                let message = format!(
                    "{} does not say which journals it can take over (`daemon journal-version`); is it Xebec?",
                    program.display()
                );
                return Err(Failure::new(FailureKind::Usage, message));
            }
        }
        let file = crate::upgrade_file(self.paths.run());
        write_atomically(&file, program.as_os_str().as_encoded_bytes())
            .map_err(|error| Failure::host(format!("write {}", file.display()), error))?;
        keeper.signal(crate::REPLACE).map_err(|error| {
            Failure::host(format!("signal the keeper, process {}", before.keeper_pid), error)
        })?;
        let deadline = Instant::now() + UPGRADE_TIMEOUT;
        loop {
            std::thread::sleep(Duration::from_millis(5));
            let after = self.status()?;
            if after.keepers > before.keepers {
                self.is_program(&after, program)?;
                if after.worker_pid != before.worker_pid {
                    return Ok(after);
                }
            }
            if Instant::now() > deadline {
                let log = self.paths.daemon_log();
                let message = format!(
                    "the daemon goes on with its old program, {} did not take over; see {}",
                    program.display(),
                    log.display()
                );
                return Err(Failure::new(FailureKind::Host, message));
            }
        }
    }

    /// A program that cannot keep is replaced by the old one, by the worker that lost its keeper.
    fn is_program(&self, status: &Status, program: &Path) -> Result<(), Failure> {
        let running = std::fs::read_link(format!("/proc/{}/exe", status.keeper_pid));
        let wanted = program.canonicalize();
        if running.ok() == wanted.ok() {
            return Ok(());
        }
        let message = format!(
            "{} could not go on as the keeper, so the old program does; see {}",
            program.display(),
            self.paths.daemon_log().display()
        );
        Err(Failure::new(FailureKind::Host, message))
    }

    /// The daemon's status, once it has a keeper: one whose service was stopped may have none.
    fn with_keeper(&self) -> Result<(Status, Child), Failure> {
        let deadline = Instant::now() + START_TIMEOUT;
        let mut started = None;
        loop {
            let status = self.status()?;
            let pid_file = self.paths.run().join("keeper.pid");
            if let Some(keeper) = crate::state::find(&pid_file, status.keeper_pid.cast_signed()) {
                return Ok((status, keeper));
            }
            if started.is_none() {
                started = Some(self.start()?);
            }
            if Instant::now() > deadline {
                let message = "the daemon has no keeper, and none could be started; see its log";
                return Err(Failure::new(FailureKind::Host, message));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A daemon that runs already; a client that must not start one uses this.
#[derive(Debug)]
pub enum Found {
    /// None runs.
    Nothing,
    /// One runs, and did not say how it is: it is busy, is just being replaced, or is of another version.
    Silent,
    /// One runs, and is so.
    Running(Box<Status>),
}

/// Finds the daemon of a run directory. None is started, not even by a service manager that listens for it: nobody is spoken to
/// unless a daemon has the directory's lock.
pub fn find(run: &Path) -> Found {
    if !crate::is_running(run) {
        return Found::Nothing;
    }
    let answer = UnixStream::connect(run.join("xebec.sock"))
        .ok()
        .and_then(|stream| {
            stream.set_read_timeout(Some(START_TIMEOUT)).ok()?;
            converse(&stream, &Request::Status, &mut |_| ()).ok()
        });
    match answer {
        Some(Reply::Status(status)) => Found::Running(status),
        _ => Found::Silent,
    }
}

/// Which journals a program can take over; `None` if it does not say.
fn journal_version_of(program: &Path) -> Option<u32> {
    let output = Command::new(program)
        .args(["daemon", "journal-version"])
        .output()
        .ok()?;
    std::str::from_utf8(&output.stdout).ok()?.trim().parse().ok()
}

/// Starts a keeper with these directories and options, in a session of its own. Its messages go to `output`, or where this process's
/// errors go.
pub fn start_keeper(paths: &Paths, overrides: &Overrides, output: Option<&File>) -> Result<Child, String> {
    let mut keeper = Spawn::own_executable()
        .argument("--root")
        .argument(paths.root())
        .argument("--run")
        .argument(paths.run())
        .arguments(["daemon", "start"])
        .new_session();
    for (name, value) in overrides {
        if let Some(value) = value.as_str() {
            keeper = keeper.argument(format!("--{}={value}", name.replace('_', "-")));
        }
    }
    let input = File::open("/dev/null").map_err(|error| format!("open /dev/null: {error}"))?;
    keeper = keeper.descriptor(input.as_fd(), 0);
    if let Some(output) = output {
        keeper = keeper.descriptor(output.as_fd(), 1).descriptor(output.as_fd(), 2);
    }
    keeper.start().map_err(|error| error.to_string())
}

fn converse(stream: &UnixStream, request: &Request, listen: &mut dyn FnMut(&Reply)) -> io::Result<Reply> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    (&*stream).write_all(&line)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let length = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "connection closed without an answer",
            ));
        }
        let reply: Reply = serde_json::from_slice(&line)?;
        if reply.is_final() {
            return Ok(reply);
        }
        listen(&reply);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_daemon_that_dies_while_it_is_asked_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::create(&directory.path().join("root"), &directory.path().join("run")).unwrap();
        let listener = UnixListener::bind(paths.socket()).unwrap();
        let dying = std::thread::spawn(move || drop(listener.accept().unwrap()));
        let daemon = Daemon::new(paths.clone());
        assert!(daemon.ask_running(&Request::Status).unwrap().is_none());
        dying.join().unwrap();
        assert_eq!(daemon.status().unwrap_err().kind, FailureKind::NotFound);
        assert_eq!(daemon.stop(false).unwrap(), None);
        let log = paths.daemon_log();
        assert!(!log.exists(), "a daemon was started");
    }
}
