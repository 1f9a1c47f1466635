//! The frame in columns, and back.

use std::ops::Range;

use super::BLOCK;
use super::header::{Block, FIELDS, FORMS, Guess, MODIFIED, NAME, complete, form_of, kind};
use crate::numbers::{Reader, put};

/// How many columns there are.
pub(super) const COLUMNS: usize = 7;

/// The frame in columns, that are written or read.
#[derive(Default)]
pub(super) struct Columns<C> {
    /// For each block a number: below [`FORMS`] it is a header with that form of a checksum; n + [`FORMS`] are n bytes, and zeros up to the block's end.
    blocks: C,
    /// For each header its kind, and which fields are not as guessed.
    heads: C,
    /// For each such field, how much of its beginning is as guessed, and how many bytes follow before zeros.
    lengths: C,
    /// These bytes, of names, of times, and of other fields.
    names: C,
    times: C,
    others: C,
    /// The bytes of other blocks.
    bytes: C,
}

/// A part of the frame: where it is in the plain bytes, and how many bytes that are not frame follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) length: usize,
    pub(super) after: u64,
}

impl Span {
    /// The lengths of its blocks. Blocks end where those of the plain bytes do.
    fn blocks(self) -> impl Iterator<Item = usize> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let to_boundary = BLOCK - ((self.start % BLOCK as u64) as usize + at) % BLOCK;
            let length = to_boundary.min(self.length - at);
            at += length;
            (length > 0).then_some(length)
        })
    }
}

/// The number of a block in the column `blocks`.
fn number_of(block: &[u8]) -> u64 {
    if let Some(form) = <&Block>::try_from(block).ok().and_then(form_of) {
        return form;
    }
    let length = block
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1);
    length as u64 + FORMS
}

/// How many bytes seem to follow a header: those of the next block, or, if the span ends, what follows it.
fn seeming_size(next: Option<u64>, after: u64) -> u64 {
    next.map_or(after, |number| number.saturating_sub(FORMS))
}

/// Takes spans apart.
pub(super) struct Encoder {
    columns: Columns<Vec<u8>>,
    guess: Guess,
}

impl Encoder {
    pub(super) fn new() -> Encoder {
        Encoder {
            columns: Columns::default(),
            guess: Guess::new(),
        }
    }

    /// The next span, and its bytes.
    pub(super) fn span(&mut self, span: Span, bytes: &[u8]) {
        let mut at = 0;
        let mut blocks = span
            .blocks()
            .map(|length| {
                at += length;
                let block = bytes.get(at - length..at).unwrap_or_default();
                (block, number_of(block))
            })
            .peekable();
        while let Some((block, number)) = blocks.next() {
            put(number, &mut self.columns.blocks);
            match <&Block>::try_from(block) {
                Ok(block) if number < FORMS => {
                    let size = seeming_size(blocks.peek().map(|&(_, number)| number), span.after);
                    self.header(block, size);
                }
                _ => {
                    let own = block
                        .get(..number.saturating_sub(FORMS) as usize)
                        .unwrap_or_default();
                    self.columns.bytes.extend_from_slice(own);
                }
            }
        }
    }

    fn header(&mut self, block: &Block, size: u64) {
        let guess = self.guess.next(kind(block), size);
        let mut flags = 0_u64;
        for (bit, range) in FIELDS.into_iter().enumerate() {
            let own = block.get(range.clone()).unwrap_or_default();
            let guessed = guess.get(range.clone()).unwrap_or_default();
            if own == guessed {
                continue;
            }
            flags |= 1 << bit;
            let length = own.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            let shared = own
                .iter()
                .zip(guessed)
                .take(length)
                .take_while(|(own, guessed)| own == guessed)
                .count();
            self.columns
                .lengths
                .extend([shared as u8, (length - shared) as u8]);
            let rest = own.get(shared..length).unwrap_or_default();
            self.columns.of(&range).extend_from_slice(rest);
        }
        self.columns.heads.push(kind(block));
        put(flags, &mut self.columns.heads);
        self.guess.learn(block);
    }

    /// The columns of all spans.
    pub(super) fn finish(self) -> Columns<Vec<u8>> {
        self.columns
    }
}

impl<C> Columns<C> {
    /// The column for the bytes of a field.
    fn of(&mut self, field: &Range<usize>) -> &mut C {
        match field {
            field if *field == NAME => &mut self.names,
            field if *field == MODIFIED => &mut self.times,
            _ => &mut self.others,
        }
    }

    /// All columns, in the order of the format.
    pub(super) fn all(&self) -> [&C; COLUMNS] {
        [
            &self.blocks,
            &self.heads,
            &self.lengths,
            &self.names,
            &self.times,
            &self.others,
            &self.bytes,
        ]
    }
}

/// Puts spans together again.
pub(super) struct Decoder<'c> {
    columns: Columns<Reader<'c>>,
    guess: Guess,
}

impl<'c> Decoder<'c> {
    pub(super) fn new(columns: &'c [Vec<u8>; COLUMNS]) -> Decoder<'c> {
        let [blocks, heads, lengths, names, times, others, bytes] =
            columns.each_ref().map(|column| Reader(column));
        Decoder {
            columns: Columns {
                blocks,
                heads,
                lengths,
                names,
                times,
                others,
                bytes,
            },
            guess: Guess::new(),
        }
    }

    /// Appends the bytes of the next span: exactly its length, or fewer and `None` if the columns are not of such spans.
    pub(super) fn span(&mut self, span: Span, inline: &mut Vec<u8>) -> Option<()> {
        let mut blocks = span.blocks().peekable();
        while let Some(length) = blocks.next() {
            match self.columns.blocks.number()? {
                form if form < FORMS && length == BLOCK => {
                    let next = match blocks.peek() {
                        Some(_) => Some({ self.columns.blocks }.number()?),
                        None => None,
                    };
                    let block = self.header(seeming_size(next, span.after), form)?;
                    inline.extend_from_slice(&block);
                }
                number => {
                    let own = number.checked_sub(FORMS).filter(|&own| own <= length as u64)?;
                    inline.extend_from_slice(self.columns.bytes.bytes(own)?);
                    inline.resize(inline.len() + length - own as usize, 0);
                }
            }
        }
        Some(())
    }

    fn header(&mut self, size: u64, form: u64) -> Option<Block> {
        let kind = *self.columns.heads.bytes(1)?.first()?;
        let flags = self.columns.heads.number()?;
        if flags >> FIELDS.len() != 0 {
            return None;
        }
        let mut block = self.guess.next(kind, size);
        for (bit, range) in FIELDS.into_iter().enumerate() {
            if flags >> bit & 1 == 0 {
                continue;
            }
            let &[shared, length] = self.columns.lengths.bytes(2)?.first_chunk()?;
            let own = self.columns.of(&range).bytes(u64::from(length))?;
            let rest = block.get_mut(range)?.get_mut(usize::from(shared)..)?;
            let (to, zeros) = rest.split_at_mut_checked(own.len())?;
            to.copy_from_slice(own);
            zeros.fill(0);
        }
        complete(&mut block, form);
        self.guess.learn(&block);
        Some(block)
    }

    /// Whether all columns are used up.
    pub(super) fn is_at_end(&self) -> bool {
        self.columns.all().iter().all(|column| column.0.is_empty())
    }
}
