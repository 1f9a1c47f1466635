//! The segments that a start needs, and the byte ranges to fetch them by.

use std::collections::BTreeSet;
use std::ops::Range;

use super::places::{Holder, Places};
use super::{PageRun, Recording, Segment, Service};

/// Bytes of a zone to be asked for at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneRange {
    /// The zone's place in [`Recording::zones`].
    pub zone: u16,
    /// The bytes, from the start of the first segment to the end of the last.
    pub bytes: Range<u64>,
    /// Which of the wanted segments are in it, as places in the list that [`ranges`] was given.
    pub wanted: Range<usize>,
}

/// The segments that hold at least one page that `service` reads and that is missing, as places in
/// [`Recording::segments`], ascending, which is ascending by zone and offset.
///
/// `is_missing` is asked for runs of pages that the service reads and one segment holds: whether at least one of them is
/// missing. Zeros are in no segment and are not asked for.
pub fn wanted(recording: &Recording, service: &Service, is_missing: impl Fn(&PageRun) -> bool) -> Vec<usize> {
    let places = Places::of(recording);
    let mut wanted = BTreeSet::new();
    for touched in &service.touched {
        for (part, held) in places.parts(touched.run) {
            if let Holder::Segment(number) = held.holder
                && !wanted.contains(&number)
                && is_missing(&part)
            {
                wanted.insert(number);
            }
        }
    }
    wanted.into_iter().collect()
}

/// The byte ranges that bring the segments `wanted` (places in `segments`, ascending, as [`wanted`] gives them). Two
/// segments of a zone are in one range if at most `bridge` bytes are between them: to read over these then costs less
/// than another request.
///
/// Places outside of `segments` are passed over.
pub fn ranges(segments: &[Segment], wanted: &[usize], bridge: u64) -> Vec<ZoneRange> {
    let mut ranges: Vec<ZoneRange> = Vec::new();
    for (place, number) in wanted.iter().enumerate() {
        let Some(segment) = segments.get(*number) else {
            continue;
        };
        match ranges.last_mut() {
            Some(last)
                if last.zone == segment.zone
                    && segment.offset >= last.bytes.end
                    && segment.offset - last.bytes.end <= bridge =>
            {
                last.bytes.end = segment.end();
                last.wanted.end = place + 1;
            }
            _ => ranges.push(ZoneRange {
                zone: segment.zone,
                bytes: segment.offset..segment.end(),
                wanted: place..place + 1,
            }),
        }
    }
    ranges
}
