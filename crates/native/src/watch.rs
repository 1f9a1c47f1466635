//! What a registry tells a host that watches a repository: that a tag leads to another manifest, or that something refers to a manifest now.
//!
//! The answer to a watch is a stream of events as browsers read it (`text/event-stream`, HTML standard, "Server-sent events"), with one line
//! of JSON for each. It says where to look, and nothing of what is there: a host looks as it would have looked later.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;

/// The media type of the stream.
pub const TYPE: &str = "text/event-stream";
/// The longest line of a stream that is read, in bytes. An event with a longer one counts as [`Change::Missed`].
pub const MAX_LINE: usize = 64 << 10;
/// The most tags that one event names. Of a push with more of them, a registry sends several events.
pub const MAX_TAGS: usize = 100;
/// The most events that are kept before they are taken. What comes beyond them counts as [`Change::Missed`].
const MAX_WAITING: usize = 256;

/// What has changed in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Tags lead to a manifest, or to an image index.
    Tagged {
        /// The tags, [`MAX_TAGS`] at most.
        tags: Vec<String>,
        /// The digest that they lead to.
        digest: Digest,
    },
    /// Something refers to a manifest now: an index artifact, a recording, a signature.
    Referred {
        /// The digest of that manifest.
        subject: Digest,
    },
    /// More has changed than could be told.
    Missed,
}

#[derive(Serialize, Deserialize)]
struct Tagged {
    tags: Vec<String>,
    digest: Digest,
}

#[derive(Serialize, Deserialize)]
struct Referred {
    subject: Digest,
}

impl Change {
    /// The event as bytes of the stream.
    pub fn encode(&self) -> String {
        match self {
            Self::Tagged { tags, digest } => event(
                "tagged",
                &Tagged {
                    tags: tags.clone(),
                    digest: *digest,
                },
            ),
            Self::Referred { subject } => event("referred", &Referred { subject: *subject }),
            Self::Missed => event("missed", &serde_json::json!({})),
        }
    }

    /// Reads an event; `None` of one that this version does not know.
    fn decode(name: &str, data: &str) -> Option<Self> {
        match name {
            "tagged" => {
                let Tagged { mut tags, digest } = serde_json::from_str(data).ok()?;
                tags.truncate(MAX_TAGS);
                Some(Self::Tagged { tags, digest })
            }
            "referred" => {
                let Referred { subject } = serde_json::from_str(data).ok()?;
                Some(Self::Referred { subject })
            }
            "missed" => Some(Self::Missed),
            _ => None,
        }
    }
}

fn event(name: &str, data: &impl Serialize) -> String {
    // JSON has no line breaks unless it is told to.
    let data = serde_json::to_string(data).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

/// What a registry sends when nothing has changed for a while, so that both sides and all proxies between them see that the other is there.
pub const HEARTBEAT: &str = ":\n\n";

/// Reads a stream part by part. Its memory is bounded by [`MAX_LINE`] and a fixed number of events.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The line that has begun to come.
    line: Vec<u8>,
    /// The line is too long and is passed over.
    is_too_long: bool,
    /// The last byte was a carriage return, so that a line feed belongs to it.
    ended_by_return: bool,
    name: String,
    data: String,
    /// A line of the event that is being read was too long.
    is_damaged: bool,
    changes: VecDeque<Change>,
}

impl Decoder {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let follows_return = std::mem::replace(&mut self.ended_by_return, byte == b'\r');
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => self.end_line(),
                _ if self.line.len() >= MAX_LINE => self.is_too_long = true,
                _ => self.line.push(byte),
            }
        }
    }

    /// The next change that has come.
    pub fn next_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) {
            self.is_damaged = true;
            return;
        }
        if line.is_empty() {
            self.end_event();
            return;
        }
        let Ok(line) = std::str::from_utf8(&line) else {
            self.is_damaged = true;
            return;
        };
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            // Our events have one line of data; with more of them, an event is of another kind.
            "data" if self.data.is_empty() => value.clone_into(&mut self.data),
            "data" => self.is_damaged = true,
            _ => {}
        }
    }

    fn end_event(&mut self) {
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        let change = match std::mem::take(&mut self.is_damaged) {
            true => Some(Change::Missed),
            false => Change::decode(&name, &data),
        };
        match change {
            None => {}
            Some(_) if self.changes.len() >= MAX_WAITING => {
                if let Some(last) = self.changes.back_mut() {
                    *last = Change::Missed;
                }
            }
            Some(change) => self.changes.push_back(change),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(parts: &[&[u8]]) -> Vec<Change> {
        let mut decoder = Decoder::default();
        for part in parts {
            decoder.push(part);
        }
        std::iter::from_fn(|| decoder.next_change()).collect()
    }

    fn tagged(tag: &str) -> Change {
        Change::Tagged {
            tags: vec![tag.to_owned()],
            digest: Digest::of(tag.as_bytes()),
        }
    }

    /// The form is written down, so it does not change.
    #[test]
    fn events_have_their_form() {
        let digest = Digest::of(b"");
        assert_eq!(
            tagged("v1").encode(),
            format!(
                "event: tagged\ndata: {{\"tags\":[\"v1\"],\"digest\":\"{}\"}}\n\n",
                Digest::of(b"v1")
            )
        );
        assert_eq!(
            Change::Referred { subject: digest }.encode(),
            format!("event: referred\ndata: {{\"subject\":\"{digest}\"}}\n\n")
        );
        assert_eq!(Change::Missed.encode(), "event: missed\ndata: {}\n\n");
    }

    #[test]
    fn what_is_not_known_is_passed_over() {
        let known = tagged("v1");
        let stream = format!(
            "retry: 1000\n{HEARTBEAT}id: 7\r\nevent: other\r\ndata: {{}}\r\n\r\nevent:tagged\ndata: nothing\n\n: text\n\ndata: {{}}\n\n{}",
            known.encode().replace('\n', "\r\n")
        );
        assert_eq!(read(&[stream.as_bytes()]), [known]);
    }

    #[test]
    fn a_line_that_is_too_long_is_a_change_that_was_missed() {
        let long = format!("event: tagged\ndata: {}\n\n", "x".repeat(2 * MAX_LINE));
        let after = tagged("v2");
        assert_eq!(
            read(&[long.as_bytes(), after.encode().as_bytes()]),
            [Change::Missed, after]
        );
        let mut decoder = Decoder::default();
        decoder.push(&vec![b'x'; 4 * MAX_LINE]);
        assert!(decoder.line.len() <= MAX_LINE);
    }

    #[test]
    fn events_that_nobody_takes_do_not_pile_up() {
        let one = tagged("v1").encode();
        let all = read(&[one.repeat(10 * MAX_WAITING).as_bytes()]);
        assert_eq!(all.len(), MAX_WAITING);
        assert_eq!(all.last(), Some(&Change::Missed));
    }

    proptest! {
        #[test]
        fn a_stream_is_read_however_it_is_cut(
            tags in proptest::collection::vec("[A-Za-z0-9_.-]{1,20}", 0..8),
            cuts in proptest::collection::vec(0_usize..2000, 0..10),
        ) {
            let sent: Vec<Change> = tags.iter().map(|tag| tagged(tag)).collect();
            let text: String = sent.iter().flat_map(|change| [HEARTBEAT.to_owned(), change.encode()]).collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&parts), sent);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let _ = read(&[&bytes]);
        }
    }
}
