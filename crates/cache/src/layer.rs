//! One cached layer: a sparse data file, its presence bitmap, and the span table that says how to fill it.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use xebec_format::PAGE_SIZE;
use xebec_format::layer::{Span, SpanTable};

use crate::presence::{BootId, Presence};
use crate::store::LayerKey;

/// A layer of the cache, open.
///
/// The data file is opened by its ordinary path: what is written here raises no fanotify event.
#[derive(Debug)]
pub struct CachedLayer {
    key: LayerKey,
    directory: PathBuf,
    table: SpanTable,
    data: File,
    identity: FileIdentity,
    presence: Presence,
    written: Mutex<WrittenSpans>,
}

/// Device and inode number of a data file, by which an event's descriptor is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// Which spans have been written whole. A page at the boundary of two spans is present when both are.
#[derive(Debug)]
struct WrittenSpans(Vec<bool>);

impl CachedLayer {
    /// Opens the layer kept in `directory`, to fill it. One process at a time may do so.
    ///
    /// # Errors
    /// I/O errors of its files, and `InvalidData` when the data file is not of the length that the index says.
    pub fn open(directory: &Path, key: LayerKey, table: SpanTable, boot: BootId) -> io::Result<Self> {
        let data = OpenOptions::new()
            .read(true)
            .write(true)
            .open(directory.join("data"))?;
        let presence = Presence::open(&directory.join("present"), table.data_size / PAGE_SIZE, boot)?;
        Self::assemble(directory, key, table, data, presence)
    }

    /// Opens the layer kept in `directory` to look at it, beside the process that fills it.
    ///
    /// # Errors
    /// As [`CachedLayer::open`].
    pub fn look(directory: &Path, key: LayerKey, table: SpanTable, boot: BootId) -> io::Result<Self> {
        let data = File::open(directory.join("data"))?;
        let presence = Presence::look(&directory.join("present"), table.data_size / PAGE_SIZE, boot)?;
        Self::assemble(directory, key, table, data, presence)
    }

    fn assemble(
        directory: &Path,
        key: LayerKey,
        table: SpanTable,
        data: File,
        presence: Presence,
    ) -> io::Result<Self> {
        let metadata = data.metadata()?;
        if metadata.len() != table.data_size {
            let message = format!(
                "data is {} bytes long, the index says {}",
                metadata.len(),
                table.data_size
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let identity = FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        let written = table
            .spans
            .iter()
            .map(|span| presence.missing(pages_of(&span.data)).is_empty())
            .collect();
        Ok(Self {
            key,
            directory: directory.to_owned(),
            table,
            data,
            identity,
            presence,
            written: Mutex::new(WrittenSpans(written)),
        })
    }

    /// Which layer this is, by which index.
    pub fn key(&self) -> LayerKey {
        self.key
    }

    /// The folder with `data`, `present` and `index`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// How to get the layer's spans.
    pub fn table(&self) -> &SpanTable {
        &self.table
    }

    /// By what an event's descriptor is recognised as this layer's data file.
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// The presence bitmap.
    pub fn presence(&self) -> &Presence {
        &self.presence
    }

    /// Whether all of the data space is local.
    pub fn is_complete(&self) -> bool {
        self.presence.is_complete()
    }

    /// Reads bytes of the data space, present or not (absent ones read as zeros).
    ///
    /// # Errors
    /// I/O errors of the data file.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.data.read_exact_at(bytes, offset)
    }

    /// The spans, ascending, that must be written before every page that `range` (bytes of the data space)
    /// touches is present. Empty when nothing is missing.
    pub fn missing_spans(&self, range: Range<u64>) -> Vec<usize> {
        let mut spans: Vec<usize> = Vec::new();
        let runs = self.presence.missing(pages_of(&range));
        if runs.is_empty() {
            return spans;
        }
        let written = self
            .written
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for run in runs {
            for index in self.overlapping(run.start * PAGE_SIZE..run.end * PAGE_SIZE) {
                let known = spans.last().is_some_and(|&last| last >= index);
                if !known && !written.has(index) {
                    spans.push(index);
                }
            }
        }
        spans
    }

    /// Writes the verified bytes of span `index` and claims the pages that are whole with it.
    ///
    /// # Errors
    /// I/O errors of the data file or the bitmap (a full disk, above all); nothing is claimed then that was
    /// not written.
    pub fn write_span(&self, index: usize, bytes: &[u8]) -> io::Result<()> {
        let Some(span) = self.table.spans.get(index) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such span"));
        };
        self.data.write_all_at(bytes, span.data.start)?;
        self.mark_written(index, span)
    }

    fn mark_written(&self, index: usize, span: &Span) -> io::Result<()> {
        let mut written = self
            .written
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        written.set(index);
        let mut whole = pages_of(&span.data);
        if !whole.is_empty() && !self.page_is_whole(&written, whole.start) {
            whole.start += 1;
        }
        if !whole.is_empty() && !self.page_is_whole(&written, whole.end - 1) {
            whole.end -= 1;
        }
        self.presence.claim(whole)
    }

    fn page_is_whole(&self, written: &WrittenSpans, page: u64) -> bool {
        self.overlapping(page * PAGE_SIZE..(page + 1) * PAGE_SIZE)
            .all(|index| written.has(index))
    }

    /// The spans that have bytes in `range`, ascending.
    fn overlapping(&self, range: Range<u64>) -> Range<usize> {
        let spans = &self.table.spans;
        let first = spans.partition_point(|span| span.data.end <= range.start);
        let end = spans.partition_point(|span| span.data.start < range.end);
        first..end.max(first)
    }

    /// Syncs the data and makes the presence of a complete layer believed after a reboot.
    ///
    /// # Errors
    /// I/O errors, and `InvalidInput` when the layer is not complete.
    pub fn make_durable(&self) -> io::Result<()> {
        self.data.sync_data()?;
        self.presence.make_durable()
    }
}

impl WrittenSpans {
    fn has(&self, index: usize) -> bool {
        self.0.get(index).copied().unwrap_or(false)
    }

    fn set(&mut self, index: usize) {
        if let Some(written) = self.0.get_mut(index) {
            *written = true;
        }
    }
}

/// The pages that a range of bytes touches.
fn pages_of(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() {
        return 0..0;
    }
    range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE)
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "one missing run is what these tests are about"
)]
mod tests {
    use super::*;
    use xebec_format::digest::Digest;
    use xebec_format::layer::Codec;

    /// Spans over five pages; the second starts in the middle of page 1, the third at page 3.
    fn layer(dir: &Path) -> CachedLayer {
        let span = |data: Range<u64>| Span {
            source: data.clone(),
            bit_offset: 0,
            plain: data.clone(),
            data,
            window: None,
            digest: Digest::of(b""),
        };
        let table = SpanTable {
            layer: Digest::of(b"layer"),
            layer_size: 20480,
            codec: Codec::Tar,
            plain_size: 20480,
            data_size: 20480,
            spans: vec![span(0..6000), span(6000..12288), span(12288..20000)],
            pieces: Vec::new(),
            windows: None,
        };
        let key = LayerKey {
            layer: table.layer,
            index: Digest::of(b"index"),
        };
        let data = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join("data"))
            .unwrap();
        data.set_len(table.data_size).unwrap();
        CachedLayer::open(dir, key, table, BootId([0; 16])).unwrap()
    }

    #[test]
    fn a_page_of_two_spans_needs_both() {
        let dir = tempfile::tempdir().unwrap();
        let layer = layer(dir.path());
        assert_eq!(layer.missing_spans(4096..4097), [0, 1]);
        layer.write_span(0, &[7; 6000]).unwrap();
        assert_eq!(layer.presence().missing(0..5), [1..5]);
        assert_eq!(layer.missing_spans(4096..4097), [1]);
        layer.write_span(1, &[8; 6288]).unwrap();
        assert_eq!(layer.presence().missing(0..5), [3..5]);
        layer.write_span(2, &[9; 7712]).unwrap();
        assert!(layer.is_complete());
        let mut bytes = [0; 2];
        layer.read_at(&mut bytes, 5999).unwrap();
        assert_eq!(bytes, [7, 8]);
    }

    #[test]
    fn reopening_forgets_only_the_shared_page() {
        let dir = tempfile::tempdir().unwrap();
        let first = layer(dir.path());
        first.write_span(0, &[7; 6000]).unwrap();
        drop(first);
        let again = layer(dir.path());
        assert_eq!(again.missing_spans(0..4096), [0usize; 0]);
        assert_eq!(again.missing_spans(4096..8192), [0, 1]);
    }
}
