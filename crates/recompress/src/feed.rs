//! One deflate stream as far as it was read: its plain bytes, its own bytes, and what it says of flushes and of its end. A proof that an
//! encoder makes this stream again reads from here, more than once if a first try fails; [`Feed::forget_before`] bounds what is kept.

use crate::kept::Kept;
use xebec_deflate::format::inflate::{BlockKind, Inflater, InvalidDeflate, Item};

/// A place at which the writer of the stream flushed: an empty stored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flush {
    /// Plain bytes before it.
    pub(crate) plain: u64,
    /// Where the empty block begins.
    pub(crate) bit: u64,
}

/// What is known of a deflate stream.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    inflater: Inflater,
    /// Plain bytes.
    pub(crate) plain: Kept,
    /// The stream's own bytes.
    pub(crate) stream: Kept,
    /// Flushes, those before the first kept plain byte too.
    pub(crate) flushes: Vec<Flush>,
    /// How many blocks began.
    pub(crate) blocks: u64,
    /// What the stream says from the block at [`Feed::items_from`] on.
    pub(crate) items: Vec<Item>,
    /// The bit at which `items` begins.
    pub(crate) items_from: u64,
}

impl Feed {
    /// Takes bytes of the stream, or bytes after its end, which [`Feed::take_rest`] gives back.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.stream.push(bytes);
    }

    /// Reads on, and returns the plain bytes that came: none if more input is needed or the stream has ended. With `is_end`, nothing more will be pushed.
    ///
    /// # Errors
    ///
    /// [`InvalidDeflate`].
    pub(crate) fn read(&mut self, is_end: bool) -> Result<&[u8], InvalidDeflate> {
        let items_before = self.items.len();
        let plain_before = self.plain.end();
        let input = self.stream.slice(self.inflater.position() / 8, u64::MAX);
        let plain = self.inflater.read(input, is_end, &mut self.items)?;
        self.plain.push(plain);
        let new = &self.items[items_before..];
        self.blocks += new.iter().filter(|item| matches!(item, Item::Block(_))).count() as u64;
        self.flushes.extend(new.iter().filter_map(flush_of));
        Ok(self.plain.slice(plain_before, u64::MAX))
    }

    /// After the end of the stream: the bytes that were pushed after it.
    pub(crate) fn take_rest(&mut self) -> Vec<u8> {
        self.stream.split_off(self.bits().div_ceil(8))
    }

    /// Whether the stream has ended. Then `plain` ends where it does, and `stream` does after [`Feed::take_rest`].
    pub(crate) fn has_ended(&self) -> bool {
        self.inflater.has_ended()
    }

    /// After the end of the stream: whether the bits that fill its last byte are zero, as every encoder that is known leaves them.
    pub(crate) fn is_filled_with_zeros(&self) -> bool {
        let last = self.bits() / 8;
        self.bits().is_multiple_of(8)
            || self
                .stream
                .slice(last, last + 1)
                .first()
                .is_some_and(|byte| byte >> (self.bits() % 8) == 0)
    }

    /// How many bits of the stream were read.
    pub(crate) fn bits(&self) -> u64 {
        self.inflater.position()
    }

    /// Lets plain bytes before `plain`, bytes of the stream before `bit`, and what the stream says before the block at `bit`, go.
    pub(crate) fn forget_before(&mut self, plain: u64, bit: u64) {
        self.plain.forget_before(plain);
        self.stream.forget_before(bit / 8);
        let block = |item: &Item| matches!(item, Item::Block(head) if head.bit >= bit);
        let first = self.items.iter().position(block).unwrap_or(self.items.len());
        self.items.drain(..first);
        self.items_from = bit;
    }
}

fn flush_of(item: &Item) -> Option<Flush> {
    match item {
        Item::Block(head) if !head.is_last && matches!(head.kind, BlockKind::Stored { length: 0, .. }) => {
            Some(Flush {
                plain: head.plain,
                bit: head.bit,
            })
        }
        _ => None,
    }
}
