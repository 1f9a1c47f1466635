//! From a complete header to an announced entry: what came before the header is applied, the sparse map is read,
//! and a file gets its place in the data space.

use xebec_format::layer::{Entry, EntryKind, Metadata};
use xebec_format::path::LayerPath;

use super::state::{Member, Pending, State, TarParser, pad, padding};
use crate::tar::TarSink;
use crate::tar::entry::{Announced, announce, memory_of};
use crate::tar::error::{EntryProblem, SparseProblem, TarError};
use crate::tar::header::{BLOCK, Dialect, Header, kind};
use crate::tar::number::decimal;
use crate::tar::sparse::{self, MapText, PaxSparse, RawMap, Run};

impl TarParser {
    /// Applies what was pending to a header, and finds out where its contents start.
    pub(super) fn begin_member(
        &mut self,
        mut header: Header,
        sink: &mut impl TarSink,
    ) -> Result<(), TarError> {
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

    pub(super) fn old_sparse_block(
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

    pub(super) fn map_text_block(
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

    fn refuse(&self, header: &Header, problem: EntryProblem) -> TarError {
        let name = header.name.get(..256).unwrap_or(&header.name);
        TarError::Entry {
            at: self.header_at,
            name: String::from_utf8_lossy(name).into_owned(),
            problem,
        }
    }
}
