//! From the entries of a table of contents to a [`LayerIndex`].
//!
//! A file is an entry of type `reg`, which is also its first chunk, and the entries of type `chunk` behind it. Each
//! chunk with data becomes a span. Chunks of zeros become holes: a page that only they touch has no place in the
//! data space, and in a page that they share with data no span fills them.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use xebec_format::digest::Digest;
use xebec_format::layer::limits::{MAX_DATA, MAX_ENTRIES, MAX_SPAN_PLAIN, MAX_SPAN_SOURCE, MAX_SPANS};
use xebec_format::layer::{Codec, Entry, EntryKind, LayerIndex, Metadata, Span};
use xebec_format::path::LayerPath;
use xebec_kernel::clock::parse_rfc3339;

use super::Blob;
use super::entry::TocEntry;
use super::error::{TocError, TocProblem};
use crate::tar::{
    Announced, Dialect, EntryProblem, Header, RawMap, TarLimits, announce, kind, memory_of, place,
};

/// Files in the root that the writers of such layers add for themselves.
const BOOKKEEPING: [&[u8]; 3] = [
    b"stargz.index.json",
    b".prefetch.landmark",
    b".no.prefetch.landmark",
];

/// Collects entries and chunks.
#[derive(Debug)]
pub(super) struct IndexBuilder {
    entries: Vec<Entry>,
    spans: Vec<PendingSpan>,
    /// Where chunks start in the blob, those that become no span included: each ends where the next one starts.
    starts: Vec<u64>,
    data_size: u64,
    tree: u64,
    open: Option<OpenFile>,
}

/// A span whose end in the blob is not known yet.
#[derive(Debug)]
struct PendingSpan {
    start: u64,
    /// End of the chunk as the table states it; 0 if it does not.
    end: u64,
    inner: u64,
    length: u64,
    data_offset: u64,
    digest: Digest,
}

/// A file whose chunks are being collected.
#[derive(Debug)]
struct OpenFile {
    /// Name as written, which its chunks repeat.
    name: String,
    size: u64,
    digest: String,
    end_offset: u64,
    chunks: Vec<Chunk>,
    /// `None` for a file that is no entry of the image: its chunks only mark where others end.
    place: Option<(LayerPath, Metadata)>,
}

#[derive(Debug)]
struct Chunk {
    file_offset: u64,
    /// 0: up to the next chunk or the end of the file.
    length: u64,
    start: u64,
    inner: u64,
    digest: String,
    zeros: bool,
}

impl IndexBuilder {
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            spans: Vec::new(),
            starts: Vec::new(),
            data_size: 0,
            tree: 0,
            open: None,
        }
    }

    /// Takes the next entry.
    pub(super) fn push(&mut self, entry: &TocEntry) -> Result<(), TocError> {
        if entry.kind == "chunk" {
            return self.push_chunk(entry);
        }
        self.close_file()?;
        let refuse = |problem| refused(&entry.name, problem);
        let announced = describe(entry).map_err(refuse)?;
        let place = match announced {
            Announced::Entry(path, metadata, kind) => {
                self.emit(Entry { path, metadata, kind })?;
                None
            }
            Announced::File(path, metadata) if !BOOKKEEPING.contains(&path.as_bytes()) => {
                Some((path, metadata))
            }
            Announced::File(..) | Announced::Nothing => None,
        };
        if entry.kind == "reg" {
            self.open = Some(OpenFile {
                name: entry.name.clone(),
                size: unsigned("size", entry.size).map_err(refuse)?,
                digest: entry.digest.clone(),
                end_offset: unsigned("endOffset", entry.end_offset).map_err(refuse)?,
                chunks: Vec::new(),
                place,
            });
            if entry.size > 0 {
                return self.push_chunk(entry);
            }
        }
        Ok(())
    }

    fn push_chunk(&mut self, entry: &TocEntry) -> Result<(), TocError> {
        let refuse = |problem| Err(refused(&entry.name, problem));
        let Some(open) = self
            .open
            .as_mut()
            .filter(|open| open.name == entry.name && open.size > 0)
        else {
            return refuse(TocProblem::StrayChunk);
        };
        if self.starts.len() as u64 >= MAX_SPANS {
            return Err(TocError::Limit {
                what: "chunks",
                limit: MAX_SPANS,
            });
        }
        match chunk(entry) {
            Ok(chunk) => {
                self.starts.push(chunk.start);
                open.chunks.push(chunk);
                Ok(())
            }
            Err(problem) => refuse(problem),
        }
    }

    /// Gives the file that is open its place in the data space.
    fn close_file(&mut self) -> Result<(), TocError> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let Some((path, metadata)) = open.place else {
            return Ok(());
        };
        let refuse = |problem| refused(&open.name, problem);
        let lengths = chunk_lengths(&open.chunks, open.size).map_err(refuse)?;
        let with_data = || open.chunks.iter().zip(&lengths).filter(|(chunk, _)| !chunk.zeros);
        let map: RawMap = with_data()
            .map(|(chunk, &length)| (chunk.file_offset as i64, length as i64))
            .collect();
        let stored = with_data().map(|(_, length)| length).sum();
        let placed = place(Some(&map), open.size, stored, self.data_size);
        let placed = placed.map_err(|problem| refuse(EntryProblem::from(problem).into()))?;
        let Some(placed) = placed.filter(|placed| placed.data_end <= MAX_DATA) else {
            return Err(TocError::Limit {
                what: "bytes of contents",
                limit: MAX_DATA,
            });
        };
        self.data_size = placed.data_end;
        for ((chunk, &length), run) in with_data().zip(&placed.runs) {
            let is_last = chunk.file_offset + length == open.size;
            self.spans.push(PendingSpan {
                start: chunk.start,
                end: if is_last { open.end_offset } else { 0 },
                inner: chunk.inner,
                length,
                data_offset: run.data_offset,
                digest: chunk_digest(chunk, &open.chunks, &open.digest).map_err(refuse)?,
            });
            let end = chunk.inner.checked_add(length);
            if end.is_none_or(|end| end > MAX_SPAN_PLAIN) {
                return Err(refuse(TocProblem::ChunkTooLarge(chunk.file_offset)));
            }
        }
        let kind = EntryKind::File {
            size: open.size,
            extents: placed.extents,
        };
        self.emit(Entry { path, metadata, kind })
    }

    fn emit(&mut self, entry: Entry) -> Result<(), TocError> {
        if self.entries.len() as u64 >= MAX_ENTRIES {
            return Err(TocError::Limit {
                what: "entries",
                limit: MAX_ENTRIES,
            });
        }
        self.tree = self.tree.saturating_add(memory_of(&entry));
        if self.tree > TarLimits::TREE {
            return Err(TocError::Limit {
                what: "bytes of entries",
                limit: TarLimits::TREE,
            });
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Ends the table. All chunks lie before `payload_end` in the blob.
    pub(super) fn finish(
        mut self,
        blob: Blob,
        codec: Codec,
        payload_end: u64,
    ) -> Result<LayerIndex, TocError> {
        self.close_file()?;
        self.starts.push(payload_end);
        self.starts.sort_unstable();
        self.starts.dedup();
        let starts = &self.starts;
        let spans: Result<Vec<Span>, TocError> = self
            .spans
            .iter()
            .map(|pending| span(pending, starts, payload_end))
            .collect();
        let index = LayerIndex {
            layer: blob.digest,
            layer_size: blob.size,
            diff_id: None,
            codec,
            plain_size: 0,
            data_size: self.data_size,
            entries: self.entries,
            pieces: Vec::new(),
            spans: spans?,
            windows: None,
            frame: None,
            contents: None,
        };
        index.check()?;
        Ok(index)
    }
}

/// A chunk ends where the table says, or else where the next one in the blob starts.
fn span(pending: &PendingSpan, starts: &[u64], payload_end: u64) -> Result<Span, TocError> {
    let next = starts.partition_point(|&start| start <= pending.start);
    let next = starts.get(next).copied().unwrap_or(payload_end);
    let end = if pending.end == 0 { next } else { pending.end };
    let refuse = |problem| {
        Err(refused(
            &format!("chunk at {} of the blob", pending.start),
            problem,
        ))
    };
    if pending.start >= end || end > payload_end {
        return refuse(TocProblem::Offset(pending.start));
    }
    if end - pending.start > MAX_SPAN_SOURCE {
        return refuse(TocProblem::ChunkTooLarge(pending.start));
    }
    Ok(Span {
        source: pending.start..end,
        bit_offset: 0,
        plain: pending.inner..pending.inner + pending.length,
        data: pending.data_offset..pending.data_offset + pending.length,
        window: None,
        digest: pending.digest,
    })
}

/// The entry that a table's entry announces, by the rules of tar. It must not be a chunk.
fn describe(entry: &TocEntry) -> Result<Announced, TocProblem> {
    let kind = match entry.kind.as_str() {
        "dir" => kind::DIRECTORY,
        "reg" => kind::FILE,
        "symlink" => kind::SYMLINK,
        "hardlink" => kind::HARDLINK,
        "char" => kind::CHAR,
        "block" => kind::BLOCK,
        "fifo" => kind::FIFO,
        unknown => return Err(TocProblem::Type(unknown.chars().take(64).collect())),
    };
    let (mtime, mtime_nanoseconds) = match entry.modtime.as_deref() {
        None | Some("") => (0, 0),
        Some(text) => parse_rfc3339(text).ok_or_else(|| TocProblem::Time(text.chars().take(64).collect()))?,
    };
    let header = Header {
        dialect: Dialect::Ustar,
        kind,
        name: entry.name.as_bytes().to_vec(),
        link: entry.link_name.as_bytes().to_vec(),
        size: entry.size,
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        mtime,
        mtime_nanoseconds,
        major: entry.dev_major,
        minor: entry.dev_minor,
    };
    let xattrs = xattrs(entry)?;
    let xattrs = xattrs
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_slice()));
    Ok(announce(&header, xattrs, TarLimits::XATTRS)?)
}

fn xattrs(entry: &TocEntry) -> Result<BTreeMap<&str, Vec<u8>>, TocProblem> {
    let mut decoded = BTreeMap::new();
    for (name, value) in entry.xattrs.iter().flatten() {
        let value = BASE64.decode(value.as_deref().unwrap_or_default());
        let value = value.map_err(|_| TocProblem::Xattr(name.chars().take(64).collect()))?;
        decoded.insert(name.as_str(), value);
    }
    Ok(decoded)
}

fn chunk(entry: &TocEntry) -> Result<Chunk, TocProblem> {
    let zeros = match entry.chunk_type.as_str() {
        "" => false,
        "zeros" => true,
        unknown => return Err(TocProblem::ChunkType(unknown.chars().take(64).collect())),
    };
    let chunk = Chunk {
        file_offset: unsigned("chunkOffset", entry.chunk_offset)?,
        length: unsigned("chunkSize", entry.chunk_size)?,
        start: unsigned("offset", entry.offset)?,
        inner: unsigned("innerOffset", entry.inner_offset)?,
        digest: entry.chunk_digest.clone(),
        zeros,
    };
    // Both formats start with a tar header, so no contents can be at the very start.
    if chunk.start == 0 && chunk.inner == 0 && !zeros {
        return Err(TocProblem::Offset(chunk.file_offset));
    }
    Ok(chunk)
}

/// The lengths of a file's chunks, which must follow each other without a gap and make up the file.
fn chunk_lengths(chunks: &[Chunk], size: u64) -> Result<Vec<u64>, TocProblem> {
    let mut end = 0;
    let mut lengths = Vec::with_capacity(chunks.len());
    for (number, chunk) in chunks.iter().enumerate() {
        if chunk.file_offset != end {
            return Err(TocProblem::Chunks(
                "one does not start where the one before it ends",
            ));
        }
        let next = chunks.get(number + 1).map_or(size, |next| next.file_offset);
        let length = match chunk.length {
            0 => next.checked_sub(end).ok_or(TocProblem::Chunks("they descend"))?,
            length => length,
        };
        if length == 0 {
            return Err(TocProblem::Chunks("one is empty"));
        }
        end = end
            .checked_add(length)
            .ok_or(TocProblem::Chunks("they are too long"))?;
        lengths.push(length);
    }
    if end != size {
        return Err(TocProblem::Chunks("they do not add up to its size"));
    }
    Ok(lengths)
}

/// A chunk's digest; that of the file if it is the only one.
fn chunk_digest(chunk: &Chunk, chunks: &[Chunk], whole: &str) -> Result<Digest, TocProblem> {
    let text = match (chunk.digest.as_str(), chunks) {
        ("", [_]) => whole,
        (digest, _) => digest,
    };
    if text.is_empty() {
        return Err(TocProblem::NoDigest(chunk.file_offset));
    }
    text.parse()
        .map_err(|_| TocProblem::Digest(text.chars().take(100).collect()))
}

fn unsigned(field: &'static str, value: i64) -> Result<u64, TocProblem> {
    u64::try_from(value).map_err(|_| TocProblem::Negative(field))
}

fn refused(name: &str, problem: TocProblem) -> TocError {
    let name = name.chars().take(256).collect();
    TocError::Entry { name, problem }
}
