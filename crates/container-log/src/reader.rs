//! Reads a log, and follows it while its container runs.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Entry, Time, numbers, path};

/// Longest line that is read at once. Xebec writes shorter ones.
const LINE_LIMIT: u64 = 1 << 20;

/// Which entries are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogRange {
    /// Only those from this time on.
    pub since: Option<Time>,
    /// Only those before this time.
    pub until: Option<Time>,
    /// Only the last so many lines.
    pub tail: Option<usize>,
}

impl LogRange {
    fn has(&self, entry: &Entry) -> bool {
        self.since.is_none_or(|since| entry.time >= since)
            && self.until.is_none_or(|until| entry.time < until)
    }

    /// Whether entries that are written from now on are too late.
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Time::now() >= until)
    }
}

/// Whether more may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Following {
    /// The container may write more.
    GoesOn,
    /// The log has all that there will be.
    Over,
}

/// Reads the log in a container's directory.
pub struct LogReader {
    directory: PathBuf,
    range: LogRange,
    /// The file that is read, and its inode.
    file: Option<(BufReader<File>, u64)>,
    /// The beginning of a line whose end was not there yet.
    line: Vec<u8>,
}

impl LogReader {
    /// Reads the log in this directory.
    pub fn new(directory: &Path, range: LogRange) -> Self {
        Self {
            directory: directory.to_owned(),
            range,
            file: None,
            line: Vec::new(),
        }
    }

    /// Whether there is a log in this directory.
    pub fn is_there(directory: &Path) -> bool {
        !numbers(directory).is_empty()
    }

    /// Passes the entries that are there to `take`, which ends the reading by an error.
    ///
    /// # Errors
    /// If the log cannot be read, and whatever `take` returns.
    pub fn read(&mut self, mut take: impl FnMut(Entry) -> io::Result<()>) -> io::Result<()> {
        let Some(lines) = self.range.tail else {
            return self.read_on(take);
        };
        let mut last: VecDeque<Entry> = VecDeque::new();
        // A line that is written in parts counts once.
        let mut ended = 0;
        self.read_on(|entry| {
            ended += usize::from(entry.is_full);
            last.push_back(entry);
            while ended > lines {
                while last.pop_front().is_some_and(|entry| !entry.is_full) {}
                ended -= 1;
            }
            Ok(())
        })?;
        if lines == 0 {
            last.clear();
        }
        last.into_iter().try_for_each(&mut take)
    }

    /// Passes what was written since to `take`, and says whether to ask again.
    ///
    /// # Errors
    /// As [`LogReader::read`].
    pub fn read_more(&mut self, take: impl FnMut(Entry) -> io::Result<()>) -> io::Result<Following> {
        self.read_on(take)?;
        match self.range.is_over() {
            true => Ok(Following::Over),
            false => Ok(Following::GoesOn),
        }
    }

    fn read_on(&mut self, mut take: impl FnMut(Entry) -> io::Result<()>) -> io::Result<()> {
        loop {
            // Looked up first: everything in the old file was written before it was renamed.
            let next = self.next_file()?;
            self.read_file(&mut take)?;
            match next {
                Some(next) => self.file = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// The file after the one that is read. Once that was rotated away, the oldest.
    fn next_file(&self) -> io::Result<Option<(BufReader<File>, u64)>> {
        let mut files = Vec::new();
        for number in numbers(&self.directory) {
            match File::open(path(&self.directory, number)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                file => {
                    let file = file?;
                    let inode = file.metadata()?.ino();
                    files.push((BufReader::new(file), inode));
                }
            }
        }
        let is_read =
            |(_, inode): &(BufReader<File>, u64)| self.file.as_ref().is_some_and(|(_, read)| read == inode);
        let at = files.iter().position(is_read).map_or(0, |at| at + 1);
        Ok((at < files.len()).then(|| files.swap_remove(at)))
    }

    fn read_file(&mut self, take: &mut impl FnMut(Entry) -> io::Result<()>) -> io::Result<()> {
        let Some((file, _)) = &mut self.file else {
            return Ok(());
        };
        loop {
            let mut limited = io::Read::take(&mut *file, LINE_LIMIT);
            limited.read_until(b'\n', &mut self.line)?;
            match self.line.strip_suffix(b"\n") {
                Some(line) => {
                    let entry = Entry::parse(line).filter(|entry| self.range.has(entry));
                    if let Some(entry) = entry {
                        take(entry)?;
                    }
                }
                // A line that is longer is damaged.
                None if self.line.len() as u64 >= LINE_LIMIT => {}
                None => return Ok(()),
            }
            self.line.clear();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::super::{LogLimits, LogWriter, Stream};
    use super::*;

    fn texts(reader: &mut LogReader) -> Vec<String> {
        let mut texts = Vec::new();
        let take = |entry: Entry| {
            texts.push(String::from_utf8(entry.text).unwrap());
            Ok(())
        };
        reader.read(take).unwrap();
        texts
    }

    fn more(reader: &mut LogReader) -> Vec<String> {
        let mut texts = Vec::new();
        let take = |entry: Entry| {
            texts.push(String::from_utf8(entry.text).unwrap());
            Ok(())
        };
        reader.read_more(take).unwrap();
        texts
    }

    #[test]
    fn a_log_is_followed_over_rotations() {
        let directory = tempfile::tempdir().unwrap();
        let mut reader = LogReader::new(directory.path(), LogRange::default());
        assert!(texts(&mut reader).is_empty(), "there is none yet");
        let limits = LogLimits { size: 200, files: 50 };
        let log = LogWriter::open(directory.path(), limits).unwrap();
        let mut out = log.stream(Stream::Stdout);
        let mut read = Vec::new();
        for number in 0..100 {
            out.take(format!("{number}\n").as_bytes());
            if number % 30 == 0 {
                read.extend(more(&mut reader));
            }
        }
        read.extend(more(&mut reader));
        let wanted: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        assert_eq!(read, wanted);
        assert!(more(&mut reader).is_empty());
    }

    #[test]
    fn a_part_of_a_log_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let line = |second: u32, tag: &str| format!("2016-10-06T00:00:{second:02}Z stdout {tag} {second}\n");
        let text: String = (0..10).map(|second| line(second, "F")).collect();
        std::fs::write(
            path(directory.path(), 0),
            format!("{text}damaged\n{}", line(10, "P")),
        )
        .unwrap();
        let at = |second: u64| Some(Time(Duration::from_secs(1_475_712_000 + second)));
        let read = |range| texts(&mut LogReader::new(directory.path(), range));
        let range = LogRange::default;
        assert_eq!(read(range()).len(), 11);
        assert_eq!(
            read(LogRange {
                since: at(8),
                ..range()
            }),
            ["8", "9", "10"]
        );
        assert_eq!(
            read(LogRange {
                until: at(2),
                ..range()
            }),
            ["0", "1"]
        );
        assert_eq!(
            read(LogRange {
                tail: Some(2),
                ..range()
            }),
            ["8", "9", "10"]
        );
        assert_eq!(
            read(LogRange {
                tail: Some(1),
                until: at(2),
                ..range()
            }),
            ["1"]
        );
        assert!(
            read(LogRange {
                tail: Some(0),
                ..range()
            })
            .is_empty()
        );
        assert_eq!(
            read(LogRange {
                tail: Some(99),
                ..range()
            })
            .len(),
            11
        );
    }

    #[test]
    fn a_line_is_read_when_its_end_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let mut reader = LogReader::new(directory.path(), LogRange::default());
        let (begin, end) = "2016-10-06T00:00:00Z stdout F whole\n".split_at(33);
        std::fs::write(path(directory.path(), 0), begin).unwrap();
        assert!(texts(&mut reader).is_empty());
        let mut file = File::options()
            .append(true)
            .open(path(directory.path(), 0))
            .unwrap();
        io::Write::write_all(&mut file, end.as_bytes()).unwrap();
        assert_eq!(more(&mut reader), ["whole"]);
    }
}
