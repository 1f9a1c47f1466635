//! The state machine: which part of the archive the next byte belongs to.

mod member;

use self::member::Member;
use super::error::{HeaderProblem, TarError};
use super::header::{BLOCK, Block, Header, kind};
use super::limits::TarLimits;
use super::number::text;
use super::pax::PaxRecords;
use super::sparse::{MapText, RawMap, Run};
use super::{TarSink, TarSummary};

/// Parses a tar stream that is pushed in slices of any size; see the [module](super).
#[derive(Debug)]
pub struct TarParser {
    limits: TarLimits,
    state: State,
    /// The block being collected, and how much of it is there.
    block: Block,
    filled: usize,
    /// Offset of the next byte in the stream.
    position: u64,
    /// Offset of the current header block.
    header_at: u64,
    /// One block of zeros was seen where a header could be.
    end_block: bool,
    pending: Pending,
    tree: u64,
    pieces: u64,
    summary: TarSummary,
}

/// What special entries say about the next one.
#[derive(Debug, Default)]
struct Pending {
    records: PaxRecords,
    long_name: Vec<u8>,
    long_link: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// Collecting a header block.
    Header,
    /// Collecting the body of a PAX header or a GNU long name or link.
    Special {
        kind: u8,
        body: Vec<u8>,
        left: u64,
        padding: u64,
    },
    /// Collecting extension blocks of an old GNU sparse map.
    OldSparse {
        member: Box<Member>,
        map: RawMap,
        blocks: u64,
    },
    /// Collecting the map of a PAX 1.0 sparse file.
    MapText { member: Box<Member>, map: MapText },
    /// Contents of a file; `run` is what is left of the current run.
    Contents {
        run: Run,
        next: std::vec::IntoIter<Run>,
        padding: u64,
    },
    /// Contents of something that is not a file of the image.
    Skip { left: u64, padding: u64 },
    /// Up to the next block.
    Padding { left: u64 },
    /// After the end blocks.
    Trailer,
    /// After an error.
    Failed,
}

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
    /// What is wrong with the archive; after that the parser refuses more.
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

/// Bytes from `size` to the next block boundary.
fn padding(size: u64) -> u64 {
    size.wrapping_neg() % BLOCK as u64
}

fn pad(left: u64) -> State {
    match left {
        0 => State::Header,
        left => State::Padding { left },
    }
}
