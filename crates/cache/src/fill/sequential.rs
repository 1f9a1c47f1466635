//! Read-ahead: whether a reader reads a layer in order, and what to fetch ahead then.

use std::ops::Range;

/// Spans fetched ahead of a sequential reader at most.
const MAX_AHEAD: usize = 8;

/// Recognises a reader that goes through the layer in order.
#[derive(Default)]
pub(super) struct Sequential {
    next: usize,
    ahead: usize,
}

impl Sequential {
    /// Notes that spans up to `last` were asked for, from `first`; gives the spans to fetch ahead.
    pub(super) fn after(&mut self, first: usize, last: usize) -> Range<usize> {
        let follows = first == self.next && self.next != 0;
        self.ahead = if follows {
            (self.ahead * 2).clamp(1, MAX_AHEAD)
        } else {
            0
        };
        self.next = last + 1 + self.ahead;
        last + 1..self.next
    }
}
