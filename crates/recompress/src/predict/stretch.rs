//! What a writer and a reader of corrections have in common: all that was learned of a stretch up to a place, and what is coded there.
//!
//! The order of what is coded: the profile; of each block its head (whether it is the last, whether it is stored, how many tokens it has), its tokens,
//! then its tables. A block of too many tokens is told in parts, and its tables after the first part: so a reader need not keep more tokens than a part
//! has.

use super::damaged::Damaged;
use super::frequencies::Frequencies;
use super::model::{Bit, Number, Tree};
use super::parse::Parser;
use super::profile::PROFILES;
use super::range::Coder;
use super::tables::TableModel;
use super::tokens::TokenModel;
use super::window::Window;
use xebec_deflate::format::WINDOW;
use xebec_deflate::format::inflate::{BlockKind, CodeTables};
use xebec_deflate::format::token::Token;

/// A part has so many tokens at most,
pub(super) const PART_TOKENS: u32 = 1 << 20;
/// or so many plain bytes (and what the token has that reaches it).
pub(super) const PART_PLAIN: u64 = 4 << 20;

/// Whether a part of so many tokens and plain bytes ends.
pub(super) fn is_full(tokens: usize, plain: u64) -> bool {
    tokens >= PART_TOKENS as usize || plain >= PART_PLAIN
}

/// How far a block goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// So many tokens.
    Tokens(u32),
    /// Up to a place.
    Plain(u64),
    /// To the end of the stretch.
    All,
    /// To the end of a part; another follows.
    Part,
}

/// How far one may look beyond a place, as both sides know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sight {
    /// As many bytes as the profile looks ahead.
    Usual,
    /// To the end of the stretch.
    All,
    /// Up to a place.
    Place(u64),
}

/// What a block's head says before its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// A stored block.
    Stored { length: u16, padding: u8 },
    /// One with tokens.
    Coded(Extent),
}

/// The actual tokens of a block, or of a part of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shape {
    pub(super) tokens: u32,
    /// The place after them.
    pub(super) end: u64,
    /// Whether the block goes on.
    pub(super) is_part: bool,
    /// Whether nothing comes after it in the stretch.
    pub(super) is_all: bool,
}

/// All that is known at a place of a stretch.
#[derive(Debug, Clone)]
pub(super) struct Stretch {
    pub(super) window: Window,
    pub(super) place: u64,
    pub(super) parser: Parser,
    tokens: TokenModel,
    tables: TableModel,
    blocks: BlockModel,
    pub(super) frequencies: Frequencies,
    /// The place after the block, if that is known.
    block_end: u64,
}

#[derive(Debug, Clone)]
struct BlockModel {
    ends: Bit,
    is_last: [Bit; 2],
    /// By the kinds of the last two blocks.
    is_stored: [Bit; 9],
    is_fixed: [Bit; 9],
    kinds: usize,
    extent: [[Tree<8>; 2]; 8],
    last_extent: usize,
    tokens: [u32; 2],
    plain: u64,
    number: Number,
    same_length: [Bit; 2],
    last_length: u16,
    length: Number,
    is_padded: Bit,
    sight: Tree<4>,
    sight_place: Number,
}

impl Default for BlockModel {
    fn default() -> BlockModel {
        BlockModel {
            ends: Bit::rare(4),
            is_last: [Bit::rare(4); 2],
            is_stored: Default::default(),
            is_fixed: Default::default(),
            kinds: 8,
            extent: Default::default(),
            last_extent: 0,
            tokens: [(1 << 14) - 1, (1 << 15) - 1],
            plain: 1 << 16,
            number: Number::default(),
            same_length: Default::default(),
            last_length: 0,
            length: Number::default(),
            is_padded: Bit::rare(6),
            sight: Tree::default(),
            sight_place: Number::default(),
        }
    }
}

impl BlockModel {
    fn note(&mut self, kind: usize) {
        self.kinds = self.kinds % 3 * 3 + kind;
    }

    fn code_extent(
        &mut self,
        coder: &mut impl Coder,
        place: u64,
        is_last: bool,
        by_plain: bool,
        actual: Shape,
    ) -> Extent {
        let plain = actual.end.wrapping_sub(place);
        let kind = if actual.is_part {
            4
        } else if is_last && actual.is_all {
            3
        } else if actual.tokens == self.tokens[0] && !by_plain {
            0
        } else if plain == self.plain && plain > 0 {
            1
        } else if actual.tokens == self.tokens[1] && !by_plain {
            2
        } else if actual.is_all {
            3
        } else if by_plain {
            6
        } else {
            5
        };
        let kind = self.extent[self.last_extent][usize::from(is_last)].code(coder, kind);
        self.last_extent = kind;
        match kind {
            0 => Extent::Tokens(self.tokens[0]),
            1 => Extent::Plain(place + self.plain),
            2 => Extent::Tokens(self.tokens[1]),
            3 => Extent::All,
            4 => Extent::Part,
            6 => Extent::Plain(place + u64::from(self.number.code(coder, plain as u32))),
            _ => Extent::Tokens(self.number.code(coder, actual.tokens).min(PART_TOKENS)),
        }
    }

    /// Remembers how far a block went.
    fn remember(&mut self, tokens: u32, plain: u64) {
        if self.tokens[0] != tokens {
            self.tokens = [tokens, self.tokens[0]];
        }
        self.plain = plain;
    }
}

impl Stretch {
    /// A stretch that begins after `history`, with a profile.
    pub(super) fn new(history: &[u8], profile: usize) -> Result<Stretch, Damaged> {
        let profile = *PROFILES.get(profile).ok_or(Damaged::Profile)?;
        let window = Window::new(history);
        let place = window.end();
        let begin = place - history.len().min(WINDOW) as u64;
        Ok(Stretch {
            parser: Parser::new(profile, &window, begin, place),
            window,
            place,
            tokens: TokenModel::default(),
            tables: TableModel::default(),
            blocks: BlockModel::default(),
            frequencies: Frequencies::default(),
            block_end: u64::MAX,
        })
    }

    /// Codes whether the stretch ends before another block.
    pub(super) fn ends(&mut self, coder: &mut impl Coder, actual: bool) -> bool {
        self.blocks.ends.code(coder, actual)
    }

    /// Codes whether a block is the stream's last.
    pub(super) fn is_last(&mut self, coder: &mut impl Coder, actual: bool) -> bool {
        self.blocks.is_last[0].code(coder, actual)
    }

    /// Codes what the head of a block says beside its tables. `room` is how many bits of padding a stored block has here.
    pub(super) fn head(
        &mut self,
        coder: &mut impl Coder,
        is_last: bool,
        room: u32,
        actual: Option<(u16, u8)>,
        shape: Shape,
    ) -> Head {
        self.frequencies = Frequencies::default();
        self.block_end = u64::MAX;
        self.parser.begin_block(self.place, &self.tables.last);
        let blocks = &mut self.blocks;
        if !blocks.is_stored[blocks.kinds].code(coder, actual.is_some()) {
            return Head::Coded(self.extent(coder, is_last, shape));
        }
        blocks.note(0);
        let (length, padding) = actual.unwrap_or_default();
        let is_same =
            blocks.same_length[usize::from(blocks.last_length > 0)].code(coder, blocks.last_length == length);
        if !is_same {
            blocks.last_length = blocks.length.code(coder, u32::from(length)) as u16;
        }
        let padding = if room > 0 && blocks.is_padded.code(coder, padding != 0) {
            coder.code_even(u32::from(padding), room) as u8
        } else {
            0
        };
        Head::Stored {
            length: blocks.last_length,
            padding,
        }
    }

    /// Codes how far one may look beyond the places of the part of a block that follows.
    pub(super) fn sight(&mut self, coder: &mut impl Coder, actual: Sight) -> Sight {
        let kind = match actual {
            Sight::Usual => 0,
            Sight::All => 1,
            Sight::Place(_) => 2,
        };
        let kind = self.blocks.sight.code(coder, kind);
        let sight = match kind {
            0 => Sight::Usual,
            1 => Sight::All,
            _ => {
                let beyond = match actual {
                    Sight::Place(place) => place.wrapping_sub(self.place) as u32,
                    _ => 0,
                };
                Sight::Place(self.place + u64::from(self.blocks.sight_place.code(coder, beyond)))
            }
        };
        self.window.set_horizon(match sight {
            Sight::Place(place) => place,
            _ => u64::MAX,
        });
        sight
    }

    /// Codes how far the next part of a block goes.
    pub(super) fn next_part(&mut self, coder: &mut impl Coder, is_last: bool, shape: Shape) -> Extent {
        self.extent(coder, is_last, shape)
    }

    fn extent(&mut self, coder: &mut impl Coder, is_last: bool, shape: Shape) -> Extent {
        let by_plain = self.parser.profile.knows_codes();
        let extent = self
            .blocks
            .code_extent(coder, self.place, is_last, by_plain, shape);
        self.block_end = match extent {
            Extent::Plain(end) => end,
            _ => u64::MAX,
        };
        extent
    }

    /// Codes a token. The window has as many bytes as the profile looks ahead from its place on, or all that there are, and one at least.
    #[inline]
    pub(super) fn token<C: Coder>(&mut self, coder: &mut C, actual: Token) -> Result<Token, Damaged> {
        let guess = self.parser.guess(&self.window, self.place, self.block_end);
        let token = self
            .tokens
            .code(coder, &self.window, &mut self.parser, self.place, &guess, actual)?;
        self.parser.advance(&self.window, self.place, token);
        self.place += token.plain_length() as u64;
        self.frequencies.count(token);
        Ok(token)
    }

    /// Passes over stored bytes.
    pub(super) fn skip(&mut self, length: u64) {
        self.place += length;
        self.parser.skip(&self.window, self.place);
    }

    /// Codes the tables of a block.
    pub(super) fn tables(&mut self, coder: &mut impl Coder, actual: &BlockKind) -> BlockKind {
        let is_fixed = matches!(actual, BlockKind::Fixed);
        if self.blocks.is_fixed[self.blocks.kinds].code(coder, is_fixed) {
            self.blocks.note(1);
            if self.parser.profile.knows_codes() {
                self.parser.begin_block(self.place, &super::tables::fixed());
            }
            return BlockKind::Fixed;
        }
        self.blocks.note(2);
        let empty = CodeTables::default();
        let actual = match actual {
            BlockKind::Dynamic(tables) => tables,
            _ => &empty,
        };
        let knows_codes = self.parser.profile.knows_codes();
        let near = knows_codes.then(|| self.parser.expected(&self.window, self.place, self.block_end));
        let frequencies = near.as_ref().unwrap_or(&self.frequencies);
        let tables = self.tables.code(coder, frequencies, knows_codes, actual);
        if knows_codes {
            self.parser.begin_block(self.place, &self.tables.last);
        }
        BlockKind::Dynamic(Box::new(tables))
    }

    /// A block of tokens has ended, which had so many (if it was told at once) and so many plain bytes.
    pub(super) fn end_block(&mut self, tokens: u32, plain: u64) {
        self.blocks.remember(tokens, plain);
    }
}
