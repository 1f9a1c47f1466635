//! The third thread: takes the tar apart, and hashes spans and files.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use xebec_format::digest::Digester;
use xebec_format::layer::{Codec, Entry, EntryKind, Extent, Piece, Span};

use super::scan::ToLayout;
use super::spans::{SpanBuilder, Spanned, hash_zeros};
use super::{DataSink, IndexError, IndexOptions, MIN_SPACING};
use crate::tar::{TarParser, TarSink, TarSummary, memory_of};

/// Level at which the frame is compressed: headers shrink to a few percent at any.
const FRAME_LEVEL: i32 = 3;

/// The result of the third thread.
pub(super) struct Layout {
    pub(super) entries: Vec<Entry>,
    pub(super) pieces: Vec<Piece>,
    pub(super) spans: Vec<Spanned>,
    pub(super) frame: Vec<u8>,
    pub(super) contents: Vec<u8>,
    pub(super) summary: TarSummary,
}

pub(super) struct LayoutThread<'a> {
    options: IndexOptions,
    data: Option<&'a mut dyn DataSink>,
    /// Bytes of windows that another thread holds.
    windows: Arc<AtomicU64>,
}

impl<'a> LayoutThread<'a> {
    pub(super) fn new(
        options: IndexOptions,
        data: Option<&'a mut dyn DataSink>,
        windows: Arc<AtomicU64>,
    ) -> Self {
        Self {
            options,
            data,
            windows,
        }
    }

    /// Runs to the end of the stream. If the scan fails, its error counts, and this one is never seen.
    pub(super) fn run(self, plain: &Receiver<ToLayout>) -> Result<Option<Layout>, IndexError> {
        let mut parser = TarParser::new(self.options.tar);
        let mut sink = Sink::new(self.options, self.data, self.windows)?;
        for message in plain {
            match message {
                ToLayout::Start(Codec::Tar) => {
                    sink.spans = SpanBuilder::with_grid(self.options.spacing.max(MIN_SPACING));
                }
                ToLayout::Start(_) => {}
                ToLayout::Point(point) => sink.spans.point(point),
                ToLayout::Plain(chunk, pool) => {
                    parser.push(chunk.bytes(), &mut sink)?;
                    sink.check()?;
                    pool.give_back(chunk);
                }
                ToLayout::End { source } => {
                    let summary = parser.finish(&mut sink)?;
                    return sink.finish(source, summary).map(Some);
                }
            }
        }
        Ok(None)
    }
}

/// Turns what the tar parser finds into tables, digests and sections.
struct Sink<'a> {
    options: IndexOptions,
    data: Option<&'a mut dyn DataSink>,
    /// Offset in the plain stream of the next byte.
    plain: u64,
    entries: Vec<Entry>,
    pieces: Vec<Piece>,
    spans: SpanBuilder,
    frame: zstd::stream::write::Encoder<'static, Vec<u8>>,
    frame_error: Option<io::Error>,
    contents: Vec<u8>,
    file: Option<FileHash>,
    holes_left: u64,
    windows: Arc<AtomicU64>,
    /// Bytes that the tree and the pieces take and that were not reported yet.
    unsaid: u64,
    /// Bytes of sections and spans of which somebody was told.
    said: u64,
}

impl<'a> Sink<'a> {
    fn new(
        options: IndexOptions,
        data: Option<&'a mut dyn DataSink>,
        windows: Arc<AtomicU64>,
    ) -> Result<Self, IndexError> {
        Ok(Self {
            options,
            data,
            plain: 0,
            entries: Vec::new(),
            pieces: Vec::new(),
            spans: SpanBuilder::with_points(),
            frame: zstd::stream::write::Encoder::new(Vec::new(), FRAME_LEVEL)
                .map_err(IndexError::Compress)?,
            frame_error: None,
            contents: Vec::new(),
            file: None,
            holes_left: options.max_hashed_holes,
            windows,
            unsaid: 0,
            said: 0,
        })
    }

    /// The memory of the sections and the spans, in bytes, also for when they are put together: windows are copied one behind the other.
    fn sections(&self) -> u64 {
        let own = self.frame.get_ref().capacity() + self.contents.capacity();
        let spans = self.spans.len() * (size_of::<Spanned>() + size_of::<Span>());
        (own + spans) as u64 + 2 * self.windows.load(Ordering::Relaxed)
    }

    /// Checks that the frame was compressed without an error and is not too large, and tells `data` how much memory is held.
    fn check(&mut self) -> Result<(), IndexError> {
        if let Some(error) = self.frame_error.take() {
            return Err(IndexError::Compress(error));
        }
        if self.frame.get_ref().len() as u64 > self.options.max_frame {
            return Err(IndexError::FrameTooLarge {
                limit: self.options.max_frame,
            });
        }
        let sections = self.sections();
        let grown = sections.saturating_sub(self.said);
        self.said = self.said.max(sections);
        let more = std::mem::take(&mut self.unsaid) + grown;
        match &mut self.data {
            Some(data) if more > 0 => data.hold(more).map_err(IndexError::Sink),
            _ => Ok(()),
        }
    }

    fn finish(mut self, source: u64, summary: TarSummary) -> Result<Layout, IndexError> {
        self.check()?;
        self.finish_file();
        Ok(Layout {
            entries: self.entries,
            pieces: self.pieces,
            spans: self.spans.finish(source, self.plain),
            frame: self.frame.finish().map_err(IndexError::Compress)?,
            contents: self.contents,
            summary,
        })
    }

    fn finish_file(&mut self) {
        if let Some(file) = self.file.take() {
            self.contents.extend_from_slice(&file.finish());
        }
    }

    fn add_piece(&mut self, data_offset: u64, length: u64) {
        match self.pieces.last_mut() {
            Some(last)
                if last.plain_offset + last.length == self.plain
                    && last.data_offset + last.length == data_offset =>
            {
                last.length += length;
            }
            _ => {
                self.unsaid += size_of::<Piece>() as u64;
                self.pieces.push(Piece {
                    plain_offset: self.plain,
                    data_offset,
                    length,
                });
            }
        }
    }
}

impl TarSink for Sink<'_> {
    fn frame(&mut self, bytes: &[u8]) {
        self.plain += bytes.len() as u64;
        if self.frame_error.is_none() {
            self.frame_error = self.frame.write_all(bytes).err();
        }
    }

    fn content(&mut self, data_offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let length = bytes.len() as u64;
        self.add_piece(data_offset, length);
        self.spans.content(self.plain, data_offset, bytes);
        self.plain += length;
        if let Some(file) = &mut self.file {
            file.content(data_offset, bytes);
        }
        match &mut self.data {
            Some(data) => data.write(data_offset, bytes),
            None => Ok(()),
        }
    }

    fn entry(&mut self, entry: Entry) {
        self.finish_file();
        if let EntryKind::File {
            size: size @ 1..,
            extents,
        } = &entry.kind
        {
            self.file = Some(FileHash::new(*size, extents, &mut self.holes_left));
        }
        // Room for it is doubled when there is none.
        self.unsaid += memory_of(&entry) + size_of::<Entry>() as u64;
        self.entries.push(entry);
    }
}

/// The digest of one file's contents.
struct FileHash {
    size: u64,
    extents: Vec<Extent>,
    /// The extent that the last contents were in.
    extent: usize,
    /// Offset in the file up to which it is hashed.
    hashed: u64,
    /// `None` when the file has more holes than may be hashed.
    digest: Option<Digester>,
}

impl FileHash {
    fn new(size: u64, extents: &[Extent], holes_left: &mut u64) -> Self {
        let mapped: u64 = extents.iter().map(|extent| extent.length).sum();
        let left = holes_left.checked_sub(size.saturating_sub(mapped));
        *holes_left = left.unwrap_or(*holes_left);
        Self {
            size,
            extents: extents.to_vec(),
            extent: 0,
            hashed: 0,
            digest: left.map(|_| Digester::new()),
        }
    }

    fn content(&mut self, data_offset: u64, bytes: &[u8]) {
        let Some(digest) = &mut self.digest else { return };
        while let Some(extent) = self.extents.get(self.extent) {
            if data_offset < extent.data_offset + extent.length {
                let offset = extent.file_offset + data_offset.saturating_sub(extent.data_offset);
                hash_zeros(digest, offset.saturating_sub(self.hashed));
                self.hashed = offset;
                break;
            }
            self.extent += 1;
        }
        digest.update(bytes);
        self.hashed += bytes.len() as u64;
    }

    fn finish(mut self) -> [u8; 32] {
        let Some(mut digest) = self.digest.take() else {
            return [0; 32];
        };
        hash_zeros(&mut digest, self.size.saturating_sub(self.hashed));
        *digest.finish().as_bytes()
    }
}
