//! Checks that a [`LayerIndex`] keeps what its types promise, so that everybody after it may rely on that: the
//! merge, the EROFS writer and the fill service do no checks of their own on offsets.

use std::ops::Range;

use super::limits::{
    MAX_DATA, MAX_ENTRIES, MAX_EXTENTS, MAX_FILE, MAX_PATH_BYTES, MAX_PIECES, MAX_SPAN_DATA, MAX_SPAN_PLAIN,
    MAX_SPAN_SOURCE, MAX_SPANS, MAX_SYMLINK, MAX_WINDOW, MAX_XATTR_BYTES, MAX_XATTR_NAME, MAX_XATTR_SET,
    MAX_XATTR_VALUE,
};
use super::{Codec, Entry, EntryKind, Extent, LayerIndex, Metadata, Piece, Section, Span, SpanTable, Xattr};
use crate::path::LayerPath;
use crate::{PAGE_SIZE, round_up_to_page};

/// Bytes of one content digest in the contents section.
const CONTENT_DIGEST: u64 = 32;

/// A contradiction in a layer index.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidIndex {
    /// Something of an entry.
    #[error("in the layer index, {path} {problem}")]
    Entry {
        /// Which entry.
        path: LayerPath,
        /// The defect, as the end of the message.
        problem: &'static str,
    },
    /// Something of a span.
    #[error("span {number} of the layer index {problem}")]
    Span {
        /// Which, counted from 0.
        number: usize,
        /// The defect, as the end of the message.
        problem: &'static str,
    },
    /// Something of a piece.
    #[error("piece {number} of the layer index {problem}")]
    Piece {
        /// Which, counted from 0.
        number: usize,
        /// The defect, as the end of the message.
        problem: &'static str,
    },
    /// Something of the layer as a whole.
    #[error("the layer index {0}")]
    Layer(&'static str),
}

impl LayerIndex {
    /// Checks every promise of the types: lengths within their limits, extents at page boundaries inside the data
    /// space, spans and pieces ascending, in bounds and covering every page of every extent, and so on.
    ///
    /// [`LayerIndex::decode`] does this; code that builds an index does it before publishing.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), InvalidIndex> {
        let table = TableView {
            codec: self.codec,
            layer_size: self.layer_size,
            plain_size: self.plain_size,
            data_size: self.data_size,
            pieces: &self.pieces,
            spans: &self.spans,
            windows: self.windows.as_ref(),
        };
        table.check()?;
        self.check_entries()?;
        self.check_contents()
    }

    fn check_entries(&self) -> Result<(), InvalidIndex> {
        let (mut paths, mut extent_count, mut xattrs) = (0u64, 0u64, 0u64);
        let mut coverage = Coverage {
            spans: &self.spans,
            at: 0,
        };
        for entry in &self.entries {
            paths += entry.path.as_bytes().len() as u64;
            xattrs += xattr_bytes(&entry.metadata.xattrs);
            let bad = |problem| InvalidIndex::Entry {
                path: entry.path.clone(),
                problem,
            };
            metadata(&entry.metadata).map_err(bad)?;
            kind(entry).map_err(bad)?;
            if let EntryKind::File { size, extents } = &entry.kind {
                extent_count += extents.len() as u64;
                self.check_extents(*size, extents, &mut coverage).map_err(bad)?;
            }
        }
        ensure(self.entries.len() as u64 <= MAX_ENTRIES, "has too many entries")?;
        ensure(extent_count <= MAX_EXTENTS, "has too many extents")?;
        ensure(paths <= MAX_PATH_BYTES, "has too many bytes of paths")?;
        ensure(
            xattrs <= MAX_XATTR_BYTES,
            "has too many bytes of extended attributes",
        )
    }

    fn check_extents(
        &self,
        size: u64,
        extents: &[Extent],
        coverage: &mut Coverage<'_>,
    ) -> Result<(), &'static str> {
        if size > MAX_FILE {
            return Err("is larger than a file can be");
        }
        let mut last_end = 0;
        for extent in extents {
            let Extent {
                file_offset,
                data_offset,
                length,
            } = *extent;
            if file_offset % PAGE_SIZE != 0 || data_offset % PAGE_SIZE != 0 {
                return Err("has an extent that does not start at a page boundary");
            }
            let end = file_offset.checked_add(length).filter(|end| *end <= size);
            let Some(end) = end.filter(|_| length > 0) else {
                return Err("has an extent that is empty or reaches over its end");
            };
            if length % PAGE_SIZE != 0 && end != size {
                return Err("has an extent that ends inside a page before its end");
            }
            if file_offset < last_end {
                return Err("has extents that overlap or do not ascend");
            }
            let data_end = data_offset.checked_add(length).and_then(round_up_to_page);
            let Some(data_end) = data_end.filter(|end| *end <= self.data_size) else {
                return Err("has an extent outside the layer's data space");
            };
            if !coverage.covers(data_offset..data_end) {
                return Err("has contents that no span gives");
            }
            last_end = end;
        }
        Ok(())
    }

    fn check_contents(&self) -> Result<(), InvalidIndex> {
        let Some(contents) = &self.contents else {
            return Ok(());
        };
        let with_contents = |entry: &&Entry| matches!(entry.kind, EntryKind::File { size: 1.., .. });
        let files = self.entries.iter().filter(with_contents).count() as u64;
        ensure(
            contents.size == files * CONTENT_DIGEST,
            "has a contents section that is not 32 bytes for each file",
        )
    }
}

fn ensure(holds: bool, problem: &'static str) -> Result<(), InvalidIndex> {
    if holds {
        Ok(())
    } else {
        Err(InvalidIndex::Layer(problem))
    }
}

/// The bytes that a set of extended attributes counts for, above what its vectors take.
pub(super) fn xattr_bytes(set: &[Xattr]) -> u64 {
    // 64: the two vectors of an attribute and what allocating them costs, so that many empty ones count too.
    set.iter()
        .map(|x| (x.name.len() + x.value.len() + 64) as u64)
        .sum()
}

fn metadata(metadata: &Metadata) -> Result<(), &'static str> {
    if metadata.mode > 0o7777 {
        return Err("has mode bits over 7777");
    }
    if metadata.mtime_nanoseconds > 999_999_999 {
        return Err("has a time with a billion nanoseconds or more");
    }
    let mut last: &[u8] = b"";
    let mut total = 0;
    for xattr in &metadata.xattrs {
        total += xattr.name.len() + xattr.value.len();
        if xattr.name.is_empty() || xattr.name.len() > MAX_XATTR_NAME || xattr.name.contains(&0) {
            return Err("has an extended attribute with a bad name");
        }
        if xattr.value.len() > MAX_XATTR_VALUE || total > MAX_XATTR_SET {
            return Err("has extended attributes that are too long");
        }
        if xattr.name.as_slice() <= last {
            return Err("has extended attributes that do not ascend by name");
        }
        last = &xattr.name;
    }
    Ok(())
}

fn kind(entry: &Entry) -> Result<(), &'static str> {
    match &entry.kind {
        EntryKind::Symlink { target }
            if target.is_empty() || target.len() > MAX_SYMLINK || target.contains(&0) =>
        {
            return Err("is a symbolic link with an empty, too long or NUL-containing target");
        }
        EntryKind::Whiteout | EntryKind::Opaque if entry.metadata != Metadata::default() => {
            return Err("is a whiteout with metadata");
        }
        EntryKind::Whiteout if entry.path.is_root() => return Err("is a whiteout of the root"),
        _ => {}
    }
    match &entry.kind {
        EntryKind::Directory | EntryKind::Opaque => Ok(()),
        _ if entry.path.is_root() => Err("is the root but no directory"),
        _ => Ok(()),
    }
}

/// Whether ranges of the data space are covered by spans; remembers where the last one was, as files ascend.
struct Coverage<'a> {
    spans: &'a [Span],
    at: usize,
}

impl Coverage<'_> {
    /// Whether every page of `data` has a byte in some span. A page need not be covered to its last byte: what no
    /// contents reach is zero.
    fn covers(&mut self, data: Range<u64>) -> bool {
        let near = self.spans.get(self.at).is_some_and(|span| {
            span.data.start <= data.start && round_up_to_page(span.data.end).is_some_and(|e| e > data.start)
        });
        if !near {
            self.at = self
                .spans
                .partition_point(|span| round_up_to_page(span.data.end).is_none_or(|end| end <= data.start));
        }
        let mut covered = data.start;
        let mut at = self.at;
        while covered < data.end {
            let Some(span) = self.spans.get(at) else {
                return false;
            };
            // The page at `covered` must be touched; the span then covers up to the end of its last page.
            if span.data.start >= covered + PAGE_SIZE {
                return false;
            }
            covered = covered.max(round_up_to_page(span.data.end).unwrap_or(u64::MAX));
            self.at = at;
            at += 1;
        }
        true
    }
}

/// Checks the part of an index that filling relies on.
pub(super) fn spans(table: &SpanTable) -> Result<(), InvalidIndex> {
    TableView {
        codec: table.codec,
        layer_size: table.layer_size,
        plain_size: table.plain_size,
        data_size: table.data_size,
        pieces: &table.pieces,
        spans: &table.spans,
        windows: table.windows.as_ref(),
    }
    .check()
}

/// The fields that [`LayerIndex`] and [`SpanTable`] have in common, borrowed.
struct TableView<'a> {
    codec: Codec,
    layer_size: u64,
    plain_size: u64,
    data_size: u64,
    pieces: &'a [Piece],
    spans: &'a [Span],
    windows: Option<&'a Section>,
}

impl TableView<'_> {
    fn check(&self) -> Result<(), InvalidIndex> {
        ensure(
            self.data_size.is_multiple_of(PAGE_SIZE) && self.data_size <= MAX_DATA,
            "has a data space that is too large or ends inside a page",
        )?;
        ensure(
            self.layer_size <= MAX_FILE,
            "names a blob larger than a file can be",
        )?;
        ensure(
            self.plain_size <= MAX_FILE,
            "has a plain stream larger than a file can be",
        )?;
        ensure(self.pieces.len() as u64 <= MAX_PIECES, "has too many pieces")?;
        ensure(self.spans.len() as u64 <= MAX_SPANS, "has too many spans")?;
        if !self.codec.has_plain_stream() {
            ensure(
                self.pieces.is_empty() && self.plain_size == 0,
                "has pieces or a plain size, but comes from a table of contents",
            )?;
        }
        ensure(
            self.windows.is_none() || self.codec == Codec::Gzip,
            "has windows, which only gzip needs",
        )?;
        self.check_pieces()?;
        self.check_spans()?;
        self.check_plain()
    }

    fn check_pieces(&self) -> Result<(), InvalidIndex> {
        let (mut plain, mut data) = (0, 0);
        for (number, piece) in self.pieces.iter().enumerate() {
            let bad = |problem| InvalidIndex::Piece { number, problem };
            let plain_end = piece.plain_offset.checked_add(piece.length);
            let data_end = piece.data_offset.checked_add(piece.length);
            let (Some(plain_end), Some(data_end), 1..) = (plain_end, data_end, piece.length) else {
                return Err(bad("is empty or longer than 64 bits can say"));
            };
            if plain_end > self.plain_size || data_end > self.data_size {
                return Err(bad("reaches over the end of the plain stream or the data space"));
            }
            if piece.plain_offset < plain || piece.data_offset < data {
                return Err(bad("overlaps the one before it"));
            }
            (plain, data) = (plain_end, data_end);
        }
        Ok(())
    }

    fn check_spans(&self) -> Result<(), InvalidIndex> {
        let mut data = 0;
        for (number, span) in self.spans.iter().enumerate() {
            let bad = |problem| Err(InvalidIndex::Span { number, problem });
            if span.source.start >= span.source.end || span.source.end > self.layer_size {
                return bad("has an empty source range or one outside the blob");
            }
            if span.source.end - span.source.start > MAX_SPAN_SOURCE {
                return bad("needs more source bytes than a span may");
            }
            if span.data.start >= span.data.end || span.data.end > self.data_size {
                return bad("gives an empty range or one outside the data space");
            }
            if span.data.start < data {
                return bad("overlaps the one before it in the data space");
            }
            if span.data.end - span.data.start > MAX_SPAN_DATA {
                return bad("gives a longer range of the data space than a span may");
            }
            if span.plain.start >= span.plain.end || span.plain.end - span.plain.start > MAX_SPAN_PLAIN {
                return bad("yields no plain bytes or more than a span may");
            }
            if span.bit_offset > 7 || (span.bit_offset > 0 && self.codec != Codec::Gzip) {
                return bad("has a bit offset over 7, or one with another codec than gzip");
            }
            if let Some(problem) = self.window_problem(span) {
                return bad(problem);
            }
            data = span.data.end;
        }
        Ok(())
    }

    fn window_problem(&self, span: &Span) -> Option<&'static str> {
        let window = span.window.as_ref()?;
        let Some(section) = self.windows else {
            return Some("needs a window, but the index has no windows section");
        };
        let end = window.offset.checked_add(u64::from(window.length));
        if window.length == 0 || u64::from(window.length) > MAX_WINDOW {
            return Some("has a window that is empty or too long");
        }
        match end {
            Some(end) if end <= section.size => None,
            _ => Some("has a window outside the windows section"),
        }
    }

    /// Checks spans against the plain stream: ascending, in bounds, every piece inside spans without gaps, and each
    /// span's `data` from the first to the last byte of contents in its `plain`.
    fn check_plain(&self) -> Result<(), InvalidIndex> {
        if !self.codec.has_plain_stream() {
            return self.check_chunks();
        }
        let (mut plain, mut at) = (0, 0);
        for (number, span) in self.spans.iter().enumerate() {
            let bad = |problem| Err(InvalidIndex::Span { number, problem });
            if span.plain.start < plain || span.plain.end > self.plain_size {
                return bad("overlaps the one before it or ends after the plain stream");
            }
            // `at` is the first piece that ends after the last span.
            let Some(first) = self.pieces.get(at) else {
                return bad("has no file contents");
            };
            let from = if plain > first.plain_offset {
                plain
            } else {
                first.plain_offset
            };
            if span.plain.start > from {
                return bad("starts after file contents that no span before it has");
            }
            let data_start = first.data_offset + (from - first.plain_offset);
            let mut data_end = data_start;
            while let Some(piece) = self.pieces.get(at).filter(|p| p.plain_offset < span.plain.end) {
                let end = span.plain.end.min(piece.plain_offset + piece.length);
                data_end = piece.data_offset + (end - piece.plain_offset);
                if piece.plain_offset + piece.length > span.plain.end {
                    break;
                }
                at += 1;
            }
            if span.data != (data_start..data_end) {
                return bad("gives another range of the data space than its plain bytes fill");
            }
            plain = span.plain.end;
        }
        match self.pieces.get(at) {
            Some(_) => Err(InvalidIndex::Piece {
                number: at,
                problem: "is not inside the spans",
            }),
            None => Ok(()),
        }
    }

    /// Checks the spans of a table of contents, each of which stands alone.
    fn check_chunks(&self) -> Result<(), InvalidIndex> {
        for (number, span) in self.spans.iter().enumerate() {
            if span.plain.end > MAX_SPAN_PLAIN {
                let problem = "needs more plain bytes decoded than a span may";
                return Err(InvalidIndex::Span { number, problem });
            }
            if span.plain.end - span.plain.start != span.data.end - span.data.start {
                let problem = "does not yield as many plain bytes as it gives";
                return Err(InvalidIndex::Span { number, problem });
            }
        }
        Ok(())
    }
}
