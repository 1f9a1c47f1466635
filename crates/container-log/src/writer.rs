//! Writes a log. A container never waits for its log longer than for a write, and never fails by it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Entry, LogLimits, Stream, Time, path};

/// Longest text of an entry: CRI's, so that a line without an end takes no memory. The rest goes on in the next entry.
const TEXT_LIMIT: usize = 16 << 10;

/// The log of a container, for all its streams.
#[derive(Clone)]
pub struct LogWriter(Arc<Mutex<Files>>);

impl LogWriter {
    /// Opens the log in a container's directory. The output of earlier starts stays.
    ///
    /// # Errors
    /// I/O errors.
    pub fn open(directory: &Path, limits: LogLimits) -> io::Result<Self> {
        let file = open(directory)?;
        Ok(Self(Arc::new(Mutex::new(Files {
            size: file.metadata()?.len(),
            file: Some(file),
            directory: directory.to_owned(),
            limits,
            lost: 0,
            is_torn: false,
        }))))
    }

    /// A stream of the container.
    pub fn stream(&self, stream: Stream) -> LogStream {
        LogStream {
            writer: self.clone(),
            stream,
            line: Vec::new(),
        }
    }

    fn write(&self, entries: &[u8]) {
        let mut files = self.0.lock();
        files.write(entries);
    }
}

/// The writer of one stream of a container into its log. Dropped, it writes the rest of a line without an end.
pub struct LogStream {
    writer: LogWriter,
    stream: Stream,
    line: Vec<u8>,
}

impl LogStream {
    /// Writes the next bytes of the stream. The rest of a line waits for its end, or for [`LogStream::flush`].
    pub fn take(&mut self, bytes: &[u8]) {
        let time = Time::now().to_string();
        let mut entries = Vec::new();
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (mut text, is_full) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            while self.line.len() + text.len() > TEXT_LIMIT {
                let (part, rest) = text.split_at(TEXT_LIMIT - self.line.len());
                self.line.extend_from_slice(part);
                self.end(&mut entries, &time, false);
                text = rest;
            }
            self.line.extend_from_slice(text);
            if is_full {
                self.end(&mut entries, &time, true);
            }
        }
        if !entries.is_empty() {
            self.writer.write(&entries);
        }
    }

    /// Whether a line has begun that is not written yet.
    pub fn has_rest(&self) -> bool {
        !self.line.is_empty()
    }

    /// Writes the beginning of a line that does not end for now, such as a prompt. The rest of the line goes into the next entry.
    pub fn flush(&mut self) {
        if self.has_rest() {
            let mut entries = Vec::new();
            self.end(&mut entries, &Time::now().to_string(), false);
            self.writer.write(&entries);
        }
    }

    fn end(&mut self, entries: &mut Vec<u8>, time: &str, is_full: bool) {
        Entry::append(entries, time, self.stream, is_full, &self.line);
        self.line.clear();
    }
}

impl Drop for LogStream {
    fn drop(&mut self) {
        self.flush();
    }
}

struct Files {
    /// The file that is written. Without one nothing can be written.
    file: Option<File>,
    size: u64,
    directory: PathBuf,
    limits: LogLimits,
    /// How many bytes could not be written since the last that could.
    lost: u64,
    /// Whether the last write ended within a line.
    is_torn: bool,
}

impl Files {
    fn write(&mut self, entries: &[u8]) {
        if self.size > 0 && self.size + entries.len() as u64 > self.limits.size {
            self.rotate();
        }
        let mut text = Vec::new();
        if self.is_torn {
            text.push(b'\n');
        }
        if self.lost > 0 {
            let note = format!(
                "xebec: {} bytes of this log could not be written and are lost",
                self.lost
            );
            Entry::append(
                &mut text,
                &Time::now().to_string(),
                Stream::Stderr,
                true,
                note.as_bytes(),
            );
        }
        text.extend_from_slice(entries);
        match self.append(&text) {
            Ok(()) => (self.lost, self.is_torn) = (0, false),
            Err(error) => {
                if self.lost == 0 {
                    tracing::warn!(%error, "cannot write a container's log; what the container writes is dropped");
                }
                self.lost += entries.len() as u64;
            }
        }
    }

    /// Appends all or, on a full disk, a part.
    fn append(&mut self, mut text: &[u8]) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Err(io::ErrorKind::NotFound.into());
        };
        while !text.is_empty() {
            match file.write(text) {
                Ok(length) => {
                    self.size += length as u64;
                    self.is_torn = text
                        .get(..length)
                        .is_some_and(|written| !written.ends_with(b"\n"));
                    text = text.get(length..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Begins a new file. If that fails, the old one is written on until it can be.
    fn rotate(&mut self) {
        let name = |number| path(&self.directory, number);
        let last = self.limits.files.max(1) - 1;
        let renamed = match last {
            0 => fs::remove_file(name(0)),
            _ => {
                for number in (1..last).rev() {
                    let _ = fs::rename(name(number), name(number + 1));
                }
                fs::rename(name(0), name(1))
            }
        };
        // Moved away by a rotation that could not begin the new file.
        let renamed = renamed.or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        match renamed.and_then(|()| open(&self.directory)) {
            Ok(file) => (self.file, self.size, self.is_torn) = (Some(file), 0, false),
            Err(error) => tracing::debug!(%error, "cannot rotate a container's log"),
        }
    }
}

fn open(directory: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path(directory, 0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::numbers;
    use super::*;

    fn text(directory: &Path, number: u32) -> String {
        let text = fs::read(path(directory, number)).unwrap_or_default();
        let lines = String::from_utf8_lossy(&text).into_owned();
        let without_time = lines
            .lines()
            .map(|line| line.split_once(' ').map_or(line, |(_, rest)| rest));
        without_time.map(|line| format!("{line}\n")).collect()
    }

    /// As on a full disk, which takes no new name: the next rotation begins the file that this one could not.
    #[test]
    fn a_rotation_that_failed_half_way_is_made_up_for() {
        let directory = tempfile::tempdir().unwrap();
        let limits = LogLimits { size: 64, files: 2 };
        let log = LogWriter::open(directory.path(), limits).unwrap();
        fs::rename(path(directory.path(), 0), path(directory.path(), 1)).unwrap();
        let mut out = log.stream(Stream::Stdout);
        for _ in 0..20 {
            out.take(b"a line of the container\n");
        }
        drop(out);
        for number in [0, 1] {
            let size = fs::metadata(path(directory.path(), number)).map_or(u64::MAX, |file| file.len());
            assert!(size <= 256, "{number} has {size} bytes");
        }
    }

    #[test]
    fn streams_are_written_line_by_line() {
        let directory = tempfile::tempdir().unwrap();
        let log = LogWriter::open(directory.path(), LogLimits::default()).unwrap();
        let (mut out, mut err) = (log.stream(Stream::Stdout), log.stream(Stream::Stderr));
        out.take(b"one\ntw");
        err.take(b"oops\n");
        out.take(b"o\n\nrest");
        drop((out, err));
        assert_eq!(
            text(directory.path(), 0),
            "stdout F one\nstderr F oops\nstdout F two\nstdout F \nstdout P rest\n"
        );
    }

    #[test]
    fn a_line_without_an_end_is_written_in_parts() {
        let directory = tempfile::tempdir().unwrap();
        let log = LogWriter::open(directory.path(), LogLimits::default()).unwrap();
        let mut out = log.stream(Stream::Stdout);
        out.take(&vec![b'x'; TEXT_LIMIT * 2 + 1]);
        assert!(out.line.len() <= TEXT_LIMIT);
        out.take(b"end\n");
        drop(out);
        let written = text(directory.path(), 0);
        let tags: Vec<&str> = written.lines().map(|line| &line[..8]).collect();
        assert_eq!(tags, ["stdout P", "stdout P", "stdout F"]);
    }

    #[test]
    fn only_so_many_files_of_that_size_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let limits = LogLimits { size: 500, files: 3 };
        let log = LogWriter::open(directory.path(), limits).unwrap();
        let mut out = log.stream(Stream::Stdout);
        for number in 0..100 {
            out.take(format!("line {number}\n").as_bytes());
        }
        assert_eq!(numbers(directory.path()), [2, 1, 0]);
        for number in 0..3 {
            assert!(fs::metadata(path(directory.path(), number)).unwrap().len() <= 500);
        }
        assert!(text(directory.path(), 0).ends_with("stdout F line 99\n"));
        let (newer, older) = (text(directory.path(), 0), text(directory.path(), 1));
        let number = |line: &str| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap();
        let (first, last) = (newer.lines().next().unwrap(), older.lines().last().unwrap());
        assert_eq!(
            number(first),
            number(last) + 1,
            "no line is lost between two files"
        );
    }

    #[test]
    fn what_a_full_disk_refuses_is_counted_and_noted_once() {
        let directory = tempfile::tempdir().unwrap();
        let log = LogWriter::open(directory.path(), LogLimits::default()).unwrap();
        let mut out = log.stream(Stream::Stdout);
        out.take(b"before\n");
        let good = log.0.lock().file.take();
        let full = File::options().write(true).open("/dev/full").unwrap();
        log.0.lock().file = Some(full);
        out.take(b"lost\n");
        out.take(b"lost too\n");
        log.0.lock().file = good;
        out.take(b"after\n");
        out.take(b"more\n");
        let written = text(directory.path(), 0);
        assert_eq!(written.matches("are lost").count(), 1, "{written}");
        assert!(!written.contains("lost too") && written.ends_with("stdout F after\nstdout F more\n"));
    }

    #[test]
    fn a_line_that_was_written_in_part_damages_no_other() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(path(directory.path(), 0), "2016-10-06T00:17:09Z stdout F ha").unwrap();
        let log = LogWriter::open(directory.path(), LogLimits::default()).unwrap();
        log.0.lock().is_torn = true;
        log.stream(Stream::Stdout).take(b"whole\n");
        assert!(text(directory.path(), 0).ends_with("stdout F ha\nstdout F whole\n"));
    }
}
