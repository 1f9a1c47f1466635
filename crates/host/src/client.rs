//! The command line's side of the daemon's socket: starts the daemon when there is none, asks, and listens.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use xebec_kernel::process::{Child, Spawn};

use crate::failure::{Failure, FailureKind};
use crate::paths::Paths;
use crate::protocol::{MAX_LINE, Reply, Request};

/// How long a daemon that was just started may take until its socket answers.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long another keeper, that was started at the same moment and won, may take to listen.
const RIVAL_START: Duration = Duration::from_secs(3);
/// How long a daemon may take to end. Its worker finishes what it is answering, then everything is unmounted.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// How often a request is sent again because the worker died before it answered. The worker restarts by itself;
/// a request that kills it every time must end some day.
const ATTEMPTS: u32 = 3;

/// A connection maker to one installation's daemon.
#[derive(Clone, Debug)]
pub struct Daemon {
    paths: Paths,
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
        let mut attempt = 1;
        loop {
            let stream = self.connect()?;
            match converse(&stream, request, listen) {
                Ok(Reply::Failed(failure)) => return Err(failure),
                Ok(reply) => return Ok(reply),
                Err(error) if attempt < ATTEMPTS => {
                    tracing::debug!(%error, attempt, "the daemon's worker went away; asking again");
                    attempt += 1;
                }
                Err(error) => {
                    let log = self.paths.run().join("daemon.log");
                    let message = format!("the daemon did not answer ({error}); see {}", log.display());
                    return Err(Failure::new(FailureKind::Host, message));
                }
            }
        }
    }

    /// Stops the daemon and waits until it is gone.
    ///
    /// # Errors
    /// When views are in use and `force` is not given, or it does not end.
    pub fn stop(&self, force: bool) -> Result<(), Failure> {
        self.ask(&Request::Stop { force }, &mut |_| ())?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while self.paths.run().join("keeper.pid").exists() {
            if Instant::now() > deadline {
                let message = format!("the daemon did not end within {} s", STOP_TIMEOUT.as_secs());
                return Err(Failure::new(FailureKind::Host, message));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn connect(&self) -> Result<UnixStream, Failure> {
        let socket = self.paths.socket();
        if let Ok(stream) = UnixStream::connect(&socket) {
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

    fn not_started(&self, error: &io::Error) -> Failure {
        let log = self.paths.run().join("daemon.log");
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let last = text.lines().last().unwrap_or("nothing is in its log");
        let message = format!(
            "the daemon did not start ({error}): {last}; see {}, and try `xebec doctor`",
            log.display()
        );
        Failure::new(FailureKind::Host, message)
    }

    /// Starts the keeper in a session of its own. Two that start at once settle it by the keeper's lock.
    fn start(&self) -> Result<Child, Failure> {
        let log = self.paths.run().join("daemon.log");
        let open = || -> io::Result<File> { File::options().create(true).append(true).open(&log) };
        let output = open().map_err(|error| Failure::host(format!("open {}", log.display()), error))?;
        let input = File::open("/dev/null").map_err(|error| Failure::host("open /dev/null", error))?;
        let keeper = Spawn::own_executable()
            .argument("--root")
            .argument(self.paths.root())
            .argument("--run")
            .argument(self.paths.run())
            .arguments(["daemon", "start"])
            .descriptor(input.as_fd(), 0)
            .descriptor(output.as_fd(), 1)
            .descriptor(output.as_fd(), 2)
            .new_session();
        keeper
            .start()
            .map_err(|error| Failure::host("start the daemon", error))
    }
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
        match serde_json::from_slice(&line)? {
            reply @ (Reply::Progress { .. } | Reply::Notice { .. }) => listen(&reply),
            reply => return Ok(reply),
        }
    }
}
