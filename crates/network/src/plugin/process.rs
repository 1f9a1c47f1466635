//! Runs a program that may hang, write without end, or start others, and is not trusted to do none of that.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process_group};
use xebec_kernel::process::{Child as Held, Ending};

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: Vec<u8>,
}

/// Why there is no end of its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    #[error("it cannot be run: {0}")]
    Start(io::Error),
    #[error("it did not answer within {} s and was killed", .0.as_secs())]
    Late(Duration),
    #[error("it wrote more than {0} bytes and was killed")]
    Verbose(usize),
    #[error("it cannot be waited for: {0}")]
    Wait(io::Error),
}

/// Runs a program with this file as its standard input, and waits for its end, for no longer than `limit`. It may write
/// `most` bytes to each of its two outputs. A program that does more is killed, and so are those that it
/// started, which are in a process group of its own.
///
/// A process that the program leaves running is not waited for, even if it holds the program's outputs open.
pub(crate) fn run(
    command: &mut Command,
    input: File,
    limit: Duration,
    most: usize,
) -> Result<Ended, ProcessError> {
    let until = Instant::now() + limit;
    command
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A key of the terminal that ends this process must not break a plugin off half way.
        .process_group(0);
    let mut child = command.spawn().map_err(ProcessError::Start)?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    let held = match Held::open(pid) {
        Ok(held) => held,
        Err(error) => {
            // It is a child that was not reaped: the number is its own.
            let _ = child.kill();
            let _ = child.wait();
            return Err(ProcessError::Wait(error));
        }
    };
    let outcome = listen(&mut child, &held, until, most).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => ProcessError::Late(limit),
        io::ErrorKind::FileTooLarge => ProcessError::Verbose(most),
        _ => ProcessError::Wait(error),
    });
    if outcome.is_err() {
        if let Some(group) = Pid::from_raw(pid) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = held.kill();
    }
    let ending = held.wait().map_err(ProcessError::Wait)?;
    let (output, errors) = outcome?;
    Ok(Ended {
        ending,
        output,
        errors,
    })
}

/// Collects what the program writes until it ends.
fn listen(child: &mut Child, held: &Held, until: Instant, most: usize) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let no_pipe = || io::Error::other("it has no output");
    let stdout = child.stdout.take().ok_or_else(no_pipe)?;
    let stderr = child.stderr.take().ok_or_else(no_pipe)?;
    for pipe in [stdout.as_fd(), stderr.as_fd()] {
        rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK)?;
    }
    let (mut output, mut errors) = (Collected::new(stdout, most), Collected::new(stderr, most));
    loop {
        let has_ended = wait_for(held.as_fd(), [output.pipe(), errors.pipe()], until)?;
        output.read()?;
        errors.read()?;
        if has_ended {
            return Ok((output.bytes, errors.bytes));
        }
    }
}

/// Waits until the process has ended, or one of the pipes can be read. Returns whether the process has ended.
fn wait_for(process: BorrowedFd<'_>, pipes: [Option<BorrowedFd<'_>>; 2], until: Instant) -> io::Result<bool> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut polled = vec![PollFd::from_borrowed_fd(process, PollFlags::IN)];
    polled.extend(
        pipes
            .into_iter()
            .flatten()
            .map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)),
    );
    let left = Timespec::try_from(left).map_err(io::Error::other)?;
    match rustix::event::poll(&mut polled, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(polled
        .first()
        .is_some_and(|process| !process.revents().is_empty()))
}

/// The bytes that a pipe has brought.
struct Collected<R> {
    pipe: R,
    is_open: bool,
    bytes: Vec<u8>,
    most: usize,
}

impl<R: Read + AsFd> Collected<R> {
    fn new(pipe: R, most: usize) -> Self {
        Collected {
            pipe,
            is_open: true,
            bytes: Vec::new(),
            most,
        }
    }

    /// The pipe, if more may come.
    fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.is_open.then(|| self.pipe.as_fd())
    }

    /// Reads what is there.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        while self.is_open {
            match self.pipe.read(&mut buffer) {
                Ok(0) => self.is_open = false,
                Ok(length) => self
                    .bytes
                    .extend_from_slice(buffer.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.bytes.len() > self.most {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    fn file(contents: &[u8]) -> File {
        use std::io::{Seek, Write};
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(contents).unwrap();
        file.rewind().unwrap();
        file
    }

    fn shell(script: &str, input: &[u8], limit: Duration, most: usize) -> Result<Ended, ProcessError> {
        run(Command::new("sh").args(["-c", script]), file(input), limit, most)
    }

    #[test]
    fn input_and_both_outputs_pass() {
        let input = vec![b'x'; 1 << 20];
        let ended = shell("cat; echo oh >&2; exit 3", &input, SOON, 2 << 20).unwrap();
        assert_eq!(ended.ending, Ending::Exited(3));
        assert_eq!((ended.output, ended.errors), (input, b"oh\n".to_vec()));
        assert!(matches!(
            run(&mut Command::new("/no/such"), file(b""), SOON, 1),
            Err(ProcessError::Start(_))
        ));
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_those_that_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("sleep 60 & echo $! > '{}'; sleep 60", file.display());
        let began = Instant::now();
        let error = shell(&script, b"", Duration::from_secs(1), 100).unwrap_err();
        assert!(matches!(error, ProcessError::Late(_)), "{error}");
        assert!(began.elapsed() < SOON);
        let started: u32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        let is_gone = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !xebec_kernel::process::is_alive(started)
        });
        assert!(is_gone, "what it started runs on");
    }

    #[test]
    fn a_program_that_writes_without_end_is_killed() {
        for script in ["yes", "yes >&2"] {
            let error = shell(script, b"", SOON, 1000).unwrap_err();
            assert!(matches!(error, ProcessError::Verbose(1000)), "{error}");
        }
    }

    #[test]
    fn what_a_program_leaves_running_is_not_waited_for() {
        let began = Instant::now();
        let ended = shell("sleep 20 & echo $!", b"", SOON, 1000).unwrap();
        assert!(began.elapsed() < Duration::from_secs(15));
        let left: i32 = String::from_utf8(ended.output).unwrap().trim().parse().unwrap();
        let _ = Held::open(left).map(|left| left.kill());
    }
}
