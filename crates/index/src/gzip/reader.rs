//! Streaming through a gzip blob, block by block.

use std::io::Read;
use std::ops::Range;

use super::{GzipError, HeaderError, MAGIC, MAX_HEADER, TRAILER, header_length};
use crate::inflate::{Decoder, HISTORY, INPUT_LOW, Input, OUTPUT_SLACK, Output, References, Stop};
use crate::source::Source;

/// The place or condition at which [`GzipReader::next`] stopped.
pub(crate) enum Event {
    /// A member starts here.
    Member,
    /// A block ended and another one of the same member starts here.
    Block,
    /// The buffer is full: take it with [`GzipReader::take_output`].
    Output,
    /// The part that is needed of the history before the point that was [watched](GzipReader::watch).
    History(Vec<u8>),
    /// The last member ended. There may be output left to take.
    End,
}

enum State {
    /// Before the first member, or after one.
    Between,
    Header,
    Body,
    Trailer,
    Padding,
    End,
}

/// A gzip blob being decoded.
pub(crate) struct GzipReader<R> {
    source: Source<R>,
    decoder: Decoder,
    state: State,
    /// History, then output.
    buffer: Vec<u8>,
    position: usize,
    /// Where the output starts that was not yet taken.
    taken: usize,
    /// Where the member's own output starts in the buffer, or 0 if that is further back than the buffer.
    history: usize,
    /// Offset in the plain stream of the buffer's first byte.
    base: u64,
    /// Where in the plain stream the current member starts; `None` before the first.
    member: Option<u64>,
    checksum: crc32fast::Hasher,
    checked: usize,
    watched: Option<Watched>,
}

/// A point whose history is being watched.
struct Watched {
    /// The history before it, at most [`HISTORY`] bytes.
    history: Vec<u8>,
    references: References,
}

impl<R: Read> GzipReader<R> {
    /// A reader whose buffers hold `chunk` bytes of output.
    pub(crate) fn new(source: Source<R>, chunk: usize) -> Self {
        Self {
            source,
            decoder: Decoder::new(),
            state: State::Between,
            buffer: vec![0; Self::buffer_size(chunk)],
            position: 0,
            taken: 0,
            history: 0,
            base: 0,
            member: None,
            checksum: crc32fast::Hasher::new(),
            checked: 0,
            watched: None,
        }
    }

    /// Size of a buffer that holds `chunk` bytes of output.
    pub(crate) fn buffer_size(chunk: usize) -> usize {
        HISTORY + chunk + OUTPUT_SLACK
    }

    /// Offset in the plain stream of the next byte to be decoded.
    pub(crate) fn plain_offset(&self) -> u64 {
        self.base + self.position as u64
    }

    /// Offset in the blob, and bits of that byte that belong to what comes before (0 to 7).
    pub(crate) fn source_offset(&self) -> (u64, u8) {
        match self.decoder.unread_bits() {
            0 => (self.source.offset(), 0),
            bits => (self.source.offset() - 1, (8 - bits) as u8),
        }
    }

    /// Starts to watch what later output needs of the history before the current point (a [`Event::Block`]).
    /// An [`Event::History`] follows after 32 KiB of output or at the member's end; until then, watch no other.
    pub(crate) fn watch(&mut self) {
        let start = self.history.max(self.position.saturating_sub(HISTORY));
        let history = self.buffer[start..self.position].to_vec();
        self.watched = Some(Watched {
            history,
            references: References::new(self.position),
        });
    }

    /// Gives away the buffer and the range of it that is new output, and goes on with `replacement`, which must
    /// have the same size.
    pub(crate) fn take_output(&mut self, mut replacement: Vec<u8>) -> (Vec<u8>, Range<usize>) {
        self.update_checksum();
        let keep = self.position.min(HISTORY);
        let moved = self.position - keep;
        replacement.resize(self.buffer.len(), 0);
        replacement[..keep].copy_from_slice(&self.buffer[moved..self.position]);
        let output = self.taken..self.position;
        self.base += moved as u64;
        self.history = self.history.saturating_sub(moved);
        if let Some(watched) = &mut self.watched {
            watched.references.origin = watched.references.origin.saturating_sub(moved);
        }
        (self.position, self.taken, self.checked) = (keep, keep, keep);
        (std::mem::replace(&mut self.buffer, replacement), output)
    }

    /// Goes on to the next event.
    pub(crate) fn next(&mut self) -> Result<Event, GzipError> {
        loop {
            if self.position >= self.output_end() {
                return Ok(Event::Output);
            }
            match self.state {
                State::Between => {
                    if self.find_member()? {
                        return Ok(Event::Member);
                    }
                }
                State::Header => self.read_header()?,
                State::Body => {
                    if let Some(event) = self.decode()? {
                        return Ok(event);
                    }
                }
                State::Trailer => self.check_trailer()?,
                State::Padding => self.skip_padding()?,
                State::End => return Ok(Event::End),
            }
        }
    }

    fn output_end(&self) -> usize {
        self.buffer.len() - OUTPUT_SLACK
    }

    /// Looks for a member; true if one starts here.
    fn find_member(&mut self) -> Result<bool, GzipError> {
        self.source.fill(MAGIC.len())?;
        let at = self.source.offset();
        match (self.source.available(), self.member) {
            ([], Some(_)) => self.state = State::End,
            ([0, ..], Some(_)) => self.state = State::Padding,
            (bytes, previous) => {
                if let Err(HeaderError::Magic) = header_length(bytes) {
                    return Err(
                        previous.map_or(GzipError::Magic { at }, |_| GzipError::TrailingGarbage { at })
                    );
                }
                self.state = State::Header;
                self.member = Some(self.plain_offset());
                (self.history, self.checked) = (self.position, self.position);
                self.checksum = crc32fast::Hasher::new();
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read_header(&mut self) -> Result<(), GzipError> {
        let at = self.source.offset();
        let mut low = 64;
        loop {
            self.source.fill(low)?;
            match header_length(self.source.available()) {
                Ok(Some(length)) => {
                    self.source.consume(length);
                    self.decoder.reset();
                    self.state = State::Body;
                    return Ok(());
                }
                Ok(None) if self.source.is_last() => {
                    return Err(GzipError::Truncated {
                        at: at + self.source.available().len() as u64,
                    });
                }
                Ok(None) => low = (low * 4).min(MAX_HEADER),
                Err(HeaderError::Magic) => return Err(GzipError::Magic { at }),
                Err(HeaderError::Bad(problem)) => return Err(GzipError::Header { at, problem }),
            }
        }
    }

    fn decode(&mut self) -> Result<Option<Event>, GzipError> {
        self.source.fill(INPUT_LOW)?;
        let mut limit = self.output_end();
        if let Some(watched) = &self.watched {
            limit = limit.min(watched.references.origin + HISTORY);
        }
        let mut input = Input {
            bytes: self.source.available(),
            position: 0,
            last: self.source.is_last(),
        };
        let mut output = Output {
            bytes: &mut self.buffer,
            position: self.position,
            history: self.history,
            limit,
            references: self.watched.as_mut().map(|watched| &mut watched.references),
        };
        let result = self.decoder.run(&mut input, &mut output);
        let used = input.position;
        self.position = output.position;
        let at = self.source.offset() + used as u64;
        self.source.consume(used);
        match result.map_err(|error| GzipError::Inflate { at, error })? {
            // Less than `INPUT_LOW` is left, so the next round reads more or finds the end.
            Stop::Input => {}
            Stop::Block => return Ok(Some(Event::Block)),
            Stop::Output => return Ok(self.finish_watching(false)),
            Stop::End => {
                self.state = State::Trailer;
                return Ok(self.finish_watching(true));
            }
        }
        Ok(None)
    }

    /// The watched history, once nothing more can refer to it.
    fn finish_watching(&mut self, ended: bool) -> Option<Event> {
        let watched = self
            .watched
            .take_if(|watched| ended || self.position >= watched.references.origin + HISTORY)?;
        let (mut history, used) = (watched.history, watched.references.used);
        let used = &used[HISTORY - history.len()..];
        let first = used.iter().position(|&used| used).unwrap_or(used.len());
        for (byte, &used) in history.iter_mut().zip(used) {
            if !used {
                *byte = 0;
            }
        }
        Some(Event::History(history.split_off(first)))
    }

    fn update_checksum(&mut self) {
        self.checksum.update(&self.buffer[self.checked..self.position]);
        self.checked = self.position;
    }

    fn check_trailer(&mut self) -> Result<(), GzipError> {
        self.update_checksum();
        self.source.fill(TRAILER)?;
        let at = self.source.offset();
        let Some(&[a, b, c, d, e, f, g, h]) = self.source.available().first_chunk() else {
            return Err(GzipError::Truncated {
                at: at + self.source.available().len() as u64,
            });
        };
        let (crc, size) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let found = std::mem::take(&mut self.checksum).finalize();
        let member_size = (self.plain_offset() - self.member.unwrap_or(0)) as u32;
        if found != crc {
            return Err(GzipError::Trailer {
                at,
                what: "CRC-32",
                expected: crc,
                found,
            });
        }
        if member_size != size {
            return Err(GzipError::Trailer {
                at,
                what: "length",
                expected: size,
                found: member_size,
            });
        }
        self.source.consume(TRAILER);
        self.state = State::Between;
        Ok(())
    }

    fn skip_padding(&mut self) -> Result<(), GzipError> {
        self.source.fill(1)?;
        let available = self.source.available();
        if available.is_empty() {
            self.state = State::End;
            return Ok(());
        }
        if let Some(garbage) = available.iter().position(|&byte| byte != 0) {
            return Err(GzipError::TrailingGarbage {
                at: self.source.offset() + garbage as u64,
            });
        }
        let length = available.len();
        self.source.consume(length);
        Ok(())
    }
}
