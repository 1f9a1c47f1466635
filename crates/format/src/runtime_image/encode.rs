//! Writes a [`Recording`] as bytes: `docs/formats/runtime-image.md` has the byte map.
//!
//! It is small enough to travel inside a manifest, since a start that asks for it alone would wait for it alone. It
//! is small since the pages of a service are not named again, but by their place in what segments and zeros list, which
//! for the recording that laid them out is simply "all, in order". Digests, which nothing compresses, are kept apart.

use std::collections::HashMap;

use super::places::{Holder, Places, listed};
use super::{PageRun, Recording, SegmentDigest, Service};
use crate::PAGE_SIZE;
use crate::columns::{ColumnWriter, join};

pub(super) const MAGIC: [u8; 8] = *b"XEBECRTI";
pub(super) const VERSION: u16 = 1;
/// The feature that zones carry indexes.
pub(super) const CARRIES_INDEXES: u16 = 1;
/// The feature that the digests of segments have kinds.
pub(super) const KINDS_OF_DIGESTS: u16 = 2;
pub(super) const DIGEST_SHA256: u8 = 0;
pub(super) const DIGEST_BLAKE3: u8 = 1;
/// The fixed header: everything before the numbers.
pub(super) const HEADER_SIZE: usize = 64;
pub(super) const COMPRESSION_ZSTD: u32 = 1;
pub(super) const IN_SEGMENTS: u8 = 0;
pub(super) const IN_ZEROS: u8 = 1;

/// Two percent smaller than level 9, and a few milliseconds: it is written once and sent at every start.
const ZSTD_LEVEL: i32 = 19;

impl Recording {
    /// The recording as bytes. The same recording gives the same bytes with the same version of this crate (another
    /// version of zstd may compress differently).
    ///
    /// Only a recording that passes [`Recording::check`] comes back from [`Recording::decode`] as it was: of others, the
    /// bytes are refused or say something else.
    pub fn encode(&self) -> Vec<u8> {
        let numbers = self.numbers();
        let stored = compress(&numbers);
        let mut out = Vec::with_capacity(HEADER_SIZE + stored.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        let feature = |is_used: bool, flag: u16| if is_used { flag } else { 0 };
        let features = feature(!self.indexes.is_empty(), CARRIES_INDEXES)
            | feature(self.has_kinds_of_digests(), KINDS_OF_DIGESTS);
        out.extend_from_slice(&features.to_le_bytes());
        out.extend_from_slice(&COMPRESSION_ZSTD.to_le_bytes());
        out.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
        out.extend_from_slice(&(stored.len() as u64).to_le_bytes());
        out.extend_from_slice(self.image.as_bytes());
        debug_assert_eq!(out.len(), HEADER_SIZE);
        out.extend_from_slice(&stored);
        for digest in self.digests() {
            out.extend_from_slice(digest);
        }
        out
    }

    /// Whether there is a digest of a segment that is not SHA-256.
    pub(super) fn has_kinds_of_digests(&self) -> bool {
        let mut segments = self.segments.iter();
        segments.any(|segment| kind_of(&segment.digest) != DIGEST_SHA256)
    }

    /// All digests but the image's, in their order at the end.
    fn digests(&self) -> impl Iterator<Item = &[u8; 32]> + '_ {
        let layers = self
            .layers
            .iter()
            .flat_map(|layer| [layer.layer.as_bytes(), layer.index.as_bytes()]);
        let zones = self.zones.iter().map(|zone| zone.digest.as_bytes());
        let segments = self.segments.iter().map(|segment| segment.digest.as_bytes());
        layers.chain(zones).chain(segments)
    }

    fn numbers(&self) -> Vec<u8> {
        let mut columns = Vec::new();
        columns.push(column(&self.layers, |c, layer| {
            c.number(layer.data_size / PAGE_SIZE);
        }));
        if !self.indexes.is_empty() {
            columns.push(self.index_column());
        }
        columns.push(column(&self.zones, |c, zone| c.number(zone.size)));
        columns.extend(self.segment_columns());
        if self.has_kinds_of_digests() {
            columns.push(column(&self.segments, |c, segment| {
                c.byte(kind_of(&segment.digest));
            }));
        }
        columns.extend(self.run_columns());
        columns.extend(self.service_columns());
        let counts = [
            self.layers.len(),
            self.zones.len(),
            self.segments.len(),
            self.zeros.len(),
            self.services.len(),
        ];
        join(&counts.map(|count| count as u64), &columns)
    }

    /// Where zones carry indexes; those of one zone are usually one after the other, in the order of the layers.
    fn index_column(&self) -> ColumnWriter {
        let mut column = ColumnWriter::default();
        column.number(self.indexes.len() as u64);
        let mut end = 0;
        for index in &self.indexes {
            column.number(index.layer.into());
            column.number(index.zone.into());
            column.difference(index.offset, end);
            column.number(index.length);
            end = index.end();
        }
        column
    }

    fn segment_columns(&self) -> [ColumnWriter; 4] {
        let mut columns = <[ColumnWriter; 4]>::default();
        let [zones, offsets, lengths, runs] = &mut columns;
        let (mut zone, mut end) = (0, 0);
        for segment in &self.segments {
            zones.difference(segment.zone.into(), zone);
            if zone != u64::from(segment.zone) {
                end = 0;
            }
            offsets.difference(segment.offset, end);
            lengths.number(segment.length.into());
            runs.number(segment.runs.len() as u64);
            (zone, end) = (segment.zone.into(), segment.end());
        }
        columns
    }

    fn run_columns(&self) -> [ColumnWriter; 3] {
        let mut columns = <[ColumnWriter; 3]>::default();
        let [layers, firsts, pages] = &mut columns;
        let mut expected = Expected::default();
        for (_, run) in listed(self) {
            layers.number(run.layer.into());
            firsts.difference(run.first, expected.first(run.layer));
            pages.number(run.pages.into());
            expected.after(run);
        }
        columns
    }

    fn service_columns(&self) -> [ColumnWriter; 7] {
        let mut columns = <[ColumnWriter; 7]>::default();
        let [facts, lengths, texts, holders, starts, pages, seen] = &mut columns;
        let places = Places::of(self);
        for service in &self.services {
            let placed = by_place(service, &places);
            facts.number(service.recorded);
            facts.byte(service.runs);
            facts.number(placed.len() as u64);
            write_texts(service, lengths, texts);
            let mut next = NextPlace::default();
            for run in placed {
                holders.byte(run.list);
                starts.difference(run.start, next.of(run.list));
                pages.number(run.pages);
                seen.byte(run.seen);
                next.after(&run);
            }
        }
        columns
    }
}

/// Where a run is expected to begin: behind the last one of the same layer, since what is read goes on.
#[derive(Default)]
pub(super) struct Expected(HashMap<u16, u64>);

impl Expected {
    pub(super) fn first(&self, layer: u16) -> u64 {
        self.0.get(&layer).copied().unwrap_or(0)
    }

    pub(super) fn after(&mut self, run: PageRun) {
        self.0.insert(run.layer, run.end());
    }
}

/// Pages that stand together in the list of the segments' pages, or in that of the zeros.
#[derive(Clone, Copy)]
pub(super) struct PlacedRun {
    /// [`IN_SEGMENTS`] or [`IN_ZEROS`].
    pub(super) list: u8,
    /// How many pages the list has before it.
    pub(super) start: u64,
    pub(super) pages: u64,
    pub(super) seen: u8,
}

/// Where the next run of a service is expected in either list: behind the last one.
#[derive(Default)]
pub(super) struct NextPlace {
    in_segments: u64,
    in_zeros: u64,
}

impl NextPlace {
    pub(super) fn of(&self, list: u8) -> u64 {
        match list {
            IN_SEGMENTS => self.in_segments,
            _ => self.in_zeros,
        }
    }

    pub(super) fn after(&mut self, run: &PlacedRun) {
        let end = run.start.saturating_add(run.pages);
        match run.list {
            IN_SEGMENTS => self.in_segments = end,
            _ => self.in_zeros = end,
        }
    }
}

/// The pages of a service by their places. A page that has none is left out.
fn by_place(service: &Service, places: &Places) -> Vec<PlacedRun> {
    let mut placed: Vec<PlacedRun> = Vec::new();
    for touched in &service.touched {
        for (part, held) in places.parts(touched.run) {
            let run = PlacedRun {
                list: match held.holder {
                    Holder::Segment(_) => IN_SEGMENTS,
                    Holder::Zeros => IN_ZEROS,
                },
                start: held.place.saturating_add(part.first - held.run.first),
                pages: part.pages.into(),
                seen: touched.seen,
            };
            match placed.last_mut() {
                Some(last)
                    if (last.list, last.start.saturating_add(last.pages), last.seen)
                        == (run.list, run.start, run.seen) =>
                {
                    last.pages += run.pages;
                }
                _ => placed.push(run),
            }
        }
    }
    placed
}

fn write_texts(service: &Service, lengths: &mut ColumnWriter, texts: &mut ColumnWriter) {
    let mut text = |lengths: &mut ColumnWriter, text: &str| {
        lengths.number(text.len() as u64);
        texts.bytes(text.as_bytes());
    };
    lengths.number(service.key.argv.len() as u64);
    for word in &service.key.argv {
        text(lengths, word);
    }
    lengths.number(service.key.env.len() as u64);
    for (name, value) in &service.key.env {
        text(lengths, name);
        text(lengths, value);
    }
    text(lengths, &service.probe);
    text(lengths, &service.recorder);
}

fn kind_of(digest: &SegmentDigest) -> u8 {
    match digest {
        SegmentDigest::Sha256(_) => DIGEST_SHA256,
        SegmentDigest::Blake3(_) => DIGEST_BLAKE3,
    }
}

fn column<T>(rows: &[T], write: impl Fn(&mut ColumnWriter, &T)) -> ColumnWriter {
    let mut column = ColumnWriter::default();
    for row in rows {
        write(&mut column, row);
    }
    column
}

#[expect(
    clippy::expect_used,
    reason = "zstd fails only without memory or with wrong parameters"
)]
fn compress(plain: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(plain, ZSTD_LEVEL).expect("zstd compresses what is in memory")
}
