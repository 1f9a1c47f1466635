//! What the match finders of klauspost/compress share.

use super::Span;
use super::common::{common, four};
use crate::frame::Frame;
use crate::sequences::{Distances, Sequence};

/// Distances of earlier blocks are not used: only after so many sequences of a block copies by a last distance are looked for.
const OWN_SEQUENCES: usize = 3;

/// Where the encoder is in a block.
#[derive(Debug, Clone, Default)]
pub(super) struct Walk {
    window: usize,
    /// Whether the frame is one block.
    pub(super) is_single: bool,
    size: Option<u64>,
    /// Where its frame begins.
    pub(super) frame: usize,
    pub(super) end: usize,
    /// The search ends before this place.
    pub(super) limit: usize,
    /// The end of the last copy, and where the search goes on.
    pub(super) anchor: usize,
    pub(super) place: usize,
    pub(super) distances: [usize; 3],
    pub(super) sequences: usize,
}

impl Walk {
    pub(super) fn begin_frame(&mut self, frame: &Frame) {
        self.window = usize::try_from(frame.window).unwrap_or(usize::MAX);
        self.size = frame.size;
    }

    /// A block begins, in which the search ends `margin` bytes before its end; a block of fewer than `least` bytes has no copies.
    pub(super) fn begin_block(&mut self, span: &Span, margin: usize, least: usize) {
        let size = span.end - span.start;
        self.is_single = span.position == 0 && self.size == Some(size as u64);
        self.frame = span.frame;
        self.end = span.end;
        self.limit = if size < least {
            0
        } else {
            span.end.saturating_sub(margin)
        };
        self.anchor = span.start;
        self.place = span.start;
        self.distances = span.distances.0.map(|distance| distance as usize);
        self.sequences = 0;
    }

    /// Whether copies by a last distance are looked for.
    #[inline]
    pub(super) fn may_repeat(&self) -> bool {
        self.sequences >= OWN_SEQUENCES
    }

    /// The place of a table's entry, which is one more than it is, if `place` may reach it.
    #[inline]
    pub(super) fn reached(&self, entry: u32, place: usize) -> Option<usize> {
        let from = (entry as usize).checked_sub(1)?;
        (from < place && place - from < self.window && from >= self.frame).then_some(from)
    }

    /// The same for a place that may also be before the text.
    #[inline]
    pub(super) fn reached_place(&self, from: usize, place: usize) -> bool {
        from < place && place - from < self.window && from >= self.frame
    }

    /// Where `place` is at a last distance, if four bytes there are the same.
    #[inline]
    pub(super) fn again(&self, text: &[u8], place: usize, distance: usize) -> Option<usize> {
        let from = place
            .checked_sub(distance)
            .filter(|&from| from >= self.frame && distance > 0)?;
        (four(text, from) == four(text, place)).then_some(from)
    }

    /// The first place that a copy at `place` may begin at when it is made longer to the front.
    #[inline]
    pub(super) fn least_from(&self, place: usize) -> usize {
        place.saturating_sub(self.window).max(self.frame)
    }

    /// A copy by the last distance, from `place` on; it begins at least one byte behind the last copy.
    pub(super) fn repeat(&self, text: &[u8], place: usize, from: usize, searched: usize) -> Sequence {
        let length = common(text, place, from, self.end);
        let before =
            super::common::common_before(text, place, from, self.anchor + 1, self.least_from(searched));
        Sequence {
            literals: (place - before - self.anchor) as u32,
            length: (length + before) as u32,
            offset: 1,
        }
    }

    /// A copy that was found at `place`, made longer to the front.
    pub(super) fn copy(&self, text: &[u8], place: usize, from: usize, length: usize) -> Sequence {
        let before = super::common::common_before(text, place, from, self.anchor, self.least_from(place));
        Sequence {
            literals: (place - before - self.anchor) as u32,
            length: (length + before) as u32,
            offset: (place - from) as u32 + 3,
        }
    }

    /// Right behind a copy: one by the distance before the last one.
    pub(super) fn behind(&self, text: &[u8]) -> Option<Sequence> {
        let from = self.again(text, self.place, self.distances[1])?;
        Some(Sequence {
            literals: 0,
            length: common(text, self.place, from, self.end) as u32,
            offset: 1,
        })
    }

    /// Goes on behind a sequence, and returns where its copy begins.
    pub(super) fn follow(&mut self, sequence: Sequence, distances: &Distances) -> usize {
        let start = self.anchor + sequence.literals as usize;
        self.distances = distances.0.map(|distance| distance as usize);
        self.anchor = start + sequence.length as usize;
        self.place = self.anchor;
        self.sequences += 1;
        start
    }

    /// How far the search goes when it has found nothing at a place.
    #[inline]
    pub(super) fn step(&self, least: usize, strength: u32) -> usize {
        least + ((self.place - self.anchor) >> (strength - 1))
    }
}
