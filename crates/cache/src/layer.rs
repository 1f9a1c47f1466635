//! One cached layer: a sparse data file, its presence bitmaps, and the span table that says how to fill it.
//!
//! Pages come in two ways: spans that were verified ([`CachedLayer::write_span`]), and pages of a runtime image that
//! are not compared with the digests of their spans until later ([`CachedLayer::inject`]).

mod inject;
mod mismatches;
mod pages;
mod written;

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::warn;
use xebec_format::PAGE_SIZE;
use xebec_format::layer::{Span, SpanTable};
use xebec_kernel::file::FileIdentity;

use crate::bits::Bits;
use crate::boot::BootId;
use crate::disk::{Access, Disk, DiskFile};
use crate::key::{DATA, LayerKey};
use crate::page_write_locks::{PageWriteLocks, Sharing};
use crate::presence::{Presence, SyncError, is_full};
use crate::room::Room;
use crate::stage::{Stage, reached};
use mismatches::read_mismatches;
use pages::pages_of;
use written::WrittenSpans;

/// A layer of the cache, open.
///
/// The data file is opened by its ordinary path: what is written here raises no fanotify event.
#[derive(Debug)]
pub struct CachedLayer {
    key: LayerKey,
    directory: PathBuf,
    table: SpanTable,
    data: Arc<dyn DiskFile>,
    identity: FileIdentity,
    presence: Presence,
    written: Mutex<WrittenSpans>,
    write_locks: PageWriteLocks,
    /// Injected pages that failed the digest check, until they are reported.
    mismatches: Mutex<Bits>,
    disk: Arc<dyn Disk>,
    room: Arc<Room>,
}

/// The outcome of writing a span, for the pages that were injected where it belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Pages that were unverified and are verified now.
    pub verified: u64,
    /// Pages whose injected bytes were not the layer's; see [`CachedLayer::take_mismatches`].
    pub mismatches: u64,
}

/// A layer that is kept on a disk, and what is known about it without its files.
pub struct LayerPlace<'a> {
    /// The disk.
    pub disk: &'a Arc<dyn Disk>,
    /// The directory that has the layer's files.
    pub directory: &'a Path,
    /// Which layer, by which index.
    pub key: LayerKey,
    /// Its spans.
    pub table: SpanTable,
    /// This boot: bitmaps of an earlier one say only what is durable.
    pub boot: BootId,
}

impl CachedLayer {
    /// Opens a layer to fill it. One process at a time may do so. `room` is asked when its file system is full.
    ///
    /// # Errors
    /// I/O errors of its files, and `InvalidData` when the data file is not of the length that the index says.
    pub fn open(place: LayerPlace<'_>, room: Arc<Room>) -> io::Result<Self> {
        let data = place.disk.open(&place.directory.join(DATA), Access::Write)?;
        check_length(&*data, &place.table)?;
        let pages = place.table.data_size / PAGE_SIZE;
        let presence = Presence::open(place.disk.clone(), place.directory, pages, place.boot)?;
        Self::assemble(place, data, presence, room)
    }

    /// Opens a layer to look at it, beside the process that fills it.
    ///
    /// The data file is opened first: that waits while somebody holds a lease on it to remove pages, and the bitmaps that are
    /// read then are true.
    ///
    /// # Errors
    /// As [`CachedLayer::open`].
    pub fn look(place: LayerPlace<'_>) -> io::Result<Self> {
        let data = place.disk.open(&place.directory.join(DATA), Access::Read)?;
        check_length(&*data, &place.table)?;
        let pages = place.table.data_size / PAGE_SIZE;
        let presence = Presence::look(place.disk.clone(), place.directory, pages, place.boot)?;
        Self::assemble(place, data, presence, Arc::default())
    }

    fn assemble(
        place: LayerPlace<'_>,
        data: Arc<dyn DiskFile>,
        presence: Presence,
        room: Arc<Room>,
    ) -> io::Result<Self> {
        let LayerPlace {
            disk,
            directory,
            key,
            table,
            boot: _,
        } = place;
        let identity = data.identity()?;
        let written = WrittenSpans::of(&table, &presence);
        let mismatches = Mutex::new(read_mismatches(&**disk, directory, presence.pages()));
        Ok(Self {
            key,
            directory: directory.to_owned(),
            table,
            data,
            identity,
            presence,
            written: Mutex::new(written),
            write_locks: PageWriteLocks::default(),
            mismatches,
            disk: disk.clone(),
            room,
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

    /// The data file.
    pub fn data_path(&self) -> PathBuf {
        self.directory.join(DATA)
    }

    /// How to get the layer's spans.
    pub fn table(&self) -> &SpanTable {
        &self.table
    }

    /// The identity by which an event's descriptor is recognised as this layer's data file.
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

    /// The data file's descriptor, for a lease or a mark; `None` on a disk of the tests.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.data.descriptor()
    }

    /// The spans, ascending, that must be written before every page that `range` (bytes of the data space)
    /// touches is present. Empty when nothing is missing.
    pub fn missing_spans(&self, range: Range<u64>) -> Vec<usize> {
        let mut spans: Vec<usize> = Vec::new();
        let runs = self.presence.missing(pages_of(&range));
        if runs.is_empty() {
            return spans;
        }
        let written = self.written.lock();
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

    /// Writes the verified bytes of span `index`, claims the pages that are whole with it, and notes that they are
    /// verified. If the disk is full, room is made and it is tried once more.
    ///
    /// Where unverified pages are in its place, their bytes are compared before they are written over. Pages that differ
    /// are kept for [`CachedLayer::take_mismatches`].
    ///
    /// # Errors
    /// I/O errors of the data file or the bitmap (a full disk, above all); nothing is claimed then that was
    /// not written.
    pub fn write_span(&self, index: usize, bytes: &[u8]) -> io::Result<Compared> {
        let Some(span) = self.table.spans.get(index) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such span"));
        };
        let mut mismatches = 0;
        let verified = self.with_room(bytes.len() as u64, || {
            // From comparing to claiming, no injection may come between: it would be taken for verified.
            let _turn = self
                .write_locks
                .take(from_ref(&pages_of(&span.data)), Sharing::Shared);
            let (found, untold) = self.compare(span, bytes)?;
            mismatches += found;
            self.data.write_all_at(bytes, span.data.start)?;
            drop(untold);
            reached(Stage::Written);
            self.mark_written(index, span)
        })?;
        reached(Stage::Claimed);
        Ok(Compared { verified, mismatches })
    }

    /// Runs a write that needs `bytes` of room; once more after room was made, if the disk was full.
    fn with_room<T>(&self, bytes: u64, mut write: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let written = match write() {
            Err(error) if is_full(&error) && self.room.make(bytes) => write(),
            other => other,
        };
        if written.as_ref().err().is_some_and(is_full) {
            self.room.refused(bytes, self.free());
        }
        written
    }

    /// How much room the spans need that are missing of these.
    pub(crate) fn room_for(&self, spans: &[usize]) -> u64 {
        let pages = spans.iter().filter_map(|&index| {
            let span = self.table.spans.get(index)?;
            let missing = self.presence.missing(pages_of(&span.data));
            Some(missing.iter().map(|run| run.end - run.start).sum::<u64>())
        });
        pages.sum::<u64>() * PAGE_SIZE
    }

    /// The record of the room that is promised on this disk.
    pub(crate) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    /// How much room there is, if the file system says it.
    pub(crate) fn free(&self) -> Option<u64> {
        self.disk.free(&self.directory).ok().flatten()
    }

    /// Returns how many pages were unverified and are not any more.
    fn mark_written(&self, index: usize, span: &Span) -> io::Result<u64> {
        let mut written = self.written.lock();
        written.set(index, true);
        let mut whole = pages_of(&span.data);
        if !whole.is_empty() && !self.page_is_whole(&written, whole.start) {
            whole.start += 1;
        }
        if !whole.is_empty() && !self.page_is_whole(&written, whole.end - 1) {
            whole.end -= 1;
        }
        let unverified = self.unverified(whole.clone());
        let verified = unverified.iter().map(|run| run.end - run.start).sum();
        let claimed = self.presence.claim(whole.clone());
        // Also if the claim did not reach its file. All spans of these pages are written, and bytes in no span are
        // zero, whatever was injected.
        self.presence.unverified().clear(whole);
        claimed.map(|()| verified)
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

    /// Makes present pages count after a power cut, too. Returns whether there was something to do.
    ///
    /// No more pages count before `notes` has succeeded. It is called when the pages are chosen, so it finds everything that was
    /// written before they were injected.
    ///
    /// # Errors
    /// See [`SyncError`].
    pub fn sync(&self, notes: impl FnOnce() -> io::Result<()>) -> Result<bool, SyncError> {
        let synced = self.presence.sync(&*self.data, notes);
        if synced.is_err() {
            *self.written.lock() = WrittenSpans::of(&self.table, &self.presence);
        }
        synced
    }

    /// Gives the room of pages back: their claims go first, on disk too, then the bytes.
    ///
    /// The caller must know that nothing but this value has the data file open, and that the file raises events again for
    /// the next process that opens it.
    ///
    /// # Errors
    /// I/O errors. Nothing is claimed that is not there, then as ever.
    pub fn punch(&self, pages: Range<u64>) -> io::Result<()> {
        let pages = pages.start..pages.end.min(self.presence.pages());
        if pages.is_empty() {
            return Ok(());
        }
        let bytes = pages.start * PAGE_SIZE..pages.end * PAGE_SIZE;
        let _turn = self.write_locks.take(from_ref(&pages), Sharing::Exclusive);
        {
            let mut written = self.written.lock();
            for index in self.overlapping(bytes.clone()) {
                written.set(index, false);
            }
        }
        self.presence.forget(pages.clone())?;
        self.data.punch(bytes)?;
        self.presence.unverified().clear(pages);
        Ok(())
    }
}

fn check_length(data: &dyn DiskFile, table: &SpanTable) -> io::Result<()> {
    let length = data.length()?;
    if length == table.data_size {
        return Ok(());
    }
    let message = format!("data is {length} bytes long, the index says {}", table.data_size);
    Err(io::Error::new(io::ErrorKind::InvalidData, message))
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "one missing run is what these tests are about"
)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
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
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let data = disk.open(&dir.join(DATA), Access::Create).unwrap();
        data.set_length(table.data_size).unwrap();
        CachedLayer::open(
            LayerPlace {
                disk: &disk,
                directory: dir,
                key,
                table,
                boot: BootId([0; 16]),
            },
            Arc::default(),
        )
        .unwrap()
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

    #[test]
    fn a_punched_page_takes_the_spans_that_share_it_along() {
        let dir = tempfile::tempdir().unwrap();
        let layer = layer(dir.path());
        layer.write_span(0, &[7; 6000]).unwrap();
        layer.write_span(1, &[8; 6288]).unwrap();
        layer.write_span(2, &[9; 7712]).unwrap();
        layer.sync(|| Ok(())).unwrap();
        layer.punch(1..2).unwrap();
        assert_eq!(layer.presence().missing(0..5), [1..2]);
        assert_eq!(layer.missing_spans(0..20000), [0, 1]);
        let mut bytes = [1; 2];
        layer.read_at(&mut bytes, 5999).unwrap();
        assert_eq!(bytes, [0, 0]);
        layer.write_span(0, &[7; 6000]).unwrap();
        assert_eq!(
            layer.presence().missing(0..5),
            [1..2],
            "its other span is missing"
        );
        layer.write_span(1, &[8; 6288]).unwrap();
        assert!(layer.is_complete());
    }
}
