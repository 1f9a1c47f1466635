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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_in_order_gets_twice_as_much_ahead_each_time_up_to_the_limit() {
        let mut reader = Sequential::default();
        assert_eq!(reader.after(3, 4), 5..5, "it may be anywhere");
        assert_eq!(reader.after(5, 5), 6..7);
        assert_eq!(reader.after(7, 7), 8..10);
        assert_eq!(reader.after(10, 12), 13..17);
        assert_eq!(reader.after(17, 17), 18..26);
        assert_eq!(reader.after(26, 26), 27..27 + MAX_AHEAD);
        assert_eq!(reader.after(26, 26), 27..27, "it went back");
        assert_eq!(reader.after(27, 27), 28..29);
    }

    #[test]
    fn the_first_span_alone_is_no_order() {
        assert_eq!(Sequential::default().after(0, 0), 1..1);
    }
}
