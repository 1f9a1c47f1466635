//! The encoder of one stream at any level.

use super::blocks::BlockWriter;
use super::generation::Generation;
use super::lazy::Lazy;
use super::place::{Numbers, Place};
use super::quick::Quick;
use crate::encoders::{Cut, Encoder, Output};

/// The bytes of a block that is stored at level 0.
const STORED: usize = 65_535;
/// The bytes of a batch at level -2.
const LITERALS: usize = 32 << 10;

/// Writes bytes without looking for copies.
#[derive(Debug, Clone)]
struct Plain {
    is_stored: bool,
    batch: Vec<u8>,
    taken: u64,
}

impl Plain {
    fn write(&mut self, mut plain: &[u8], blocks: &mut BlockWriter, output: &mut Output) {
        let most = if self.is_stored { STORED } else { LITERALS };
        while !plain.is_empty() {
            if self.batch.len() == most {
                self.write_batch(false, blocks, output);
            }
            let part = plain.len().min(most - self.batch.len());
            self.batch.extend_from_slice(&plain[..part]);
            self.taken += part as u64;
            plain = &plain[part..];
        }
    }

    fn write_batch(&mut self, is_whole: bool, blocks: &mut BlockWriter, output: &mut Output) {
        if self.batch.is_empty() {
            return;
        }
        let place = |plain| Place {
            plain,
            matcher: Some(Numbers::default()),
        };
        let places = [place(self.taken - self.batch.len() as u64), place(self.taken)];
        if self.is_stored {
            blocks.write_stored(&self.batch, places, output);
        } else {
            blocks.write_literals(&self.batch, is_whole, places, output);
        }
        self.batch.clear();
    }
}

#[derive(Debug, Clone)]
enum Method {
    Plain(Plain),
    Quick(Box<Quick>),
    Lazy(Box<Lazy>),
}

/// The encoder at work on one stream.
#[derive(Debug, Clone)]
pub struct Klauspost {
    blocks: BlockWriter,
    method: Method,
}

impl Klauspost {
    /// The encoder of a level, -2 or 0 to 9, with the bytes that are taken to have come before. The default level of klauspost/compress is 5, that of
    /// Go 6. `None` if there is no such level, or the generation's is not known.
    pub fn new(level: i8, generation: Generation, dictionary: &[u8]) -> Option<Klauspost> {
        if !generation.has(level) {
            return None;
        }
        let plain = |is_stored| {
            Method::Plain(Plain {
                is_stored,
                batch: Vec::new(),
                taken: 0,
            })
        };
        let (penalty, method) = match level {
            -2 => (10, plain(false)),
            0 => (0, plain(true)),
            1..=6 => (
                penalty_of(generation),
                Method::Quick(Box::new(Quick::new(level, generation))),
            ),
            7..=9 => (8, Method::Lazy(Box::new(Lazy::new(level, generation)))),
            _ => return None,
        };
        let mut encoder = Klauspost {
            blocks: BlockWriter::new(generation, penalty),
            method,
        };
        encoder.restart(dictionary);
        Some(encoder)
    }

    /// Begins another stream, as a new encoder does.
    pub fn restart(&mut self, dictionary: &[u8]) {
        self.blocks.restart();
        match &mut self.method {
            Method::Plain(plain) => {
                plain.batch.clear();
                plain.taken = 0;
            }
            Method::Quick(quick) => quick.restart(dictionary),
            Method::Lazy(lazy) => lazy.restart(dictionary),
        }
    }

    /// Goes on at a cut. `history` holds the plain bytes directly before it. `None` if there is no such level or the cut is not one of this encoder.
    pub fn resume(level: i8, generation: Generation, history: &[u8], cut: &Cut) -> Option<Klauspost> {
        let mut encoder = Klauspost::new(level, generation, &[])?;
        let (&chosen, numbers) = cut.state.split_first()?;
        let numbers = Numbers::try_from(numbers).ok()?;
        encoder.blocks.resume(chosen);
        match &mut encoder.method {
            Method::Plain(plain) => plain.taken = cut.plain,
            Method::Quick(quick) => quick.resume(cut.plain, numbers, history)?,
            Method::Lazy(lazy) => lazy.resume(cut.plain, numbers, history)?,
        }
        Some(encoder)
    }

    /// Writes what was taken, up to the end of a block.
    fn complete(&mut self, output: &mut Output) {
        match &mut self.method {
            Method::Plain(plain) => plain.write_batch(true, &mut self.blocks, output),
            Method::Quick(quick) => quick.flush(&mut self.blocks, output),
            Method::Lazy(lazy) => lazy.flush(&mut self.blocks, output),
        }
    }
}

/// The penalty of new codes at levels 1 to 6.
fn penalty_of(generation: Generation) -> u32 {
    match generation {
        Generation::V1_11_3 => 6,
        Generation::V1_11_13 | Generation::V1_12_3 => 8,
        _ => 7,
    }
}

impl Encoder for Klauspost {
    fn write(&mut self, plain: &[u8], output: &mut Output) {
        match &mut self.method {
            Method::Plain(method) => method.write(plain, &mut self.blocks, output),
            Method::Quick(quick) => quick.write(plain, &mut self.blocks, output),
            Method::Lazy(lazy) => lazy.write(plain, &mut self.blocks, output),
        }
    }

    fn flush(&mut self, output: &mut Output) {
        self.complete(output);
        self.blocks.write_mark(output);
    }

    fn finish(&mut self, output: &mut Output) {
        self.complete(output);
        self.blocks.write_end(output);
    }
}
