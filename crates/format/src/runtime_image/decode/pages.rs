//! Reads the segments and the zeros: where pages are.

use super::{DecodeError, fixed, length, limit};
use crate::columns::{Column, ColumnError};
use crate::digest::Digest;
use crate::layer::limits::MAX_FILE;
use crate::runtime_image::encode::{DIGEST_BLAKE3, DIGEST_SHA256, Expected};
use crate::runtime_image::limits::{MAX_LAYERS, MAX_RUNS, MAX_SEGMENT_PAGES, MAX_SEGMENT_STORED, MAX_ZONES};
use crate::runtime_image::{PageRun, Segment, SegmentDigest};

/// Reads `segments` segments and `zeros` runs of zeros. Unless the digests of segments `have_kinds`, all are SHA-256.
pub(super) fn read(
    segments: usize,
    zeros: usize,
    have_kinds: bool,
    body: &mut Column<'_>,
    digests: &mut Column<'_>,
) -> Result<(Vec<Segment>, Vec<PageRun>), DecodeError> {
    let mut zone_numbers = body.column("zones of segments")?;
    let mut offsets = body.column("offsets of segments")?;
    let mut lengths = body.column("lengths of segments")?;
    let mut run_counts = body.column("numbers of runs of segments")?;
    let mut kinds = match have_kinds {
        true => Some(body.column("kinds of the digests of segments")?),
        false => None,
    };
    let mut runs = Runs::new(body)?;
    let mut found: Vec<Segment> = Vec::new();
    let (mut zone, mut end) = (0, 0);
    for _ in 0..segments {
        let number = zone_numbers.difference(zone)?;
        limit("the zone of a segment", number, MAX_ZONES)?;
        if number != zone {
            (zone, end) = (number, 0);
        }
        let offset = offsets.difference(end)?;
        limit("the offset of a segment", offset, MAX_FILE)?;
        let segment = Segment {
            zone: number as u16,
            offset,
            length: lengths.count(MAX_SEGMENT_STORED)? as u32,
            digest: digest(kinds.as_mut(), digests)?,
            runs: {
                let count = run_counts.count(MAX_SEGMENT_PAGES)?;
                runs.take(count)?
            },
        };
        end = segment.end();
        found.push(segment);
    }
    let zeros = runs.take(zeros)?;
    zone_numbers.finish()?;
    offsets.finish()?;
    lengths.finish()?;
    run_counts.finish()?;
    if let Some(kinds) = kinds {
        kinds.finish()?;
    }
    runs.finish()?;
    Ok((found, zeros))
}

fn digest(kinds: Option<&mut Column<'_>>, digests: &mut Column<'_>) -> Result<SegmentDigest, DecodeError> {
    let kind = match kinds {
        Some(kinds) => kinds.byte()?,
        None => DIGEST_SHA256,
    };
    let bytes = fixed(digests)?;
    match kind {
        DIGEST_SHA256 => Ok(SegmentDigest::Sha256(Digest::from_bytes(bytes))),
        DIGEST_BLAKE3 => Ok(SegmentDigest::Blake3(bytes)),
        other => Err(DecodeError::Unknown {
            what: "kind of a segment's digest",
            value: other.into(),
        }),
    }
}

/// The columns of runs of pages, those of the segments first.
struct Runs<'a> {
    layers: Column<'a>,
    firsts: Column<'a>,
    pages: Column<'a>,
    expected: Expected,
    count: u64,
}

impl<'a> Runs<'a> {
    fn new(body: &mut Column<'a>) -> Result<Self, ColumnError> {
        Ok(Self {
            layers: body.column("layers of runs of pages")?,
            firsts: body.column("first pages of runs of pages")?,
            pages: body.column("lengths of runs of pages")?,
            expected: Expected::default(),
            count: 0,
        })
    }

    fn take(&mut self, count: usize) -> Result<Vec<PageRun>, DecodeError> {
        self.count += count as u64;
        limit("runs of pages", self.count, MAX_RUNS)?;
        let mut runs = Vec::new();
        for _ in 0..count {
            let layer = self.layers.count(MAX_LAYERS)? as u16;
            let run = PageRun {
                layer,
                first: self.firsts.difference(self.expected.first(layer))?,
                pages: length(&mut self.pages)? as u32,
            };
            self.expected.after(run);
            runs.push(run);
        }
        Ok(runs)
    }

    fn finish(self) -> Result<(), ColumnError> {
        self.layers.finish()?;
        self.firsts.finish()?;
        self.pages.finish()
    }
}
