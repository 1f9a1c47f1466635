//! `xebec logs`, and the output of `xebec start --attach`.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use xebec_container::{Container, Directories, find};
use xebec_container_log::{Entry, Following, LogRange, LogReader, Stream, Time};
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;

use crate::args::LogsArgs;
use crate::container_lookup::{directories, not_found};
use crate::print;
use crate::slow_readers::tell_failed;

/// How often it is looked for more.
const LOOK: Duration = Duration::from_millis(50);

/// `xebec logs`.
pub(crate) fn logs(paths: &Paths, args: &LogsArgs) -> Result<(), Failure> {
    let directories = directories(paths);
    let container = find(&directories, &args.container).map_err(not_found)?;
    let is_kept = container.saved.as_ref().is_some_and(|saved| saved.detached);
    if !is_kept && !LogReader::is_there(&container.directory) {
        errln!(
            "note: {} has no log: it was not started in the background, so that it wrote to the command that started it",
            container.name
        );
    }
    print::end_with_reader();
    let range = LogRange {
        since: args.since,
        until: args.until,
        tail: args.tail.0,
    };
    let mut reader = LogReader::new(&container.directory, range);
    let mut printer = Printer::new(args.timestamps);
    if let Err(error) = reader.read(|entry| printer.print(&entry)) {
        return Err(unreadable(error));
    }
    if args.follow {
        follow_on(&directories, &container, &mut reader, printer)?;
    }
    // Its program has seen an input/output error only. Of a part of the log nothing is said: the reads may be of another time.
    // A log is of all runs of its container, and a read may begin before it is noted that the run has started.
    if args.since.is_none() && args.until.is_none() {
        tell_failed(paths, &container.name, container.created_ms());
    }
    Ok(())
}

/// A reader of a container's output from now on.
pub(crate) fn from_now(container: &Container) -> LogReader {
    let range = LogRange {
        since: Some(Time::now()),
        ..LogRange::default()
    };
    LogReader::new(&container.directory, range)
}

/// Prints a container's output until it has ended.
pub(crate) fn follow(
    directories: &Directories,
    container: &Container,
    mut reader: LogReader,
) -> Result<(), Failure> {
    follow_on(directories, container, &mut reader, Printer::new(false))
}

fn follow_on(
    directories: &Directories,
    container: &Container,
    reader: &mut LogReader,
    mut printer: Printer,
) -> Result<(), Failure> {
    loop {
        // The state is read first: if the container has ended, all its output is in the log.
        let now = find(directories, &container.name)
            .ok()
            .filter(|now| now.id() == container.id());
        let is_over = !now.is_some_and(|now| now.is_active() || now.is_closing());
        match reader.read_more(|entry| printer.print(&entry)) {
            Ok(Following::GoesOn) if !is_over => thread::sleep(LOOK),
            Ok(_) => return Ok(()),
            Err(error) => return Err(unreadable(error)),
        }
    }
}

/// Prints entries of a log.
struct Printer {
    with_time: bool,
    /// Whether the last line on standard output, and on standard error, goes on in the next entry.
    goes_on: [bool; 2],
}

impl Printer {
    fn new(with_time: bool) -> Self {
        Self {
            with_time,
            goes_on: [false; 2],
        }
    }

    fn print(&mut self, entry: &Entry) -> io::Result<()> {
        let line = self.text_of(entry);
        match entry.stream {
            Stream::Stdout => print::write_with(|| {
                let mut out = io::stdout().lock();
                out.write_all(&line).and_then(|()| out.flush())
            }),
            Stream::Stderr => _ = io::stderr().lock().write_all(&line),
        }
        Ok(())
    }

    /// A line that was written in parts has one time: that of its first part.
    fn text_of(&mut self, entry: &Entry) -> Vec<u8> {
        let [out, err] = &mut self.goes_on;
        let goes_on = match entry.stream {
            Stream::Stdout => out,
            Stream::Stderr => err,
        };
        let mut line = Vec::new();
        if self.with_time && !*goes_on {
            line.extend_from_slice(format!("{} ", entry.time).as_bytes());
        }
        line.extend_from_slice(&entry.text);
        if entry.is_full {
            line.push(b'\n');
        }
        *goes_on = !entry.is_full;
        line
    }
}

fn unreadable(error: io::Error) -> Failure {
    Failure::host("read the log", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_in_parts_has_one_time() {
        let mut printer = Printer::new(true);
        let time = Time::now();
        let mut text = |stream, is_full, text: &str| {
            let text = text.as_bytes().to_vec();
            let entry = Entry {
                time,
                stream,
                is_full,
                text,
            };
            String::from_utf8_lossy(&printer.text_of(&entry)).into_owned()
        };
        assert_eq!(text(Stream::Stdout, false, "lo"), format!("{time} lo"));
        assert_eq!(text(Stream::Stderr, true, "oops"), format!("{time} oops\n"));
        assert_eq!(text(Stream::Stdout, true, "gin"), "gin\n");
        assert_eq!(text(Stream::Stdout, true, "next"), format!("{time} next\n"));
    }
}
