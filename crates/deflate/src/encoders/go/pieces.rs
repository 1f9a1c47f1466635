//! Levels -2, 0 and 1: each piece of 65,535 bytes becomes a block.

use super::blocks::{self, BlockWriter, STORED_MOST};
use super::fast::{self, Fast};
use crate::encoders::{Cut, Output};
use crate::format::token::Token;

/// At level 1 a piece that a flush has cut is stored up to this length,
const FLUSHED_STORED: usize = 16;
/// and has only literals if it is shorter than this. In both cases the matcher forgets all bytes before.
const FLUSHED_SEARCHED: usize = 128;

/// How a piece becomes a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// As it is (level 0).
    Stored,
    /// By a code of literals, or as it is (level -2).
    Literals,
    /// By copies and literals (level 1).
    Copies,
}

/// The encoder of levels -2, 0 and 1.
pub(super) struct Pieces {
    method: Method,
    /// The piece before, which only level 1 keeps, and bytes of the current one.
    bytes: Vec<u8>,
    /// Where the current piece begins in `bytes`.
    start: usize,
    /// How many plain bytes come before the current piece.
    plain: u64,
    /// The plain byte before which a flush last cut a piece.
    flushed: u64,
    matcher: Option<Fast>,
    tokens: Vec<Token>,
    blocks: BlockWriter,
}

impl Pieces {
    pub(super) fn new(method: Method) -> Pieces {
        Pieces {
            method,
            bytes: Vec::with_capacity(2 * STORED_MOST),
            start: 0,
            plain: 0,
            flushed: 0,
            matcher: (method == Method::Copies).then(Fast::new),
            tokens: Vec::new(),
            blocks: BlockWriter::new(),
        }
    }

    /// Level 1 fills its table by the pieces of the history, which the matcher works through as it did before. The bytes before the first whole
    /// piece are taken as one.
    pub(super) fn resume(method: Method, history: &[u8], cut: &Cut) -> Option<Pieces> {
        let mut pieces = Pieces::new(method);
        pieces.plain = cut.plain;
        let Some(matcher) = &mut pieces.matcher else {
            return Some(pieces);
        };
        let &[whole] = &cut.state[..] else {
            return None;
        };
        pieces.flushed = cut.plain.checked_sub(whole)?;
        let usable = usize::try_from(whole).map_or(history.len(), |whole| whole.min(history.len()));
        let history = &history[history.len() - usable..];
        let first = usable % STORED_MOST;
        if first >= fast::LEAST {
            matcher.tokens(&history[..first], 0, &mut pieces.tokens);
        }
        let mut before = 0;
        for end in (first + STORED_MOST..=usable).step_by(STORED_MOST) {
            pieces.tokens.clear();
            let start = end - STORED_MOST;
            matcher.tokens(&history[before..end], start - before, &mut pieces.tokens);
            before = start;
        }
        pieces.bytes.extend_from_slice(&history[before..]);
        pieces.start = pieces.bytes.len();
        Some(pieces)
    }

    pub(super) fn write(&mut self, mut plain: &[u8], output: &mut Output) {
        while !plain.is_empty() {
            let room = STORED_MOST - (self.bytes.len() - self.start);
            let (taken, rest) = plain.split_at(room.min(plain.len()));
            self.bytes.extend_from_slice(taken);
            plain = rest;
            if taken.len() == room {
                self.write_block(output);
            }
        }
    }

    /// Writes a block of what is there, if anything is.
    pub(super) fn end_piece(&mut self, output: &mut Output) {
        let length = self.bytes.len() - self.start;
        if length == 0 {
            return;
        }
        self.flushed = self.plain + length as u64;
        if length >= FLUSHED_SEARCHED {
            return self.write_block(output);
        }
        let Some(matcher) = &mut self.matcher else {
            return self.write_block(output);
        };
        matcher.forget();
        let piece = &self.bytes[self.start..];
        if length <= FLUSHED_STORED {
            blocks::stored(piece, false, &mut output.bits);
        } else {
            self.blocks.literals(piece, &mut output.bits);
        }
        self.begin_piece(false, output);
    }

    fn write_block(&mut self, output: &mut Output) {
        let piece = &self.bytes[self.start..];
        match (self.method, &mut self.matcher) {
            (Method::Copies, Some(matcher)) => {
                self.tokens.clear();
                matcher.tokens(&self.bytes, self.start, &mut self.tokens);
                // Where less than a sixteenth of the bytes went into copies, these are not worth their code.
                if self.tokens.len() > piece.len() - piece.len() / 16 {
                    self.blocks.literals(piece, &mut output.bits);
                } else {
                    self.blocks.dynamic(&self.tokens, piece, &mut output.bits);
                }
            }
            (Method::Literals, _) => self.blocks.literals(piece, &mut output.bits),
            _ => blocks::stored(piece, false, &mut output.bits),
        }
        self.begin_piece(self.matcher.is_some(), output);
    }

    /// Begins a piece after a block. With `keeps_piece`, the one before it stays.
    fn begin_piece(&mut self, keeps_piece: bool, output: &mut Output) {
        self.plain += (self.bytes.len() - self.start) as u64;
        if keeps_piece {
            self.bytes.drain(..self.start);
        } else {
            self.bytes.clear();
        }
        self.start = self.bytes.len();
        self.end_of_block(output);
    }

    /// Tells the output that a block has ended with all that was taken.
    pub(super) fn end_of_block(&self, output: &mut Output) {
        let whole = self.plain - self.flushed;
        output.end_of_block(self.plain, || Some(self.matcher.iter().map(|_| whole).collect()));
    }
}
