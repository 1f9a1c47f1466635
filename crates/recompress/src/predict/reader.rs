//! Makes a stream again out of its plain bytes and corrections.

use super::damaged::Damaged;
use super::range::{Coder, Decoder};
use super::stretch::{Extent, Head, PART_TOKENS, Shape, Sight, Stretch, is_full};
use xebec_bitstream::BitWriter;
use xebec_deflate::format::huffman::{Code, fixed_lengths, put_token};
use xebec_deflate::format::inflate::{BlockKind, CodeTables};
use xebec_deflate::format::token::{Token, distance_symbol, length_symbol};
use xebec_deflate::format::{CODE_LENGTH_ORDER, END_OF_BLOCK};

/// What the reader is about.
#[derive(Debug)]
enum State {
    /// A block begins.
    Head,
    /// Stored bytes come.
    Stored { left: u64 },
    /// Tokens come.
    Tokens(Extent, Sight),
    /// The stretch has ended.
    Ended,
}

/// Makes the bits of one stretch.
#[derive(Debug)]
pub(crate) struct Reader {
    decoder: Decoder<Vec<u8>>,
    stretch: Stretch,
    state: State,
    is_last: bool,
    /// The place at which the block began, and the part.
    block: u64,
    part: u64,
    /// The tokens of the part.
    tokens: Vec<Token>,
    /// The codes of the block, once they are known.
    codes: Option<(Code, Code)>,
    /// The bit of the stream that must not be reached.
    limit: u64,
}

impl Reader {
    /// A reader of the corrections of a stretch that begins after `history`. More than `limit` bits of the stream (those before the stretch count)
    /// are refused; a few thousand more may have been written then.
    pub(crate) fn new(corrections: Vec<u8>, history: &[u8], limit: u64) -> Result<Reader, Damaged> {
        let mut decoder = Decoder::new(corrections);
        let profile = decoder.code_even(0, 8) as usize;
        let stretch = Stretch::new(history, profile)?;
        Ok(Reader {
            decoder,
            block: stretch.place,
            part: stretch.place,
            stretch,
            state: State::Head,
            is_last: false,
            tokens: Vec::new(),
            codes: None,
            limit,
        })
    }

    /// Takes plain bytes and writes what they make complete.
    ///
    /// # Errors
    ///
    /// [`Damaged`]. The corrections are of no use then.
    pub(crate) fn write(&mut self, plain: &[u8], bits: &mut BitWriter) -> Result<(), Damaged> {
        for piece in plain.chunks(1 << 20) {
            self.stretch.window.append(piece);
            self.work(false, bits)?;
            self.stretch.window.forget(self.stretch.place);
        }
        Ok(())
    }

    /// Writes the rest, after all plain bytes of the stretch have come.
    ///
    /// # Errors
    ///
    /// As [`Reader::write`].
    pub(crate) fn finish(&mut self, bits: &mut BitWriter) -> Result<(), Damaged> {
        self.work(true, bits)?;
        match self.state {
            State::Ended => Ok(()),
            _ => Err(Damaged::Length),
        }
    }

    fn work(&mut self, is_end: bool, bits: &mut BitWriter) -> Result<(), Damaged> {
        loop {
            match self.state {
                State::Ended if self.stretch.place < self.stretch.window.known() => {
                    return Err(Damaged::Length);
                }
                State::Ended => return Ok(()),
                State::Head => self.head(bits)?,
                State::Stored { left } => {
                    let there = (self.stretch.window.known() - self.stretch.place).min(left);
                    if there == 0 && left > 0 {
                        return Ok(());
                    }
                    self.check(bits, 8 * there)?;
                    let place = self.stretch.place;
                    bits.put_bytes(self.stretch.window.range(place, place + there));
                    self.stretch.skip(there);
                    self.state = State::Stored { left: left - there };
                    if left == there {
                        self.end_block();
                    }
                }
                State::Tokens(extent, sight) => {
                    if self.stretch.parser.profile.knows_codes() && self.codes.is_none() {
                        if !is_end && self.seen(sight) > self.stretch.window.known() {
                            return Ok(());
                        }
                        self.take_tables(bits)?;
                    }
                    if !self.take_tokens(extent, sight, is_end)? {
                        return Ok(());
                    }
                    self.end_part(extent, bits)?;
                }
            }
        }
    }

    fn check(&self, bits: &BitWriter, more: u64) -> Result<(), Damaged> {
        if bits.position() + more > self.limit {
            Err(Damaged::TooLong)
        } else {
            Ok(())
        }
    }

    fn head(&mut self, bits: &mut BitWriter) -> Result<(), Damaged> {
        if self.stretch.ends(&mut self.decoder, true) {
            self.state = State::Ended;
            return Ok(());
        }
        self.check(bits, 10)?;
        self.is_last = self.stretch.is_last(&mut self.decoder, true);
        self.block = self.stretch.place;
        self.part = self.block;
        let room = (8 - (bits.position() + 3) % 8) % 8;
        let head = self.stretch.head(
            &mut self.decoder,
            self.is_last,
            room as u32,
            None,
            Shape::default(),
        );
        match head {
            Head::Stored { length, padding } => {
                bits.put(u64::from(self.is_last), 3);
                bits.put(u64::from(padding), room as u32);
                bits.put(u64::from(length) | u64::from(!length) << 16, 32);
                self.state = State::Stored {
                    left: u64::from(length),
                };
            }
            Head::Coded(extent) => self.begin_part(extent),
        }
        Ok(())
    }

    fn begin_part(&mut self, extent: Extent) {
        self.part = self.stretch.place;
        let sight = self.stretch.sight(&mut self.decoder, Sight::Usual);
        self.state = State::Tokens(extent, sight);
    }

    fn take_tables(&mut self, bits: &mut BitWriter) -> Result<(), Damaged> {
        let kind = self.stretch.tables(&mut self.decoder, &BlockKind::Fixed);
        self.check(bits, 3000)?;
        self.codes = Some(put_head(self.is_last, &kind, bits)?);
        Ok(())
    }

    /// The place after all that may be looked at.
    fn seen(&self, sight: Sight) -> u64 {
        let seen = self.stretch.place + self.stretch.parser.profile.ahead();
        match sight {
            Sight::Place(end) => seen.min(end),
            _ => seen,
        }
    }

    /// Takes tokens until the part ends (true) or plain bytes are wanted (false).
    fn take_tokens(&mut self, extent: Extent, sight: Sight, is_end: bool) -> Result<bool, Damaged> {
        let known = self.stretch.window.known();
        loop {
            let place = self.stretch.place;
            let is_done = match extent {
                Extent::Tokens(count) => self.tokens.len() >= count as usize,
                Extent::Plain(end) => place >= end,
                Extent::All => is_end && place >= known,
                Extent::Part => is_full(self.tokens.len(), place - self.part),
            };
            if is_done {
                return match extent {
                    Extent::Plain(end) if place > end => Err(Damaged::Length),
                    _ => Ok(true),
                };
            }
            if !is_end && self.seen(sight) > known {
                return Ok(false);
            }
            if place >= self.stretch.window.end() || self.tokens.len() >= PART_TOKENS as usize {
                return Err(Damaged::Length);
            }
            let token = self.stretch.token(&mut self.decoder, Token::literal(0))?;
            self.tokens.push(token);
        }
    }

    fn end_part(&mut self, extent: Extent, bits: &mut BitWriter) -> Result<(), Damaged> {
        if self.codes.is_none() {
            self.take_tables(bits)?;
        }
        let Some((literals, distances)) = &self.codes else {
            return Ok(());
        };
        for tokens in self.tokens.chunks(1024) {
            self.check(bits, 0)?;
            for &token in tokens {
                check_words(token, literals, distances)?;
                put_token(token, literals, distances, bits);
            }
        }
        let count = self.tokens.len() as u32;
        self.tokens.clear();
        if extent == Extent::Part {
            let extent = self
                .stretch
                .next_part(&mut self.decoder, self.is_last, Shape::default());
            self.begin_part(extent);
            return Ok(());
        }
        if literals
            .words
            .get(END_OF_BLOCK)
            .is_none_or(|&(_, length)| length == 0)
        {
            return Err(Damaged::Word);
        }
        literals.put(END_OF_BLOCK, bits);
        self.codes = None;
        self.stretch.end_block(count, self.stretch.place - self.part);
        self.end_block();
        Ok(())
    }

    fn end_block(&mut self) {
        self.state = State::Head;
    }
}

/// Writes the head of a block and gives back its codes.
fn put_head(is_last: bool, kind: &BlockKind, bits: &mut BitWriter) -> Result<(Code, Code), Damaged> {
    let BlockKind::Dynamic(tables) = kind else {
        bits.put(u64::from(is_last) | 1 << 1, 3);
        let (literals, distances) = fixed_lengths();
        return Ok((Code::of_lengths(&literals), Code::of_lengths(&distances)));
    };
    bits.put(u64::from(is_last) | 2 << 1, 3);
    put_tables(tables, bits)?;
    Ok((
        Code::of_lengths(&tables.literals),
        Code::of_lengths(&tables.distances),
    ))
}

fn put_tables(tables: &CodeTables, bits: &mut BitWriter) -> Result<(), Damaged> {
    bits.put((tables.literals.len() - 257) as u64, 5);
    bits.put((tables.distances.len() - 1) as u64, 5);
    bits.put((tables.code_lengths.len() - 4) as u64, 4);
    let mut by_symbol = [0; CODE_LENGTH_ORDER.len()];
    for (&symbol, &length) in CODE_LENGTH_ORDER.iter().zip(&tables.code_lengths) {
        bits.put(u64::from(length), 3);
        by_symbol[symbol] = length;
    }
    let code = Code::of_lengths(&by_symbol);
    for &(symbol, extra) in &tables.symbols {
        match code.words.get(usize::from(symbol)) {
            Some(&(_, length)) if length > 0 => code.put(usize::from(symbol), bits),
            _ => return Err(Damaged::Word),
        }
        let width = match symbol {
            16 => 2,
            17 => 3,
            18 => 7,
            _ => 0,
        };
        bits.put(u64::from(extra), width);
    }
    Ok(())
}

fn check_words(token: Token, literals: &Code, distances: &Code) -> Result<(), Damaged> {
    let has_word = |code: &Code, symbol: usize| code.words.get(symbol).is_some_and(|&(_, length)| length > 0);
    let is_there = match token.copy_length() {
        0 => has_word(literals, usize::from(token.byte())),
        length => {
            has_word(literals, END_OF_BLOCK + 1 + length_symbol(length))
                && has_word(distances, distance_symbol(token.distance()))
        }
    };
    if is_there { Ok(()) } else { Err(Damaged::Word) }
}
