//! Spans whose files other layers of this host have: put together from these, compared with their digests, and written as if they had
//! been fetched.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::debug;
use xebec_format::digest::Digest;
use xebec_format::layer::Span;

use super::{FillError, FillStats, Filler};
use crate::progress::Progress;

/// Contents of a layer that other layers of this host have. Nothing depends on it that they are right: each span is compared.
#[derive(Default)]
pub struct LocalContents {
    /// Their data files. Each is opened for one span only: one that is open cannot be evicted.
    givers: Vec<PathBuf>,
    /// Ascending by their places in the layer; no two overlap.
    stretches: Vec<Stretch>,
}

/// A stretch of the layer's data space, and where the same bytes are.
struct Stretch {
    place: Range<u64>,
    giver: usize,
    /// Offset in the giver's data space.
    offset: u64,
}

impl LocalContents {
    /// The data files of the layers that have contents.
    pub fn new(givers: Vec<PathBuf>) -> Self {
        Self {
            givers,
            stretches: Vec::new(),
        }
    }

    /// The bytes `place` of the layer's data space are those from `offset` on of a giver's. Places come in ascending order; one that
    /// overlaps the one before is passed over.
    pub fn add(&mut self, place: Range<u64>, giver: usize, offset: u64) {
        let end = self.stretches.last().map_or(0, |last| last.place.end);
        if place.start >= end && !place.is_empty() && giver < self.givers.len() {
            self.stretches.push(Stretch { place, giver, offset });
        }
    }

    /// Whether there is nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// The stretches that cover a range without a gap, cut to it; `None` if they do not.
    fn cover(&self, range: &Range<u64>) -> Option<Vec<(Range<u64>, &Path, u64)>> {
        let first = self
            .stretches
            .partition_point(|stretch| stretch.place.end <= range.start);
        let (mut cover, mut at) = (Vec::new(), range.start);
        for stretch in self.stretches.get(first..)? {
            if at >= range.end {
                break;
            }
            if stretch.place.start > at {
                return None;
            }
            let end = stretch.place.end.min(range.end);
            let offset = stretch.offset.checked_add(at - stretch.place.start)?;
            cover.push((at..end, self.givers.get(stretch.giver)?.as_path(), offset));
            at = end;
        }
        (at >= range.end).then_some(cover)
    }
}

impl Filler {
    /// Puts together the missing spans of which all contents are in `local`. Returns how many bytes of the layer's blob need not be
    /// fetched for that. A span that comes out wrong is left, and fetched as ever.
    ///
    /// Must run inside a tokio runtime.
    ///
    /// # Errors
    /// When there is no room on the disk.
    pub async fn copy(self: &Arc<Self>, local: &Arc<LocalContents>) -> Result<u64, FillError> {
        let missing = self.layer.missing_spans(0..self.layer.table().data_size);
        let mut spared = 0;
        for index in missing {
            let Some(span) = self.layer.table().spans.get(index).cloned() else {
                continue;
            };
            // A reader may have brought it meanwhile, or be about to.
            let is_wanted = self.is_missing(index) && !self.state.lock().flights.contains_key(&index);
            if !is_wanted || self.parts(local, &span).is_none() {
                continue;
            }
            let promise = self.reserve(&[index], &Progress::default()).await?;
            let taken = self.memory.decode(span.data.end - span.data.start).await;
            let (filler, local) = (self.clone(), local.clone());
            let copied = tokio::task::spawn_blocking(move || {
                let _taken = taken;
                filler.copy_span(index, &span, &local)
            });
            let layer = self.layer.key().layer;
            if let Some(bytes) = copied.await.unwrap_or(Err(FillError::Abandoned { layer }))? {
                spared += bytes;
                // What was not written says nothing of the disk.
                promise.kept();
            }
        }
        Ok(spared)
    }

    /// Where each part of a span's contents is; `None` if a part is nowhere.
    fn parts<'a>(&self, local: &'a LocalContents, span: &Span) -> Option<Vec<(Range<u64>, &'a Path, u64)>> {
        let table = self.layer.table();
        if !table.codec.has_plain_stream() {
            // All bytes of a chunk are contents.
            return local.cover(&span.data);
        }
        let first = table
            .pieces
            .partition_point(|piece| piece.data_offset + piece.length <= span.data.start);
        let mut parts = Vec::new();
        for piece in table.pieces.get(first..)? {
            if piece.data_offset >= span.data.end {
                break;
            }
            let start = piece.data_offset.max(span.data.start);
            let end = (piece.data_offset + piece.length).min(span.data.end);
            parts.extend(local.cover(&(start..end))?);
        }
        Some(parts)
    }

    /// Puts one span together, and writes it if it is right. Gives how many bytes of the blob it would have taken. Blocks.
    fn copy_span(&self, index: usize, span: &Span, local: &LocalContents) -> Result<Option<u64>, FillError> {
        let Some(parts) = self.parts(local, span) else {
            return Ok(None);
        };
        let layer = self.layer.key().layer;
        let bytes = match put_together(span, parts) {
            Ok(bytes) => bytes,
            Err(error) => {
                debug!(%layer, span = index, "a layer that has its contents is not read: {error}");
                return Ok(None);
            }
        };
        if Digest::of(&bytes) != span.digest {
            debug!(%layer, span = index, "other layers do not have its contents as its index says");
            return Ok(None);
        }
        self.write(index, &bytes)?;
        FillStats::add(&self.stats.bytes_copied, bytes.len() as u64);
        Ok(Some(span.source.end - span.source.start))
    }
}

/// The bytes of a span, of which each part is somewhere. Where no part lies the data space is zero.
fn put_together(span: &Span, parts: Vec<(Range<u64>, &Path, u64)>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (span.data.end - span.data.start) as usize];
    let mut open: Option<(&Path, File)> = None;
    for (place, giver, offset) in parts {
        let file = match open.take() {
            Some((path, file)) if path == giver => file,
            _ => File::open(giver)?,
        };
        let (begin, end) = (place.start - span.data.start, place.end - span.data.start);
        if let Some(part) = bytes.get_mut(begin as usize..end as usize) {
            file.read_exact_at(part, offset)?;
        }
        open = Some((giver, file));
    }
    Ok(bytes)
}
