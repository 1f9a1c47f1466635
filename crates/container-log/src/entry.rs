//! One line of a log.

use std::io::Write;

use super::Time;

/// Where a container wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Its standard output, or its terminal.
    Stdout,
    /// Its standard error.
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// One line of a log, as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it was written.
    pub time: Time,
    /// Where the container wrote it.
    pub stream: Stream,
    /// Whether the container ended the line here.
    pub is_full: bool,
    /// The text, without the end of the line.
    pub text: Vec<u8>,
}

impl Entry {
    /// The entry of a line of the file, without its end. `None` if it is damaged, as by a full disk.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |&byte| byte == b' ');
        let time = std::str::from_utf8(parts.next()?).ok()?;
        let stream = match parts.next()? {
            b"stdout" => Stream::Stdout,
            b"stderr" => Stream::Stderr,
            _ => return None,
        };
        let is_full = match parts.next()? {
            b"F" => true,
            b"P" => false,
            _ => return None,
        };
        Some(Self {
            time: Time::from_rfc3339(time)?,
            stream,
            is_full,
            text: parts.next()?.to_owned(),
        })
    }

    /// Appends the line of an entry.
    pub(super) fn append(to: &mut Vec<u8>, time: &str, stream: Stream, is_full: bool, text: &[u8]) {
        let tag = if is_full { 'F' } else { 'P' };
        // Writing to memory does not fail.
        let _ = write!(to, "{time} {} {tag} ", stream.name());
        to.extend_from_slice(text);
        to.push(b'\n');
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_cri() {
        let mut line = Vec::new();
        let time = "2016-10-06T00:17:09.669794202Z";
        Entry::append(&mut line, time, Stream::Stderr, false, b"log  \xff content ");
        assert_eq!(
            line,
            b"2016-10-06T00:17:09.669794202Z stderr P log  \xff content \n"
        );
        let entry = Entry::parse(line.strip_suffix(b"\n").unwrap()).unwrap();
        assert_eq!(entry.time.to_string(), time);
        assert_eq!((entry.stream, entry.is_full), (Stream::Stderr, false));
        assert_eq!(entry.text, b"log  \xff content ");
        assert_eq!(
            Entry::parse(b"2016-10-06T00:17:09.6Z stdout F ").unwrap().text,
            b""
        );
        for bad in [
            "",
            "2016-10-06T00:17:09Z stdout F",
            "2016-10-06T00:17:09Z stdin F a",
            "x stdout F a",
            "2016-10-06T00:17:09Z stdout X a",
        ] {
            assert_eq!(Entry::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
