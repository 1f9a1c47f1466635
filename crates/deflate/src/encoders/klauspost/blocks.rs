//! Writes blocks: chooses how each is written, and whether it goes on with the code of the one before.
//!
//! The matchers make batches of tokens, and several batches can be one block: the end of a block is not written until the next batch is there and
//! shows that codes of its own are worth it. So a block ends, and a cut can be, only when the batch after it is known. A cut keeps what that batch
//! chose, since the choice depends on the codes before it, which whoever resumes does not have.

use super::choice::Chooser;
use super::codes::{Choice, Codes, Open};
use super::generation::Generation;
use super::old_choice::OldChooser;
use super::place::Place;
use super::tokens::Tokens;
use crate::encoders::Output;
use xebec_bitstream::BitWriter;

/// The most bytes of a stored block.
const MOST_STORED: usize = 65_535;

/// Writes blocks.
#[derive(Debug, Clone)]
pub(super) struct BlockWriter {
    chooser: Chooser,
    /// Chooses instead in generations before 1.14.4.
    old_chooser: Option<OldChooser>,
    /// Whether that one chooses for bytes without copies, too.
    is_oldest: bool,
    /// The block whose end is not written yet.
    open: Option<Box<Open>>,
    /// The choice of the first batch after a cut. 0: it chooses by itself.
    chosen: u64,
}

impl BlockWriter {
    pub(super) fn new(generation: Generation, penalty: u32) -> BlockWriter {
        BlockWriter {
            chooser: Chooser::new(generation, penalty),
            old_chooser: (generation < Generation::V1_14_4).then_some(OldChooser { generation, penalty }),
            is_oldest: generation < Generation::V1_12_3,
            open: None,
            chosen: 0,
        }
    }

    /// Goes on after a cut whose first number is this.
    pub(super) fn resume(&mut self, chosen: u64) {
        self.chosen = chosen;
    }

    /// Forgets all blocks before.
    pub(super) fn restart(&mut self) {
        self.open = None;
        self.chosen = 0;
    }

    /// Writes a batch of tokens between two places. `plain` holds its bytes, if the encoder has them still. With `is_whole` the block ends with it.
    pub(super) fn write_tokens(
        &mut self,
        tokens: &Tokens,
        plain: Option<&[u8]>,
        is_whole: bool,
        places: [Place; 2],
        output: &mut Output,
    ) {
        let plain = plain.filter(|plain| plain.len() <= MOST_STORED);
        let length = plain.map(<[u8]>::len);
        let choice = match (self.chosen, self.old_chooser) {
            (0, None) => self
                .chooser
                .choose_tokens(self.open.as_deref(), tokens, length, is_whole),
            (0, Some(old)) => old.choose_tokens(self.open.as_deref(), tokens, length, is_whole),
            (Choice::NEW, None) => self.chooser.new_codes(tokens, is_whole),
            (Choice::NEW, Some(old)) => old.new_codes(tokens, is_whole),
            (Choice::FIXED, _) => Choice::Fixed,
            _ => Choice::Stored,
        };
        let header = self.begin(&choice, places[0], output);
        match choice {
            Choice::Stored => self.put_stored(plain.unwrap_or_default(), places[1], output),
            Choice::Fixed => {
                output.bits.put(1 << 1, 3);
                self.chooser.fixed().put_tokens(tokens.list(), &mut output.bits);
                self.chooser.fixed().put_end(&mut output.bits);
                end_block(places[1], output);
            }
            Choice::New(codes, _) => {
                self.open = Some(Box::new(Open {
                    codes: *codes,
                    header,
                    is_literal: false,
                }));
                self.put_open(is_whole, places[1], output, |codes, bits| {
                    codes.put_tokens(tokens.list(), bits)
                });
            }
            Choice::GoOn => {
                self.put_open(is_whole, places[1], output, |codes, bits| {
                    codes.put_tokens(tokens.list(), bits)
                });
            }
        }
    }

    /// Writes bytes without copies, [`MOST_STORED`] at most. With `is_whole` the block ends with them.
    pub(super) fn write_literals(
        &mut self,
        plain: &[u8],
        is_whole: bool,
        places: [Place; 2],
        output: &mut Output,
    ) {
        let choice = match (self.chosen, self.old_chooser.filter(|_| self.is_oldest)) {
            (0, None) => self.chooser.choose_literals(self.open.as_deref(), plain),
            (0, Some(old)) => old.choose_literals(self.open.as_deref(), plain, is_whole),
            (Choice::NEW, None) => self.chooser.new_code_for_literals(plain),
            (Choice::NEW, Some(old)) => old.new_code_for_literals(plain, is_whole),
            _ => Choice::Stored,
        };
        let header = self.begin(&choice, places[0], output);
        match choice {
            Choice::Stored | Choice::Fixed => self.put_stored(plain, places[1], output),
            Choice::New(codes, _) => {
                self.open = Some(Box::new(Open {
                    codes: *codes,
                    header,
                    is_literal: true,
                }));
                self.put_open(is_whole, places[1], output, |codes, bits| {
                    codes.put_literals(plain, bits)
                });
            }
            Choice::GoOn => {
                self.put_open(is_whole, places[1], output, |codes, bits| {
                    codes.put_literals(plain, bits)
                });
            }
        }
    }

    /// Writes bytes as they are, [`MOST_STORED`] at most.
    pub(super) fn write_stored(&mut self, plain: &[u8], places: [Place; 2], output: &mut Output) {
        self.begin(&Choice::Stored, places[0], output);
        self.put_stored(plain, places[1], output);
    }

    /// Writes an empty stored block.
    pub(super) fn write_mark(&mut self, output: &mut Output) {
        self.put_owed_end(output);
        put_stored_block(&[], output);
    }

    /// Writes the last block, which is empty.
    pub(super) fn write_end(&mut self, output: &mut Output) {
        self.put_owed_end(output);
        output.bits.put(1 | 1 << 1, 3);
        self.chooser.fixed().put_end(&mut output.bits);
        output.bits.align();
    }

    fn put_owed_end(&mut self, output: &mut Output) {
        if let Some(open) = self.open.take() {
            open.codes.put_end(&mut output.bits);
        }
    }

    /// Ends the block before, if the choice says so, and writes the head of a new one with codes of its own. Returns the size of the head.
    fn begin(&mut self, choice: &Choice, place: Place, output: &mut Output) -> usize {
        self.chosen = 0;
        if matches!(choice, Choice::GoOn) {
            return 0;
        }
        if self.open.is_some() {
            self.put_owed_end(output);
            output.end_of_block(place.plain, || {
                let matcher = place.matcher?;
                Some(std::iter::once(choice.number()).chain(matcher).collect())
            });
        }
        match choice {
            Choice::New(_, header) => {
                header.put(&mut output.bits);
                header.size()
            }
            _ => 0,
        }
    }

    /// Writes into the open block.
    fn put_open(
        &mut self,
        is_whole: bool,
        place: Place,
        output: &mut Output,
        put: impl FnOnce(&Codes, &mut BitWriter),
    ) {
        let Some(open) = &self.open else { return };
        put(&open.codes, &mut output.bits);
        if is_whole {
            self.put_owed_end(output);
            end_block(place, output);
        }
    }

    fn put_stored(&mut self, plain: &[u8], place: Place, output: &mut Output) {
        put_stored_block(plain, output);
        end_block(place, output);
    }
}

/// A block ends here that did not depend on the ones before.
fn end_block(place: Place, output: &mut Output) {
    output.end_of_block(place.plain, || {
        let matcher = place.matcher?;
        Some(std::iter::once(0).chain(matcher).collect())
    });
}

fn put_stored_block(plain: &[u8], output: &mut Output) {
    let bits = &mut output.bits;
    bits.put(0, 3);
    bits.align();
    let length = plain.len() as u16;
    bits.put(u64::from(length), 16);
    bits.put(u64::from(!length), 16);
    bits.put_bytes(plain);
}
