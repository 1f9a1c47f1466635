//! The state machine: which part of the archive the next byte belongs to.

use xebec_format::layer::{Entry, EntryKind, Metadata};
use xebec_format::path::LayerPath;

use super::entry::{Announced, announce, memory_of};
use super::error::{EntryProblem, HeaderProblem, SparseProblem, TarError};
use super::header::{BLOCK, Block, Dialect, Header, kind};
use super::limits::TarLimits;
use super::number::{decimal, text};
use super::pax::PaxRecords;
use super::sparse::{self, MapText, PaxSparse, RawMap, Run};
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

/// A header with everything that came before it applied.
#[derive(Debug)]
struct Member {
    header: Header,
    records: PaxRecords,
    /// Bytes of contents that the archive stores, a sparse map in front of them included.
    stored: u64,
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

    /// Applies what was pending to a header, and finds out where its contents start.
    fn begin_member(&mut self, mut header: Header, sink: &mut impl TarSink) -> Result<(), TarError> {
        let Pending {
            records,
            long_name,
            long_link,
        } = std::mem::take(&mut self.pending);
        if let Err(problem) = records.apply(&mut header) {
            return Err(self.refuse(&header, problem));
        }
        if !long_name.is_empty() {
            header.name = long_name;
        }
        if !long_link.is_empty() {
            header.link = long_link;
        }
        if header.kind == kind::OLD_FILE {
            let directory = header.name.ends_with(b"/");
            header.kind = if directory { kind::DIRECTORY } else { kind::FILE };
        }
        let stored = match header.is_header_only() {
            true => 0,
            false => {
                u64::try_from(header.size).map_err(|_| self.refuse(&header, EntryProblem::NegativeSize))?
            }
        };
        let member = Box::new(Member {
            header,
            records,
            stored,
        });
        if member.header.kind == kind::SPARSE {
            return self.begin_old_sparse(member, sink);
        }
        match sparse::pax_format(&member.records) {
            Some(format) => self.begin_pax_sparse(member, format, sink),
            None => self.begin_contents(&member, None, 0, sink),
        }
    }

    fn begin_old_sparse(&mut self, mut member: Box<Member>, sink: &mut impl TarSink) -> Result<(), TarError> {
        if member.header.dialect != Dialect::Gnu {
            return Err(self.refuse(&member.header, SparseProblem::NotGnu.into()));
        }
        member.header.size = match sparse::old_real_size(&self.block) {
            Some(size) => size,
            None => return Err(self.refuse(&member.header, SparseProblem::Malformed.into())),
        };
        let mut map = RawMap::new();
        match sparse::old_map_in_header(&self.block, &mut map) {
            Ok(true) => {
                self.state = State::OldSparse {
                    member,
                    map,
                    blocks: 0,
                };
                Ok(())
            }
            Ok(false) => self.begin_contents(&member, Some(&map), 0, sink),
            Err(problem) => Err(self.refuse(&member.header, problem.into())),
        }
    }

    fn old_sparse_block(
        &mut self,
        member: Box<Member>,
        mut map: RawMap,
        blocks: u64,
        sink: &mut impl TarSink,
    ) -> Result<(), TarError> {
        let blocks = blocks + 1;
        if blocks * BLOCK as u64 > self.limits.special || map.len() as u64 > self.limits.sparse_segments {
            return Err(self.refuse(&member.header, SparseProblem::TooLong.into()));
        }
        match sparse::old_map_in_extension(&self.block, &mut map) {
            Ok(true) => {
                self.state = State::OldSparse { member, map, blocks };
                Ok(())
            }
            Ok(false) => self.begin_contents(&member, Some(&map), 0, sink),
            Err(problem) => Err(self.refuse(&member.header, problem.into())),
        }
    }

    fn begin_pax_sparse(
        &mut self,
        mut member: Box<Member>,
        format: PaxSparse,
        sink: &mut impl TarSink,
    ) -> Result<(), TarError> {
        let Member { header, records, .. } = &mut *member;
        if let Some(name) = records.get(b"GNU.sparse.name") {
            header.name = name.to_vec();
        }
        let size = records
            .get(b"GNU.sparse.size")
            .or(records.get(b"GNU.sparse.realsize"));
        if let Some(size) = size {
            header.size = match decimal(size) {
                Some(size) => size,
                None => return Err(self.refuse(&member.header, EntryProblem::Number("GNU.sparse.size"))),
            };
        }
        if member.header.is_header_only() {
            return Err(self.refuse(&member.header, SparseProblem::NotAFile.into()));
        }
        match format {
            PaxSparse::InRecords => {
                match sparse::map_in_records(&member.records, self.limits.sparse_segments) {
                    Ok(map) => self.begin_contents(&member, Some(&map), 0, sink),
                    Err(problem) => Err(self.refuse(&member.header, problem.into())),
                }
            }
            PaxSparse::InContents if member.stored < BLOCK as u64 => {
                Err(self.refuse(&member.header, SparseProblem::Malformed.into()))
            }
            PaxSparse::InContents => {
                let map = MapText::default();
                self.state = State::MapText { member, map };
                Ok(())
            }
        }
    }

    fn map_text_block(
        &mut self,
        member: Box<Member>,
        mut map: MapText,
        sink: &mut impl TarSink,
    ) -> Result<(), TarError> {
        let segments = match map.push(&self.block, self.limits.sparse_segments) {
            Ok(segments) => segments,
            Err(problem) => return Err(self.refuse(&member.header, problem.into())),
        };
        if let Some(segments) = segments {
            return self.begin_contents(&member, Some(&segments), map.len(), sink);
        }
        let next = map.len() + BLOCK as u64;
        if next > self.limits.special {
            return Err(self.refuse(&member.header, SparseProblem::TooLong.into()));
        }
        if next > member.stored {
            return Err(self.refuse(&member.header, SparseProblem::Malformed.into()));
        }
        self.state = State::MapText { member, map };
        Ok(())
    }

    /// Announces the entry. `map_size` bytes of what is stored were its sparse map.
    fn begin_contents(
        &mut self,
        member: &Member,
        map: Option<&RawMap>,
        map_size: u64,
        sink: &mut impl TarSink,
    ) -> Result<(), TarError> {
        let announced = announce(&member.header, member.records.xattrs(), self.limits.xattrs);
        let announced = announced.map_err(|problem| self.refuse(&member.header, problem))?;
        let left = member.stored.saturating_sub(map_size);
        let padding = padding(member.stored);
        match announced {
            Announced::File(path, metadata) => {
                let runs = self.place_file(member, map, left, path, metadata, sink)?;
                let mut next = runs.into_iter();
                self.state = match next.next() {
                    Some(run) => State::Contents { run, next, padding },
                    None => pad(padding),
                };
                return Ok(());
            }
            Announced::Entry(path, metadata, kind) => self.emit(Entry { path, metadata, kind }, sink)?,
            Announced::Nothing => {}
        }
        self.state = match left {
            0 => pad(padding),
            left => State::Skip { left, padding },
        };
        Ok(())
    }

    /// Gives a file its place in the data space and announces it.
    fn place_file(
        &mut self,
        member: &Member,
        map: Option<&RawMap>,
        stored: u64,
        path: LayerPath,
        metadata: Metadata,
        sink: &mut impl TarSink,
    ) -> Result<Vec<Run>, TarError> {
        let size = u64::try_from(member.header.size);
        let size = size.map_err(|_| self.refuse(&member.header, EntryProblem::NegativeSize))?;
        let placement = sparse::place(map, size, stored, self.summary.data_size);
        let placement = placement.map_err(|problem| self.refuse(&member.header, problem.into()))?;
        let fits = placement.filter(|placement| placement.data_end <= self.limits.data);
        let placement = fits.ok_or_else(|| self.over("the data space", self.limits.data))?;
        self.pieces += placement.runs.len() as u64;
        if self.pieces > self.limits.pieces {
            return Err(self.over("the number of pieces of sparse files", self.limits.pieces));
        }
        self.summary.data_size = placement.data_end;
        let kind = EntryKind::File {
            size,
            extents: placement.extents,
        };
        self.emit(Entry { path, metadata, kind }, sink)?;
        Ok(placement.runs)
    }

    /// Counts an entry and hands it on.
    fn emit(&mut self, entry: Entry, sink: &mut impl TarSink) -> Result<(), TarError> {
        if self.summary.entries >= self.limits.entries {
            return Err(self.over("the number of entries", self.limits.entries));
        }
        self.summary.entries += 1;
        self.tree = self.tree.saturating_add(memory_of(&entry));
        if self.tree > self.limits.tree {
            return Err(self.over("the tree", self.limits.tree));
        }
        sink.entry(entry);
        Ok(())
    }

    fn bad_header(&self, problem: HeaderProblem) -> TarError {
        let at = self.header_at;
        TarError::Header { at, problem }
    }

    fn refuse(&self, header: &Header, problem: EntryProblem) -> TarError {
        let name = header.name.get(..256).unwrap_or(&header.name);
        TarError::Entry {
            at: self.header_at,
            name: String::from_utf8_lossy(name).into_owned(),
            problem,
        }
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
