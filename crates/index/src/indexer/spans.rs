//! Builds the span table from access points and file contents.
//!
//! Where two access points are too far apart for a span (one huge zstd frame, say), the stretch between them is cut
//! into parts. A part has a range of the data space and a digest like any span, so that what a host keeps
//! can be checked, but nothing can decode it alone. Its source is a single byte, which no real span's is.

use std::collections::VecDeque;
use std::ops::Range;

use xebec_format::digest::{Digest, Digester};

use super::MAX_LAZY_PLAIN;
use super::scan::Point;
use crate::decode::{MAX_SPAN_DATA, MAX_SPAN_SOURCE, PART_SOURCE};

/// A span whose window has no place in the windows section yet.
pub(super) struct Spanned {
    pub(super) source: Range<u64>,
    pub(super) bit: u8,
    pub(super) plain: Range<u64>,
    pub(super) data: Range<u64>,
    /// Number of the history that it needs.
    pub(super) history: Option<usize>,
    pub(super) digest: Digest,
}

/// Where spans are cut.
enum Cut {
    /// At the access points that the scan finds: those not yet reached, ascending.
    Points(VecDeque<Point>),
    /// Anywhere (a plain tar): where the data space crosses a multiple of this many bytes.
    Grid(u64),
}

/// Contents seen since the last cut.
struct Open {
    plain: Range<u64>,
    data: Range<u64>,
    digest: Digester,
}

pub(super) struct SpanBuilder {
    cut: Cut,
    /// The point that decoding of the open span starts at.
    point: Option<Point>,
    /// If the open span is a part: where in the plain stream it starts.
    part: Option<u64>,
    open: Option<Open>,
    spans: Vec<Spanned>,
}

impl SpanBuilder {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// For a blob with access points.
    pub(super) fn with_points() -> Self {
        Self {
            cut: Cut::Points(VecDeque::new()),
            point: None,
            part: None,
            open: None,
            spans: Vec::new(),
        }
    }

    /// For a blob that can be read from anywhere.
    pub(super) fn with_grid(spacing: u64) -> Self {
        Self {
            cut: Cut::Grid(spacing),
            point: None,
            part: None,
            open: None,
            spans: Vec::new(),
        }
    }

    /// Takes note of a point before contents that follow it.
    pub(super) fn point(&mut self, point: Point) {
        if let Cut::Points(ahead) = &mut self.cut {
            ahead.push_back(point);
        }
    }

    /// Takes contents at `plain` of the plain stream and `data` of the data space.
    pub(super) fn content(&mut self, mut plain: u64, mut data: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room(plain, data);
            let (now, later) = bytes.split_at(usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len()));
            let length = now.len() as u64;
            let open = self.open.get_or_insert_with(|| Open {
                plain: plain..plain,
                data: data..data,
                digest: Digester::new(),
            });
            hash_zeros(&mut open.digest, data - open.data.end);
            open.digest.update(now);
            (plain, data, bytes) = (plain + length, data + length, later);
            (open.plain.end, open.data.end) = (plain, data);
        }
    }

    /// Cuts if it is time, then tells how many bytes may follow before the next cut.
    fn room(&mut self, plain: u64, data: u64) -> u64 {
        match &mut self.cut {
            Cut::Grid(spacing) => {
                let spacing = *spacing;
                if self
                    .open
                    .as_ref()
                    .is_some_and(|open| open.data.start / spacing != data / spacing)
                {
                    self.close_exact();
                }
                spacing - data % spacing
            }
            Cut::Points(ahead) => {
                let mut reached = None;
                while let Some(&point) = ahead.front().filter(|point| point.plain <= plain) {
                    ahead.pop_front();
                    // Frame bytes belong to no span, so only the first point after the open one
                    // matters as its end, and only the last one reached as the next start.
                    reached = Some((reached.map_or(point, |(first, _)| first), point));
                }
                let room = ahead.front().map_or(u64::MAX, |next| next.plain - plain);
                if let Some((end, start)) = reached {
                    self.close_at(end.source + u64::from(end.bit > 0), end.plain);
                    (self.point, self.part) = (Some(start), None);
                }
                room.min(self.room_in_span(plain, data))
            }
        }
    }

    /// How many bytes may follow in the open span, which becomes a part if it is too large already.
    fn room_in_span(&mut self, plain: u64, data: u64) -> u64 {
        let start = self.part.or(self.point.map(|point| point.plain)).unwrap_or(plain);
        let data_start = self.open.as_ref().map_or(data, |open| open.data.start);
        if plain - start >= MAX_LAZY_PLAIN || data - data_start >= MAX_SPAN_DATA {
            // The first one becomes a part when it ends.
            self.part = self.part.or(Some(start));
            self.close_at(0, plain);
            self.part = Some(plain);
            return MAX_LAZY_PLAIN;
        }
        (MAX_LAZY_PLAIN - (plain - start)).min(MAX_SPAN_DATA - (data - data_start))
    }

    /// Ends the open span, whose codec data end at `source` and decode up to `plain`.
    fn close_at(&mut self, source: u64, plain: u64) {
        let (Some(open), Some(point)) = (self.open.take(), self.point) else {
            return;
        };
        let part = match self.part {
            None if source - point.source > MAX_SPAN_SOURCE => Some(point.plain),
            part => part,
        };
        let start = part.unwrap_or(point.plain);
        self.spans.push(Spanned {
            source: point.source..if part.is_some() {
                point.source + PART_SOURCE
            } else {
                source
            },
            bit: if part.is_some() { 0 } else { point.bit },
            // Contents end before that; nobody needs what may follow them.
            plain: start..plain.min(start + MAX_LAZY_PLAIN),
            data: open.data,
            history: point.history.filter(|_| part.is_none()),
            digest: open.digest.finish(),
        });
    }

    /// Ends the open span of a plain tar.
    fn close_exact(&mut self) {
        if let Some(open) = self.open.take() {
            self.spans.push(Spanned {
                source: open.plain.clone(),
                bit: 0,
                plain: open.plain,
                data: open.data,
                history: None,
                digest: open.digest.finish(),
            });
        }
    }

    /// The spans of a blob whose codec data end at `source` and decode to `plain` bytes.
    pub(super) fn finish(mut self, source: u64, plain: u64) -> Vec<Spanned> {
        match &mut self.cut {
            Cut::Grid(_) => self.close_exact(),
            // Points may lie behind the last contents.
            Cut::Points(ahead) => match ahead.pop_front() {
                Some(next) => self.close_at(next.source + u64::from(next.bit > 0), next.plain),
                None => self.close_at(source, plain),
            },
        }
        self.spans
    }
}

/// Hashes `count` zeros.
pub(super) fn hash_zeros(digest: &mut Digester, mut count: u64) {
    const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
    while count > 0 {
        let length = count.min(ZEROS.len() as u64);
        digest.update(&ZEROS[..length as usize]);
        count -= length;
    }
}
