//! The hot loop: literals and matches of one block.
//!
//! The fast loop runs while at least [`FAST_INPUT`] bytes of input and a whole match of room are left. So nothing can
//! run out inside it: a refill is one load, a copy may write in fixed steps beyond its end. The last
//! symbols of the input go through the careful loop, which checks every bit. Indexes into tables are masked to
//! their power-of-two size, so the compiler needs no check for them.

use super::huffman::{
    DISTANCE_BITS, DISTANCE_ROOM, END, LITERAL, LITLEN_BITS, LITLEN_ROOM, SPECIAL, SUBTABLE,
};
use super::{Decoder, InflateError, Input, Output, Stop, Tables};

/// Input that one round of the fast loop may load: three refills of eight bytes.
const FAST_INPUT: usize = 32;

impl Tables {
    #[inline(always)]
    fn litlen(&self, bits: u64) -> u32 {
        self.litlen[bits as usize & ((1 << LITLEN_BITS) - 1)]
    }

    #[inline(always)]
    fn distance(&self, bits: u64) -> u32 {
        self.distance[bits as usize & ((1 << DISTANCE_BITS) - 1)]
    }

    /// The entry that `pointer` leads to, for the bits after those that the pointer consumed.
    #[inline(always)]
    fn long_litlen(&self, pointer: u32, bits: u64) -> u32 {
        self.litlen[subtable_index(pointer, bits) & (LITLEN_ROOM - 1)]
    }

    #[inline(always)]
    fn long_distance(&self, pointer: u32, bits: u64) -> u32 {
        self.distance[subtable_index(pointer, bits) & (DISTANCE_ROOM - 1)]
    }
}

#[inline(always)]
fn subtable_index(pointer: u32, bits: u64) -> usize {
    let width = pointer >> 8 & 15;
    (pointer >> 16 & 0x7fff) as usize + (bits as usize & ((1 << width) - 1))
}

/// The base value of `entry` plus the extra bits that follow its code in `bits`.
#[inline(always)]
fn value(entry: u32, bits: u64) -> usize {
    let with_code = bits & ((1 << (entry & 63)) - 1);
    (entry >> 16) as usize + (with_code >> (entry >> 8 & 15)) as usize
}

impl Decoder {
    /// Decodes symbols of the block that the decoder is in; `None` when the block has ended.
    pub(super) fn decode_codes(
        &mut self,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Result<Option<Stop>, InflateError> {
        let ended = if output.references.is_some() {
            self.fast_loop::<true>(input, output)
        } else {
            self.fast_loop::<false>(input, output)
        };
        if ended? {
            return Ok(None);
        }
        if output.position >= output.limit {
            return Ok(Some(Stop::Output));
        }
        if !input.last {
            return Ok(Some(Stop::Input));
        }
        self.careful_loop(input, output)
    }

    /// Decodes while nothing can run out; true when the block has ended.
    fn fast_loop<const NOTE: bool>(
        &mut self,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Result<bool, InflateError> {
        let result = self.fast_symbols::<NOTE>(input, output);
        self.give_back(input);
        result
    }

    /// One function, since it is the hot loop of indexing, whose state should stay in registers.
    #[inline(always)]
    fn fast_symbols<const NOTE: bool>(
        &mut self,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Result<bool, InflateError> {
        let tables = &*self.tables;
        let source = input.bytes;
        let source_end = source.len().saturating_sub(FAST_INPUT);
        let (history, limit) = (output.history, output.limit);
        let out = &mut *output.bytes;
        let (mut bits, mut count) = (self.bits, self.bit_count);
        let (mut from, mut to) = (input.position, output.position);
        let mut result = Ok(false);

        // Only the low six bits of `count` count, so that entries can be subtracted whole. A refill takes as many
        // whole bytes as fit; bits above `count` are not zero after it, but the next refill puts the same bits there.
        macro_rules! refill {
            () => {
                bits |= load(source, from) << (count & 63);
                from += (!count >> 3 & 7) as usize;
                count |= 56;
            };
        }
        macro_rules! consume {
            ($entry:expr) => {
                bits >>= $entry & 63;
                count = count.wrapping_sub($entry);
            };
        }
        macro_rules! literal {
            ($entry:expr) => {
                consume!($entry);
                out[to] = ($entry >> 16) as u8;
                to += 1;
            };
        }
        if from >= source_end {
            return Ok(false);
        }
        refill!();
        let mut entry = tables.litlen(bits);
        while from < source_end && to < limit {
            if entry & LITERAL != 0 {
                // Three literals and a length take at most 3 * 11 + 20 of the 56 bits.
                literal!(entry);
                entry = tables.litlen(bits);
                if entry & LITERAL != 0 {
                    literal!(entry);
                    entry = tables.litlen(bits);
                    if entry & LITERAL != 0 {
                        literal!(entry);
                        refill!();
                        entry = tables.litlen(bits);
                        continue;
                    }
                }
            }
            if entry & SPECIAL != 0 {
                if entry & SUBTABLE != 0 {
                    consume!(entry);
                    entry = tables.long_litlen(entry, bits);
                }
                if entry & LITERAL != 0 {
                    literal!(entry);
                    refill!();
                    entry = tables.litlen(bits);
                    continue;
                }
                if entry & END != 0 {
                    consume!(entry);
                    result = Ok(true);
                    break;
                }
                if entry & SPECIAL != 0 {
                    result = Err(InflateError::NotASymbol);
                    break;
                }
            }
            let length = value(entry, bits);
            consume!(entry);
            refill!();
            entry = tables.distance(bits);
            if entry & SPECIAL != 0 {
                if entry & SUBTABLE != 0 {
                    consume!(entry);
                    entry = tables.long_distance(entry, bits);
                }
                if entry & SPECIAL != 0 {
                    result = Err(InflateError::NotASymbol);
                    break;
                }
            }
            let distance = value(entry, bits);
            consume!(entry);
            if distance > to - history {
                result = Err(InflateError::DistanceTooFar {
                    distance,
                    history: to - history,
                });
                break;
            }
            if NOTE && let Some(references) = output.references.as_deref_mut() {
                references.note(to, distance, length);
            }
            // The next symbol is looked up before the copy, so that the two overlap.
            refill!();
            entry = tables.litlen(bits);
            copy_match(out, to, distance, length);
            to += length;
        }
        count &= 63;
        (self.bits, self.bit_count) = (bits, count);
        (input.position, output.position) = (from, to);
        result
    }

    /// Decodes to the end of the last input, checking every bit; stops like the fast loop.
    fn careful_loop(
        &mut self,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Result<Option<Stop>, InflateError> {
        while output.position < output.limit {
            self.refill(input);
            let mut entry = self.tables.litlen(self.bits);
            if entry & SUBTABLE != 0 && entry & SPECIAL != 0 {
                self.consume(entry)?;
                entry = self.tables.long_litlen(entry, self.bits);
            }
            if entry & LITERAL != 0 {
                self.consume(entry)?;
                output.bytes[output.position] = (entry >> 16) as u8;
                output.position += 1;
                continue;
            }
            if entry & SPECIAL != 0 {
                self.consume(entry)?;
                self.give_back(input);
                return if entry & END != 0 {
                    Ok(None)
                } else {
                    Err(InflateError::NotASymbol)
                };
            }
            let length = value(entry, self.bits);
            self.consume(entry)?;
            self.refill(input);
            let mut entry = self.tables.distance(self.bits);
            if entry & SUBTABLE != 0 && entry & SPECIAL != 0 {
                self.consume(entry)?;
                entry = self.tables.long_distance(entry, self.bits);
            }
            if entry & SPECIAL != 0 {
                return Err(InflateError::NotASymbol);
            }
            let distance = value(entry, self.bits);
            self.consume(entry)?;
            let history = output.position - output.history;
            if distance > history {
                return Err(InflateError::DistanceTooFar { distance, history });
            }
            if let Some(references) = output.references.as_deref_mut() {
                references.note(output.position, distance, length);
            }
            copy_match(output.bytes, output.position, distance, length);
            output.position += length;
        }
        self.give_back(input);
        Ok(Some(Stop::Output))
    }

    fn consume(&mut self, entry: u32) -> Result<(), InflateError> {
        let count = entry & 31;
        if count > self.bit_count {
            return Err(InflateError::Truncated);
        }
        self.bits >>= count;
        self.bit_count -= count;
        Ok(())
    }
}

/// Eight bytes at `from`, the first one lowest. Callers make sure that they are there.
#[inline(always)]
fn load(source: &[u8], from: usize) -> u64 {
    match source.get(from..from + 8).and_then(|bytes| bytes.first_chunk()) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

/// Repeats `length` bytes from `distance` before `to`. May write up to 31 bytes more, which are overwritten later.
#[inline(always)]
fn copy_match(out: &mut [u8], to: usize, distance: usize, length: usize) {
    let from = to - distance;
    if distance >= 16 {
        copy_steps::<16>(out, from, to, length);
    } else if distance >= 8 {
        copy_steps::<8>(out, from, to, length);
    } else if distance == 1 {
        let byte = out[from];
        out[to..to + length].fill(byte);
    } else {
        for index in 0..length {
            out[to + index] = out[from + index];
        }
    }
}

/// Copies in steps of `STEP` bytes, which the distance is not below: each step reads only finished bytes.
#[inline(always)]
fn copy_steps<const STEP: usize>(out: &mut [u8], from: usize, to: usize, length: usize) {
    let mut done = 0;
    while done < length {
        let mut step = [0u8; STEP];
        step.copy_from_slice(&out[from + done..from + done + STEP]);
        out[to + done..to + done + STEP].copy_from_slice(&step);
        done += STEP;
    }
}
