//! The state machine: which part of the archive the next byte belongs to.

mod member;
mod state;

pub use state::TarParser;

use super::error::{HeaderProblem, TarError};
use super::header::{BLOCK, Header, kind};
use super::limits::TarLimits;
use super::number::text;
use super::pax::PaxRecords;
use super::{TarSink, TarSummary};
use state::{Pending, State, pad, padding};

impl TarParser {
    /// A parser at the start of a stream.
    pub fn new(limits: TarLimits) -> Self {
        Self {
            limits,
            state: State::Header,
            block: [0; BLOCK],
            filled: 0,
            position: 0,
            header_at: 0,
            end_block: false,
            pending: Pending::default(),
            tree: 0,
            pieces: 0,
            summary: TarSummary::default(),
        }
    }

    /// Takes the next bytes of the stream.
    ///
    /// # Errors
    /// The defect of the archive; after that the parser refuses more.
    pub fn push(&mut self, mut bytes: &[u8], sink: &mut impl TarSink) -> Result<(), TarError> {
        while !bytes.is_empty() {
            match self.step(bytes, sink) {
                Ok(used) => {
                    self.position += used as u64;
                    bytes = bytes.get(used..).unwrap_or_default();
                }
                Err(error) => {
                    self.state = State::Failed;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// [`TarError::Truncated`] if it ends inside an entry. An archive without end blocks is complete, and so is one
    /// without the padding after its last entry.
    pub fn finish(self, _sink: &mut impl TarSink) -> Result<TarSummary, TarError> {
        let inside = match self.state {
            State::Header if self.filled > 0 => "a header",
            State::Special { .. } => "a PAX header or long name",
            State::OldSparse { .. } | State::MapText { .. } => "a sparse map",
            State::Contents { .. } | State::Skip { .. } => "the contents of an entry",
            State::Failed => return Err(TarError::Failed),
            State::Header | State::Padding { .. } | State::Trailer => {
                return Ok(TarSummary {
                    plain_size: self.position,
                    ..self.summary
                });
            }
        };
        let at = self.position;
        Err(TarError::Truncated { at, inside })
    }

    /// Handles the next part of `bytes`, which are not empty; how many were used, at least one.
    fn step(&mut self, bytes: &[u8], sink: &mut impl TarSink) -> Result<usize, TarError> {
        match &mut self.state {
            State::Header | State::OldSparse { .. } | State::MapText { .. } => self.collect(bytes, sink),
            State::Special { body, left, .. } => {
                let part = up_to(bytes, *left);
                sink.frame(part);
                body.extend_from_slice(part);
                *left -= part.len() as u64;
                if *left == 0 {
                    self.end_special()?;
                }
                Ok(part.len())
            }
            State::Contents { run, next, padding } => {
                let part = up_to(bytes, run.length);
                sink.content(run.data_offset, part)?;
                self.summary.content_size += part.len() as u64;
                run.data_offset += part.len() as u64;
                run.length -= part.len() as u64;
                if run.length == 0 {
                    match next.next() {
                        Some(following) => *run = following,
                        None => self.state = pad(*padding),
                    }
                }
                Ok(part.len())
            }
            State::Skip { left, padding } => {
                let part = up_to(bytes, *left);
                sink.frame(part);
                *left -= part.len() as u64;
                if *left == 0 {
                    self.state = pad(*padding);
                }
                Ok(part.len())
            }
            State::Padding { left } => {
                let part = up_to(bytes, *left);
                sink.frame(part);
                *left -= part.len() as u64;
                if *left == 0 {
                    self.state = State::Header;
                }
                Ok(part.len())
            }
            State::Trailer => {
                sink.frame(bytes);
                Ok(bytes.len())
            }
            State::Failed => Err(TarError::Failed),
        }
    }

    /// Collects a block and acts on it when it is whole.
    fn collect(&mut self, bytes: &[u8], sink: &mut impl TarSink) -> Result<usize, TarError> {
        if self.filled == 0 && matches!(self.state, State::Header) {
            self.header_at = self.position;
        }
        let room = self.block.get_mut(self.filled..).unwrap_or_default();
        let part = up_to(bytes, room.len() as u64);
        for (to, from) in room.iter_mut().zip(part) {
            *to = *from;
        }
        sink.frame(part);
        self.filled += part.len();
        if self.filled == BLOCK {
            self.filled = 0;
            match std::mem::replace(&mut self.state, State::Failed) {
                State::OldSparse { member, map, blocks } => {
                    self.old_sparse_block(member, map, blocks, sink)?
                }
                State::MapText { member, map } => self.map_text_block(member, map, sink)?,
                _ => self.header_block(sink)?,
            }
        }
        Ok(part.len())
    }

    fn header_block(&mut self, sink: &mut impl TarSink) -> Result<(), TarError> {
        if self.block.iter().all(|&byte| byte == 0) {
            self.state = if self.end_block {
                State::Trailer
            } else {
                State::Header
            };
            self.end_block = true;
            return Ok(());
        }
        if self.end_block {
            return Err(self.bad_header(HeaderProblem::AfterEndBlock));
        }
        let header = Header::parse(&self.block).map_err(|problem| self.bad_header(problem))?;
        match header.kind {
            kind::PAX | kind::PAX_GLOBAL | kind::LONG_NAME | kind::LONG_LINK => self.begin_special(&header),
            _ => self.begin_member(header, sink),
        }
    }

    fn begin_special(&mut self, header: &Header) -> Result<(), TarError> {
        let size = u64::try_from(header.size).map_err(|_| self.bad_header(HeaderProblem::NegativeSize))?;
        if size > self.limits.special {
            return Err(self.over("a PAX header or long name", self.limits.special));
        }
        self.state = State::Special {
            kind: header.kind,
            body: Vec::new(),
            left: size,
            padding: padding(size),
        };
        if size == 0 {
            self.end_special()?;
        }
        Ok(())
    }

    fn end_special(&mut self) -> Result<(), TarError> {
        let State::Special {
            kind, body, padding, ..
        } = std::mem::replace(&mut self.state, State::Failed)
        else {
            return Err(TarError::Failed);
        };
        match kind {
            kind::LONG_NAME => self.pending.long_name = text(&body).to_vec(),
            kind::LONG_LINK => self.pending.long_link = text(&body).to_vec(),
            _ => {
                let records = PaxRecords::parse(&body).map_err(|problem| self.bad_header(problem))?;
                if kind == kind::PAX {
                    self.pending.records = records;
                } else {
                    // Go's reader returns the global header as an entry, so what was pending is gone.
                    self.pending = Pending::default();
                }
            }
        }
        self.state = pad(padding);
        Ok(())
    }

    fn bad_header(&self, problem: HeaderProblem) -> TarError {
        let at = self.header_at;
        TarError::Header { at, problem }
    }

    fn over(&self, what: &'static str, limit: u64) -> TarError {
        let at = self.header_at;
        TarError::Limit { at, what, limit }
    }
}

/// The first `limit` of `bytes`, or all.
fn up_to(bytes: &[u8], limit: u64) -> &[u8] {
    let length = usize::try_from(limit).unwrap_or(usize::MAX);
    bytes.get(..length).unwrap_or(bytes)
}
