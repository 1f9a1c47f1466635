//! The framing of klauspost/pgzip (github.com/klauspost/pgzip 1.2.6, MIT licence): one deflate stream of blocks that were compressed side by side.
//!
//! Each block is the work of an encoder of its own, which has the last 16 KiB of the block before as its dictionary, if that one is longer, and ends
//! in a flush. After the last block, which may be empty, comes the empty block that ends a stream. So nothing but those 16 KiB goes from a block to
//! the next, and each end of a block is a cut. There are no other cuts.
//!
//! buildah, podman, skopeo, umoci and apko compress so, at level 5 and with blocks of 1 MiB.

use super::generation::Generation;
use super::stream::Klauspost;
use crate::encoders::{Cut, Encoder, Output};

/// The bytes that a block has from the one before.
const TAIL: usize = 16 << 10;

/// The encoder at work on one stream.
#[derive(Debug, Clone)]
pub struct Pgzip {
    encoder: Klauspost,
    block_size: usize,
    /// How many bytes the block has.
    length: usize,
    /// The last bytes, [`TAIL`] of them and some more. They are those of the block, or, before its first byte, the dictionary.
    last: Vec<u8>,
    /// How many plain bytes came.
    plain: u64,
}

impl Pgzip {
    /// The size of blocks unless the program gives another one.
    pub const BLOCK_SIZE: usize = 1 << 20;

    /// The encoder of a level (5 is what pgzip takes for its default) and of a size of blocks, which is greater than 16 KiB. `None` if there are no such.
    pub fn new(level: i8, generation: Generation, block_size: usize) -> Option<Pgzip> {
        if block_size <= TAIL {
            return None;
        }
        Some(Pgzip {
            encoder: Klauspost::new(level, generation, &[])?,
            block_size,
            length: 0,
            last: Vec::new(),
            plain: 0,
        })
    }

    /// Goes on at a cut. `history` holds the plain bytes directly before it, 16 KiB or more, or all if there are fewer.
    pub fn resume(
        level: i8,
        generation: Generation,
        block_size: usize,
        history: &[u8],
        cut: &Cut,
    ) -> Option<Pgzip> {
        let mut pgzip = Pgzip::new(level, generation, block_size)?;
        pgzip.plain = cut.plain;
        if cut.state.is_empty() {
            pgzip
                .last
                .extend_from_slice(&history[history.len().checked_sub(TAIL)?..]);
            pgzip.encoder.restart(&pgzip.last);
        }
        Some(pgzip)
    }

    /// Ends a block, and begins the next one.
    fn end_block(&mut self, output: &mut Output) {
        let wanted = output.wanted.take();
        self.encoder.flush(output);
        output.wanted = wanted;
        let has_tail = self.length > TAIL;
        output.end_of_block(self.plain, || Some(if has_tail { Vec::new() } else { vec![0] }));
        let tail = if has_tail {
            &self.last[self.last.len() - TAIL..]
        } else {
            &[]
        };
        self.encoder.restart(tail);
        self.length = 0;
    }

    fn remember(&mut self, plain: &[u8]) {
        self.last
            .extend_from_slice(&plain[plain.len().saturating_sub(TAIL)..]);
        if self.last.len() > 4 * TAIL {
            self.last.drain(..self.last.len() - TAIL);
        }
    }
}

impl Encoder for Pgzip {
    fn write(&mut self, mut plain: &[u8], output: &mut Output) {
        while !plain.is_empty() {
            let (part, rest) = plain.split_at(plain.len().min(self.block_size - self.length));
            let wanted = output.wanted.take();
            self.encoder.write(part, output);
            output.wanted = wanted;
            self.remember(part);
            self.length += part.len();
            self.plain += part.len() as u64;
            if self.length == self.block_size {
                self.end_block(output);
            }
            plain = rest;
        }
    }

    fn flush(&mut self, output: &mut Output) {
        self.end_block(output);
    }

    fn finish(&mut self, output: &mut Output) {
        let wanted = output.wanted.take();
        self.encoder.flush(output);
        self.encoder.finish(output);
        output.wanted = wanted;
    }
}
