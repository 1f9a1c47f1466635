//! Segments: pages become them, and they become pages again.

use std::collections::HashSet;
use std::io::{self, Write};

use super::limits::MAX_SEGMENT_PAGES;
use super::{PageRun, RecordedLayer, Segment, SegmentDigest, Zone};
use crate::PAGE_SIZE;
use crate::digest::Digester;
use crate::frame::decompress;

/// Pages of a segment that [`lay_out`] makes: 256 KiB. A segment is fetched and decompressed whole for one page of it;
/// with half as many pages a zone is 8 % larger, with four times as many 8 % smaller (measured as below).
pub const SEGMENT_PAGES: usize = 64;

/// Measured on 40 MB of pages that runs through libraries and Python's files of Debian touch, in segments of 64: zstd leaves
/// 19.2 % at level 3, 17.5 % at level 9, and 16.4 % at level 19. Level 19 takes twenty times as long (2 MB/s, a 40 MB start would
/// wait for 20 s on one processor).
const ZSTD_LEVEL: i32 = 9;

const PAGE: usize = PAGE_SIZE as usize;

/// The zone and segments that [`lay_out`] made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaidOut {
    /// The zone that was written.
    pub zone: Zone,
    /// Its segments, in order, without gaps.
    pub segments: Vec<Segment>,
    /// The pages that are all zero, in the order in which they were given.
    pub zeros: Vec<PageRun>,
}

/// Writes a zone to `out`: the bytes `front`, which are the caller's, and then the pages `touched`, in their order and
/// each once.
///
/// Pages are named in `layers`, and `number` is the place that the zone will have in [`super::Recording::zones`].
/// `read_page` gets layer and number of a page and fills in its bytes. Pages that are all zero are only listed.
///
/// In the order of first access, since this is the order in which a start needs them: what comes first can be used while
/// the rest is still on its way. Segments are compressed independently, so that any of them can be fetched alone. The same
/// pages give the same bytes with the same version of this crate (another version of zstd may compress differently).
///
/// # Errors
/// Those of `read_page` and `out`, and one if a page is outside its layer.
pub fn lay_out(
    layers: &[RecordedLayer],
    number: u16,
    front: &[u8],
    touched: impl IntoIterator<Item = PageRun>,
    out: &mut impl Write,
    mut read_page: impl FnMut(u16, u64, &mut [u8; PAGE]) -> io::Result<()>,
) -> io::Result<LaidOut> {
    let mut writer = SegmentWriter::new(number, front, out)?;
    let mut zeros = Vec::new();
    let mut known = HashSet::new();
    let mut bytes = [0; PAGE];
    for run in touched {
        let layer = layers.get(usize::from(run.layer));
        if layer.is_none_or(|layer| run.end() > layer.data_size / PAGE_SIZE) {
            let problem = format!(
                "pages {}..{} are not in layer {}",
                run.first,
                run.end(),
                run.layer
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        for page in run.first..run.end() {
            let one = PageRun {
                layer: run.layer,
                first: page,
                pages: 1,
            };
            if !known.insert((run.layer, page)) {
                continue;
            }
            read_page(run.layer, page, &mut bytes)?;
            if bytes == [0; PAGE] {
                one.push_onto(&mut zeros);
            } else {
                writer.page(one, &bytes)?;
            }
        }
    }
    let (zone, segments) = writer.finish()?;
    Ok(LaidOut {
        zone,
        segments,
        zeros,
    })
}

/// A zone that is being written.
struct SegmentWriter<'w, W> {
    out: &'w mut W,
    number: u16,
    compressor: zstd::bulk::Compressor<'static>,
    digester: Digester,
    offset: u64,
    segments: Vec<Segment>,
    /// The segment that is being filled.
    runs: Vec<PageRun>,
    plain: Vec<u8>,
}

impl<'w, W: Write> SegmentWriter<'w, W> {
    fn new(number: u16, front: &[u8], out: &'w mut W) -> io::Result<Self> {
        let mut digester = Digester::new();
        digester.update(front);
        out.write_all(front)?;
        Ok(Self {
            out,
            number,
            compressor: zstd::bulk::Compressor::new(ZSTD_LEVEL)?,
            digester,
            offset: front.len() as u64,
            segments: Vec::new(),
            runs: Vec::new(),
            plain: Vec::with_capacity(SEGMENT_PAGES * PAGE),
        })
    }

    fn page(&mut self, page: PageRun, bytes: &[u8; PAGE]) -> io::Result<()> {
        page.push_onto(&mut self.runs);
        self.plain.extend_from_slice(bytes);
        if self.plain.len() >= SEGMENT_PAGES * PAGE {
            self.close()?;
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let stored = self.compressor.compress(&self.plain)?;
        self.out.write_all(&stored)?;
        self.digester.update(&stored);
        self.segments.push(Segment {
            zone: self.number,
            offset: self.offset,
            // At most `MAX_SEGMENT_STORED`.
            length: stored.len() as u32,
            digest: SegmentDigest::of(&self.plain),
            runs: std::mem::take(&mut self.runs),
        });
        self.offset += stored.len() as u64;
        self.plain.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<(Zone, Vec<Segment>)> {
        if !self.plain.is_empty() {
            self.close()?;
        }
        let zone = Zone {
            digest: self.digester.finish(),
            size: self.offset,
        };
        Ok((zone, self.segments))
    }
}

/// Why bytes are not the segment that they should be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SegmentError {
    /// They are more or fewer than the recording says.
    #[error("a segment has {got} compressed bytes instead of {expected}")]
    Length {
        /// The length in the recording, in bytes.
        expected: u32,
        /// How many there are.
        got: usize,
    },
    /// They are not a zstd frame of the right plain size.
    #[error("cannot decompress a segment: {0}")]
    Decompress(String),
    /// The pages are not those that were recorded.
    #[error("wrong pages in a segment: expected {expected}, got {got}")]
    Digest {
        /// The digest in the recording.
        expected: SegmentDigest,
        /// The digest of the pages that came.
        got: SegmentDigest,
    },
}

/// The pages of `segment`, one after the other as [`Segment::runs`] lists them, from its compressed bytes.
///
/// # Errors
/// See [`SegmentError`]. No pages are given unless all of them are what the recording says.
pub fn open_segment(segment: &Segment, compressed: &[u8]) -> Result<Vec<u8>, SegmentError> {
    if compressed.len() as u64 != u64::from(segment.length) {
        return Err(SegmentError::Length {
            expected: segment.length,
            got: compressed.len(),
        });
    }
    // A segment that was checked has no more; one that was not checked must not cost more memory either.
    let size = segment.pages().min(MAX_SEGMENT_PAGES) * PAGE_SIZE;
    let plain =
        decompress(compressed, size as usize).map_err(|error| SegmentError::Decompress(error.to_string()))?;
    if plain.len() as u64 != size {
        let reason = format!("{} bytes instead of {size}", plain.len());
        return Err(SegmentError::Decompress(reason));
    }
    let got = segment.digest.like(&plain);
    if got != segment.digest {
        let expected = segment.digest;
        return Err(SegmentError::Digest { expected, got });
    }
    Ok(plain)
}
