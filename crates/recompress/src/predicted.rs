//! Describes a deflate stream, or the rest of one, by predictions and their corrections.

use crate::description::{Making, Part, Slice};
use crate::feed::Feed;
use crate::predict::Writer;
use xebec_deflate::format::WINDOW;
use xebec_deflate::format::inflate::Item;

/// Plain bytes of a slice, at least. Each begins with what every stream begins with, and learns anew, so shorter ones need more corrections.
const SLICE: u64 = if cfg!(test) { 256 << 10 } else { 4 << 20 };
/// Bits of a slice that end it, too: blocks may be empty.
const SLICE_BITS: u64 = 8 * (16 << 20);

/// At work on a stream.
pub(crate) struct Predicted {
    writer: Writer,
    /// Where the slice begins: plain bytes, bit of the stream, and the bits of its first byte that come before it.
    plain: u64,
    bit: u64,
    begun: (u8, u8),
    history: u64,
    /// Plain bytes that the writer was given.
    given: u64,
}

impl Predicted {
    /// Begins with the block at which the feed's items begin, which is at these places.
    pub(crate) fn new(plain: u64, bit: u64, feed: &Feed) -> Predicted {
        let history = plain.min(WINDOW as u64);
        Predicted {
            writer: Writer::new(feed.plain.slice(plain - history, plain)),
            plain,
            bit,
            begun: begun(bit, feed),
            history,
            given: plain,
        }
    }

    /// Describes what was read and not described yet. Appends whole slices to `parts`; true if the stream has ended with the last one.
    pub(crate) fn step(&mut self, feed: &mut Feed, parts: &mut Vec<Part>) -> bool {
        let mut items = std::mem::take(&mut feed.items);
        while let Some((last, plain, bit)) = self.end_of_slice(&items, feed) {
            let rest = items.split_off(last + 1);
            self.write(std::mem::replace(&mut items, rest), plain, feed);
            self.cut(plain, bit, false, feed, parts);
        }
        self.write(items, feed.plain.end(), feed);
        if feed.has_ended() {
            self.cut(feed.plain.end(), feed.bits(), true, feed, parts);
        } else {
            feed.forget_before(
                feed.plain.end().saturating_sub(2 * WINDOW as u64),
                feed.bits() / 8 * 8,
            );
        }
        feed.has_ended()
    }

    /// The first end of a block at which the slice is long enough: which item, plain bytes, bit. None at the end of the stream, which ends a slice anyway.
    fn end_of_slice(&self, items: &[Item], feed: &Feed) -> Option<(usize, u64, u64)> {
        items.iter().enumerate().find_map(|(index, item)| match item {
            Item::EndOfBlock { bit, plain } => {
                let is_long = *plain >= self.plain + SLICE || *bit >= self.bit + SLICE_BITS;
                (is_long && *bit < feed.bits()).then_some((index, *plain, *bit))
            }
            _ => None,
        })
    }

    fn write(&mut self, items: Vec<Item>, until: u64, feed: &Feed) {
        self.writer.write(items, feed.plain.slice(self.given, until));
        self.given = until;
    }

    fn cut(&mut self, plain: u64, bit: u64, is_last: bool, feed: &Feed, parts: &mut Vec<Part>) {
        parts.push(Part::Slice(Slice {
            plain: plain - self.plain,
            history: self.history as u32,
            lookahead: 0,
            bits: bit - self.bit,
            begun: self.begun,
            is_last,
            making: Making::Corrections {
                is_first: self.bit == 0,
                corrections: self.writer.cut(),
            },
        }));
        (self.plain, self.bit, self.begun) = (plain, bit, begun(bit, feed));
        self.history = plain.min(WINDOW as u64);
    }
}

/// The bits of the byte at `bit` that come before it.
fn begun(bit: u64, feed: &Feed) -> (u8, u8) {
    let count = (bit % 8) as u8;
    let byte = feed
        .stream
        .slice(bit / 8, bit / 8 + 1)
        .first()
        .copied()
        .unwrap_or_default();
    (count, byte & ((1 << count) - 1))
}
