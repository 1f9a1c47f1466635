//! The contents of files, cut into chunks and runs of zeros.
//!
//! Contents are looked at in blocks of 4 KiB, as sparse files have their holes. Sixteen blocks of zeros or more are a run of zeros, and so is a file of
//! nothing else; what is between such runs is cut. A shorter run would cost more than it saves, since zeros compress well.

use super::content_cut::Lengths;
use super::piece::{Cutter, Piece, Sink, is_zero};
use crate::chunk::{Hint, MOST_CHUNK};

const BLOCK: usize = 4 << 10;
const LEAST_ZEROS: u64 = 64 << 10;
/// Files longer than this are cut by content, if any are.
const MOST_UNCUT: u64 = 256 << 10;

/// Cuts the contents of one file after another.
pub(super) struct Contents {
    /// How chunks are cut by content, if long files are.
    by_content: Option<Lengths>,
    /// Whether this file is cut by content.
    is_cut: bool,
    hint: Hint,
    /// Of a block, what has come.
    block: Vec<u8>,
    /// Zeros that have come after what is in the buffer.
    zeros: u64,
    /// Whether nothing but zeros has come.
    is_all_zero: bool,
    /// What is in no chunk yet, from `start` on. At most [`MOST_CHUNK`] bytes, or twice a chunk.
    buffer: Vec<u8>,
    start: usize,
}

impl Contents {
    pub(super) fn new(cutter: Cutter) -> Contents {
        let by_content = match cutter {
            Cutter::Files => None,
            Cutter::Content { average } => Some(Lengths::around(average)),
        };
        Contents {
            by_content,
            is_cut: false,
            hint: Hint::default(),
            block: Vec::with_capacity(BLOCK),
            zeros: 0,
            is_all_zero: true,
            buffer: Vec::new(),
            start: 0,
        }
    }

    /// A file of `size` bytes begins, or of any number if that is not known.
    pub(super) fn begin(&mut self, hint: Hint, size: Option<u64>) {
        self.hint = hint;
        self.is_cut = self.by_content.is_some() && size.is_none_or(|size| size > MOST_UNCUT);
        self.is_all_zero = true;
        let wanted = size.map_or(0, |size| size.min(MOST_CHUNK as u64) as usize);
        // Grown by doubling it would take half as much again for a moment.
        if !self.is_cut && wanted > self.buffer.capacity() {
            self.buffer.reserve_exact(wanted - self.buffer.len());
        }
    }

    /// The next bytes of the file.
    pub(super) fn put(&mut self, mut bytes: &[u8], sink: &mut Sink<'_>) {
        while !bytes.is_empty() {
            let length = bytes.len().min(BLOCK - self.block.len());
            let (own, rest) = bytes.split_at(length);
            bytes = rest;
            if length == BLOCK {
                self.take(own, sink);
                continue;
            }
            self.block.extend_from_slice(own);
            if self.block.len() == BLOCK {
                self.take_gathered(sink);
            }
        }
    }

    /// The file ends.
    pub(super) fn end(&mut self, sink: &mut Sink<'_>) {
        self.take_gathered(sink);
        self.settle_zeros(sink);
        self.cut_all(sink);
    }

    fn take_gathered(&mut self, sink: &mut Sink<'_>) {
        let mut block = std::mem::take(&mut self.block);
        self.take(&block, sink);
        block.clear();
        self.block = block;
    }

    /// The next block; the last one may be shorter.
    fn take(&mut self, block: &[u8], sink: &mut Sink<'_>) {
        if is_zero(block) {
            self.zeros += block.len() as u64;
            return;
        }
        self.is_all_zero = false;
        self.settle_zeros(sink);
        self.gather(block, sink);
    }

    /// A run of zeros is over: it is a piece, or part of what is cut.
    fn settle_zeros(&mut self, sink: &mut Sink<'_>) {
        let zeros = std::mem::take(&mut self.zeros);
        if zeros >= LEAST_ZEROS || (self.is_all_zero && zeros > 0) {
            self.cut_all(sink);
            sink(Piece::Zeros(zeros));
            self.hint.offset += zeros;
            return;
        }
        let mut left = zeros as usize;
        while left > 0 {
            let length = left.min(BLOCK);
            self.gather(ZEROS.get(..length).unwrap_or_default(), sink);
            left -= length;
        }
    }

    /// Bytes of a chunk, at most.
    fn most(&self) -> usize {
        match &self.by_content {
            Some(lengths) if self.is_cut => lengths.most,
            _ => MOST_CHUNK,
        }
    }

    /// How long the next chunk is.
    fn cut(&self) -> usize {
        let rest = self.buffer.get(self.start..).unwrap_or_default();
        match &self.by_content {
            Some(lengths) if self.is_cut => lengths.cut(rest),
            _ => rest.len().min(MOST_CHUNK),
        }
    }

    /// Appends bytes of the file, a block at most, and passes on chunks that are complete.
    fn gather(&mut self, bytes: &[u8], sink: &mut Sink<'_>) {
        // What was passed on is removed once it is as much as a chunk.
        if self.start >= self.most() {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
        while self.buffer.len() - self.start >= self.most() {
            self.pass_on(self.cut(), sink);
        }
    }

    /// Passes all on: a run of zeros follows, or the end.
    fn cut_all(&mut self, sink: &mut Sink<'_>) {
        while self.buffer.len() > self.start {
            self.pass_on(self.cut(), sink);
        }
    }

    fn pass_on(&mut self, length: usize, sink: &mut Sink<'_>) {
        let end = self.start + length;
        let bytes = self.buffer.get(self.start..end).unwrap_or_default();
        if self.hint.offset == 0 {
            self.hint.kind = Hint::kind_of(bytes);
        }
        sink(Piece::Chunk {
            bytes,
            hint: &self.hint,
        });
        self.hint.offset += length as u64;
        self.start = end;
        if end == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
    }
}

static ZEROS: [u8; BLOCK] = [0; BLOCK];
