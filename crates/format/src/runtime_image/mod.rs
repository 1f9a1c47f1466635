//! Runtime images: which pages of an image a service reads at start, and where else than in the layers they are.
//!
//! A [`Recording`] is the part that says so. It names pages of the **data spaces** of layers (see [`crate::layer`]), so
//! it belongs to layer indexes, not to blobs: with another index of the same layer the same page may be another one. The
//! pages themselves are in **zones**: blobs of **segments**, each of which is some pages, compressed by themselves and
//! with a digest of their own. Pages that are all zero are in no segment; they are only listed. Before its segments a zone
//! may carry the layer indexes, so that a host that has nothing of the image gets all that a start needs by one request.
//!
//! A recording never changes once it is published. The next one of the same image may use segments of the zones before
//! it, so that a page is stored once however many services read it.
//!
//! * [`Recording::encode`], [`Recording::decode`], [`Recording::check`]: the bytes, and the promises that they keep.
//! * [`lay_out`]: pages in the order in which they were read become a zone.
//! * [`wanted`], [`ranges`], [`open_segment`]: the segments to ask for, the ranges to ask by, and the pages that came.

mod check;
mod decode;
mod encode;
pub mod limits;
mod places;
mod plan;
mod segment;
mod segment_digest;

use std::collections::BTreeMap;

pub use crate::columns::ColumnError;
pub use check::InvalidRecording;
pub use decode::DecodeError;
pub use plan::{ZoneRange, ranges, wanted};
pub use segment::{LaidOut, SEGMENT_PAGES, SegmentError, lay_out, open_segment};
pub use segment_digest::SegmentDigest;

use crate::digest::Digest;

/// Which pages the services of an image read at start, in which order, and where these pages are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Digest of the image's manifest (of one platform).
    pub image: Digest,
    /// The layers that pages are named in, each once, in any order; usually as in the image, lowest first.
    pub layers: Vec<RecordedLayer>,
    /// The services that were recorded, no [`ServiceKey`] twice.
    pub services: Vec<Service>,
    /// Pages that are all zero, each once and in no segment; usually in the order in which they were first read.
    pub zeros: Vec<PageRun>,
    /// The blobs that hold the segments, each once.
    pub zones: Vec<Zone>,
    /// The segments, ascending by zone and offset, not overlapping. No page is in two of them.
    pub segments: Vec<Segment>,
    /// Where zones carry the indexes of layers, in any order; an index may be in several zones, or in none.
    pub indexes: Vec<BundledIndex>,
}

/// A layer that pages of a [`Recording`] are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedLayer {
    /// Digest of the layer blob.
    pub layer: Digest,
    /// Digest of the encoded layer index whose data space the page numbers are of.
    pub index: Digest,
    /// Length of that data space in bytes; a multiple of the page size.
    pub data_size: u64,
}

/// The place of an encoded layer index (as [`crate::layer::LayerIndex::encode`] gives it) in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundledIndex {
    /// The layer's place in [`Recording::layers`].
    pub layer: u16,
    /// The zone's place in [`Recording::zones`].
    pub zone: u16,
    /// Where its bytes begin in the zone.
    pub offset: u64,
    /// How many there are, over 0.
    pub length: u64,
}

impl BundledIndex {
    /// Where its bytes end in the zone.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// Neighbouring pages of one layer's data space, one or more.
///
/// In a list, neighbours are in one run: a run that goes on where the one before it ended would be the same said twice,
/// and is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageRun {
    /// The layer's place in [`Recording::layers`].
    pub layer: u16,
    /// Number of the first page: its offset in the data space divided by the page size.
    pub first: u64,
    /// How many pages, over 0.
    pub pages: u32,
}

/// A run of pages that a service reads at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeenRun {
    /// The pages.
    pub run: PageRun,
    /// How many of the service's [`runs`](Service::runs) read them; 1 to all.
    pub seen: u8,
}

/// The command line and environment of a container: another key makes it another service of the same image.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceKey {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its environment, as far as it tells services apart.
    pub env: BTreeMap<String, String>,
}

/// The recording of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The command line and environment that were run.
    pub key: ServiceKey,
    /// How it was known that the start was over; for people.
    pub probe: String,
    /// When it was recorded, in seconds since 1970.
    pub recorded: u64,
    /// How often it was started for this recording, over 0.
    pub runs: u8,
    /// Which program recorded it, as `xebec 0.1.0`; for people.
    pub recorder: String,
    /// The pages that were read, in the order in which they were first read, each once.
    pub touched: Vec<SeenRun>,
}

/// How the recorder of a service ends that no host has run: its pages are predicted from a recording of an earlier version of the image.
pub const PREDICTED: &str = " predict";

impl Service {
    /// Whether its pages are predicted, so that a recording of it counts more.
    pub fn is_predicted(&self) -> bool {
        self.recorder.ends_with(PREDICTED)
    }
}

/// A blob that holds segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Digest of the blob.
    pub digest: Digest,
    /// Size of the blob in bytes.
    pub size: u64,
}

/// Some pages, compressed together as one zstd frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The zone's place in [`Recording::zones`].
    pub zone: u16,
    /// Where the compressed bytes begin in the zone.
    pub offset: u64,
    /// How many compressed bytes there are, over 0.
    pub length: u32,
    /// Digest of the plain bytes: the pages one after the other.
    pub digest: SegmentDigest,
    /// The pages, in their order in the plain bytes; at least one.
    pub runs: Vec<PageRun>,
}

impl Recording {
    /// The recording of the service with this key.
    pub fn service(&self, key: &ServiceKey) -> Option<&Service> {
        self.services.iter().find(|service| service.key == *key)
    }
}

impl PageRun {
    /// The number of the page after the last one.
    pub fn end(&self) -> u64 {
        self.first.saturating_add(u64::from(self.pages))
    }

    /// Puts the run behind `runs`, as part of the last one of them if it goes on there.
    pub fn push_onto(self, runs: &mut Vec<PageRun>) {
        match runs.last_mut().and_then(|last| last.joined(self)) {
            Some((last, whole)) => *last = whole,
            None => runs.push(self),
        }
    }

    /// Whether `self` goes on where `before` ends.
    fn continues(&self, before: &PageRun) -> bool {
        self.layer == before.layer && self.first == before.end()
    }

    /// The run itself and what it becomes with `next`, if that goes on where it ends.
    fn joined(&mut self, next: PageRun) -> Option<(&mut PageRun, PageRun)> {
        let pages = self
            .pages
            .checked_add(next.pages)
            .filter(|_| next.continues(self))?;
        let whole = PageRun { pages, ..*self };
        Some((self, whole))
    }
}

impl SeenRun {
    /// Puts the run behind `runs`, as part of the last one of them if it goes on there and was seen as often.
    pub fn push_onto(self, runs: &mut Vec<SeenRun>) {
        let last = runs.last_mut().filter(|last| last.seen == self.seen);
        match last.and_then(|last| last.run.joined(self.run)) {
            Some((last, whole)) => *last = whole,
            None => runs.push(self),
        }
    }
}

impl Segment {
    /// How many pages it holds.
    pub fn pages(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.pages)).sum()
    }

    /// Where the compressed bytes end in the zone.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }
}
