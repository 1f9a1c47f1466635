//! The output of a container: copied to this process's own output or to the container's log, and searched for the
//! lines that `log:` probes wait for. The last lines are kept for error messages.
//!
//! Without probes and a log there is nothing to search for, and the container writes to this process's output directly.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::screen::ScreenWatch;
use crate::supervisor_event::SupervisorEvent;
use xebec_container_log::LogStream;
use xebec_probe::{LogPattern, Probe};

/// Longest part of a line that is searched and kept. Longer lines are data rather than messages.
const LINE_LIMIT: usize = 64 << 10;

/// How many lines of each stream an error message shows.
const TAIL_LINES: usize = 12;

/// How many bytes of each line an error message shows.
const TAIL_LINE_LIMIT: usize = 500;

/// One read from a pipe: the size of a pipe's buffer on Linux (`pipe(7)`).
const READ_SIZE: usize = 64 << 10;

/// How long the beginning of a line waits for its end before it is written to the log. A program that writes a line in pieces
/// takes less, so that its lines stay whole.
const REST_PATIENCE: Duration = Duration::from_millis(100);

/// The output of this process to which a stream is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Stdout,
    Stderr,
}

impl Destination {
    fn fd(self) -> BorrowedFd<'static> {
        match self {
            Destination::Stdout => rustix::stdio::stdout(),
            Destination::Stderr => rustix::stdio::stderr(),
        }
    }
}

/// The last lines of each stream. The streams are kept apart: the order of lines in two pipes is unknown, and
/// many lines in one stream must not hide the last ones of the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail(Arc<Mutex<[VecDeque<String>; 2]>>);

impl Tail {
    fn push(&self, from: Destination, line: &[u8]) {
        let text = String::from_utf8_lossy(line.get(..TAIL_LINE_LIMIT).unwrap_or(line)).into_owned();
        let [stdout, stderr] = &mut *self.0.lock();
        let lines = match from {
            Destination::Stdout => stdout,
            Destination::Stderr => stderr,
        };
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(text);
    }

    /// The lines as the end of an error message.
    pub(crate) fn sentence(&self) -> String {
        let streams = self.0.lock();
        let mut text = String::new();
        for line in streams.iter().flatten() {
            text.push_str(if text.is_empty() {
                "; the last it wrote:\n  "
            } else {
                "\n  "
            });
            text.extend(
                line.chars()
                    .map(|c| if c.is_control() && c != '\t' { ' ' } else { c }),
            );
        }
        text
    }
}

/// Searches a stream line by line.
pub(crate) struct LineSearch {
    /// The patterns that have not matched, each with the number of its probe.
    patterns: Vec<(usize, LogPattern)>,
    line: Vec<u8>,
    from: Destination,
    tail: Tail,
    sender: Sender<SupervisorEvent>,
}

impl LineSearch {
    pub(crate) fn new(
        probes: &[Probe],
        from: Destination,
        tail: &Tail,
        sender: &Sender<SupervisorEvent>,
    ) -> Self {
        let patterns = probes
            .iter()
            .enumerate()
            .filter_map(|(index, probe)| match probe {
                Probe::Log(pattern) => Some((index, pattern.clone())),
                _ => None,
            });
        LineSearch {
            patterns: patterns.collect(),
            line: Vec::new(),
            from,
            tail: tail.clone(),
            sender: sender.clone(),
        }
    }

    /// Searches the next bytes of the stream.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, ended) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let room = LINE_LIMIT.saturating_sub(self.line.len());
            self.line.extend_from_slice(text.get(..room).unwrap_or(text));
            if ended {
                self.end_line();
            }
        }
        // A prompt is a line without an end.
        if !self.line.is_empty() {
            self.search();
        }
    }

    fn end_line(&mut self) {
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        self.search();
        self.tail.push(self.from, &self.line);
        self.line.clear();
    }

    fn search(&mut self) {
        let Self {
            patterns,
            line,
            sender,
            ..
        } = self;
        patterns.retain(|(index, pattern)| {
            let matches = pattern.is_in(line);
            if matches {
                // The supervisor drops the receiver when the container has ended.
                let _ = sender.send(SupervisorEvent::ProbeSucceeded(*index));
            }
            !matches
        });
    }
}

impl Drop for LineSearch {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.end_line();
        }
    }
}

/// Where a stream is copied to.
pub(crate) enum Sink {
    /// This process's output.
    Own(Destination),
    /// The same, and watches whether a program takes the screen there.
    Screen(Destination, ScreenWatch),
    /// The container's log. `None` if that cannot be opened.
    Log(Option<LogStream>),
}

impl Sink {
    /// Returns whether more can be written.
    fn write(&mut self, bytes: &[u8]) -> bool {
        match self {
            Self::Own(to) => write_all(to.fd(), bytes),
            Self::Screen(to, watch) => {
                watch.take(bytes);
                write_all(to.fd(), bytes)
            }
            Self::Log(None) => false,
            Self::Log(Some(log)) => {
                log.take(bytes);
                true
            }
        }
    }

    /// Whether the beginning of a line waits for its end.
    fn has_rest(&self) -> bool {
        matches!(self, Self::Log(Some(log)) if log.has_rest())
    }

    /// Writes the beginning of a line that does not end for now.
    fn flush(&mut self) {
        if let Self::Log(Some(log)) = self {
            log.flush();
        }
    }
}

/// Copies `from` to `sink` until it ends. If an output is closed, the rest is still read and
/// searched: a container does not block because its output is not read.
pub(crate) fn copy(
    from: impl Read + AsFd + Send + 'static,
    search: LineSearch,
    sink: Sink,
) -> io::Result<Copying> {
    let thread = thread::Builder::new().name("container-output".into());
    let (done, ended) = std::sync::mpsc::channel();
    thread.spawn(move || {
        let _done: Sender<()> = done;
        copy_all(from, search, sink);
    })?;
    Ok(Copying(ended))
}

/// A copy in progress.
pub(crate) struct Copying(std::sync::mpsc::Receiver<()>);

impl Copying {
    /// Waits until everything has been copied, up to `patience`: another process may hold the pipe open.
    pub(crate) fn finish(self, patience: std::time::Duration) {
        let _ = self.0.recv_timeout(patience);
    }
}

fn copy_all(mut from: impl Read + AsFd, mut search: LineSearch, mut sink: Sink) {
    let mut buffer = vec![0_u8; READ_SIZE];
    let mut open = true;
    loop {
        // A user who follows the log must see a prompt, and how far something has come.
        if sink.has_rest() && !is_readable(from.as_fd(), REST_PATIENCE) {
            sink.flush();
        }
        match from.read(&mut buffer) {
            // A terminal ends with EIO when its last user has closed it.
            Ok(0) | Err(_) => break,
            Ok(length) => {
                let bytes = buffer.get(..length).unwrap_or_default();
                open = open && sink.write(bytes);
                search.take(bytes);
            }
        }
    }
}

/// Whether a read returns at once, or does within `patience`.
fn is_readable(from: BorrowedFd<'_>, patience: Duration) -> bool {
    let mut wait = [PollFd::from_borrowed_fd(from, PollFlags::IN)];
    let patience = Timespec::try_from(patience).ok();
    // An error is one of the read, too.
    poll(&mut wait, patience.as_ref()) != Ok(0)
}

/// Writes all bytes. Returns whether that succeeded.
pub(crate) fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // Another process made the descriptor non-blocking. Wait as a blocking one does.
                let mut wait = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
                if poll(&mut wait, None).is_err() {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use xebec_container_log::{Entry, LogLimits, LogRange, LogReader, LogWriter, Stream};

    fn seen(patterns: &[&str], pieces: &[&[u8]]) -> (Vec<usize>, String) {
        let probes: Vec<Probe> = patterns
            .iter()
            .map(|pattern| format!("log:{pattern}").parse().unwrap())
            .collect();
        let (sender, events_in) = mpsc::channel();
        let tail = Tail::default();
        let mut search = LineSearch::new(&probes, Destination::Stderr, &tail, &sender);
        pieces.iter().for_each(|piece| search.take(piece));
        drop((search, sender));
        let seen = events_in.iter().map(|event| match event {
            SupervisorEvent::ProbeSucceeded(index) => index,
            _ => usize::MAX,
        });
        (seen.collect(), tail.sentence())
    }

    #[test]
    fn lines_are_found_in_any_pieces() {
        assert_eq!(
            seen(&["ready$"], &[b"not rea", b"dy yet\nnow rea", b"dy\r\nmore"]).0,
            [0]
        );
        assert_eq!(
            seen(&["^b$", "^a$"], &[b"a\nb\na\nb\n"]).0,
            [1, 0],
            "each matches once"
        );
        assert_eq!(seen(&["^login: "], &[b"login: "]).0, [0], "a line need not end");
        assert!(
            seen(&["a\nb", "ab"], &[b"a\nb\n"]).0.is_empty(),
            "a pattern never spans lines"
        );
        assert_eq!(seen(&["\\xff"], &["\u{ff}\n".as_bytes()]).0, [0]);
    }

    /// A prompt is in the log before its line ends, and a line that comes in pieces stays one.
    #[test]
    fn a_line_that_does_not_end_is_written_after_a_while() {
        use std::io::Write;
        let directory = tempfile::tempdir().unwrap();
        let log = LogWriter::open(directory.path(), LogLimits::default()).unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        let (sender, _events) = mpsc::channel();
        let search = LineSearch::new(&[], Destination::Stdout, &Tail::default(), &sender);
        let copying = copy(reader, search, Sink::Log(Some(log.stream(Stream::Stdout)))).unwrap();
        let mut read = LogReader::new(directory.path(), LogRange::default());
        let mut entries = Vec::new();
        let mut wait_for = |count: usize| {
            let began = std::time::Instant::now();
            while entries.len() < count {
                assert!(began.elapsed() < Duration::from_secs(10), "{entries:?}");
                let take = |entry: Entry| {
                    entries.push((entry.is_full, String::from_utf8(entry.text).unwrap()));
                    Ok(())
                };
                read.read_more(take).unwrap();
                thread::sleep(Duration::from_millis(2));
            }
            entries.clone()
        };
        writer.write_all(b"one\nlogin: ").unwrap();
        let seen = wait_for(2);
        assert_eq!(seen, [(true, "one".to_owned()), (false, "login: ".to_owned())]);
        writer.write_all(b"root\npie").unwrap();
        writer.write_all(b"ces\n").unwrap();
        let seen = wait_for(4);
        assert_eq!(
            seen[2..],
            [(true, "root".to_owned()), (true, "pieces".to_owned())]
        );
        drop(writer);
        copying.finish(Duration::from_secs(10));
    }

    #[test]
    fn memory_is_bounded_and_the_last_lines_are_kept() {
        let long = vec![b'x'; LINE_LIMIT * 3];
        let (found, tail) = seen(&["x{10}y"], &[&long, b"y\n"]);
        assert!(found.is_empty());
        assert!(tail.len() < TAIL_LINE_LIMIT + 100);
        let many: Vec<u8> = (0..100)
            .flat_map(|n| format!("line {n}\n").into_bytes())
            .collect();
        let (_, tail) = seen(&[], &[&many, b"\x1b[2Jlast"]);
        assert_eq!(tail.lines().count(), TAIL_LINES + 1);
        assert!(
            tail.contains("line 99") && !tail.contains("line 88\n") && tail.ends_with(" [2Jlast"),
            "{tail}"
        );
    }
}
