//! The encoder of Go's `compress/flate`, as Docker, BuildKit and containerd (level 6), go-containerregistry (level 1) and eStargz (level 9) use it.
//!
//! It makes the same raw deflate streams, bit for bit, as the Go project's package in Go 1.21 to 1.26 (BSD licence; compared with 1.26.8, whose
//! output is that of 1.21.13). Go 1.27 has another encoder. Dictionaries are left out: no tool for layers uses them.
//!
//! * Levels -2 (literals only), 0 (stored) and 1 make each 65,535 bytes a block (`pieces`, `fast`).
//! * Levels 2 to 9 search hash chains in a window and end a block after 16,384 tokens (`search`, `window`).
//! * All write blocks in one way (`blocks`, `code`). The last block is an empty stored one.
//!
//! At levels 2 to 9 Go's output depends on the sizes of writes, though hardly ever. When a write ends less than 262 bytes before a multiple of
//! 32 KiB, and the matcher then stands exactly 262 bytes before that multiple, Go moves its window before it searches for that byte, and copies from
//! the farthest 262 bytes are out of reach. This encoder searches first, as Go does if no write ends there. Writes of whole 32 KiB never do. In
//! 250 MB of real files no size of writes has made a difference.

mod blocks;
mod code;
mod fast;
mod pieces;
mod search;
#[cfg(test)]
mod tests;
mod window;
mod words;

use self::pieces::{Method, Pieces};
use self::search::{Effort, Search};
use super::{Cut, Encoder, Output};

/// Go's encoder at work.
pub struct Go(Kind);

enum Kind {
    Pieces(Box<Pieces>),
    Search(Box<Search>),
}

/// The level that Go takes for `DefaultCompression`.
const DEFAULT: i8 = 6;

/// No stream has more plain bytes. Sums of positions cannot overflow then.
const LONGEST_STREAM: u64 = 1 << 60;

fn effort(level: i8) -> Option<Effort> {
    Effort::of_level(if level == -1 { DEFAULT } else { level })
}

fn method(level: i8) -> Option<Method> {
    match level {
        -2 => Some(Method::Literals),
        0 => Some(Method::Stored),
        1 => Some(Method::Copies),
        _ => None,
    }
}

impl Go {
    /// The encoder of a level from -2 to 9, `None` for others.
    pub fn new(level: i8) -> Option<Go> {
        if let Some(effort) = effort(level) {
            return Some(Go(Kind::Search(Box::new(Search::new(effort)))));
        }
        Some(Go(Kind::Pieces(Box::new(Pieces::new(method(level)?)))))
    }

    /// The encoder that goes on at a cut. Levels -2 and 0 need no history; 4 to 9 need 32 KiB and then go on exactly; 1, 2 and 3
    /// mostly do with 256 KiB.
    /// `None` if the level or the state is none, or if there is more history than bytes before the cut.
    pub fn resume(level: i8, history: &[u8], cut: &Cut) -> Option<Go> {
        if cut.plain > LONGEST_STREAM || history.len() as u64 > cut.plain {
            return None;
        }
        if let Some(effort) = effort(level) {
            return Some(Go(Kind::Search(Box::new(Search::resume(effort, history, cut)?))));
        }
        Some(Go(Kind::Pieces(Box::new(Pieces::resume(
            method(level)?,
            history,
            cut,
        )?))))
    }

    fn drain(&mut self, output: &mut Output) {
        match &mut self.0 {
            Kind::Pieces(pieces) => pieces.end_piece(output),
            Kind::Search(search) => search.drain(output),
        }
    }
}

impl Encoder for Go {
    fn write(&mut self, plain: &[u8], output: &mut Output) {
        match &mut self.0 {
            Kind::Pieces(pieces) => pieces.write(plain, output),
            Kind::Search(search) => search.write(plain, output),
        }
    }

    fn flush(&mut self, output: &mut Output) {
        self.drain(output);
        blocks::stored(&[], false, &mut output.bits);
        match &self.0 {
            Kind::Pieces(pieces) => pieces.end_of_block(output),
            Kind::Search(search) => search.end_of_block(output),
        }
    }

    fn finish(&mut self, output: &mut Output) {
        self.drain(output);
        blocks::stored(&[], true, &mut output.bits);
    }
}
