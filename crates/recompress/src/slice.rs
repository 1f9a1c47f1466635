//! Makes one slice of a stream again.

use crate::description::{Making, Slice};
use crate::predict::Reader;
use xebec_bitstream::BitWriter;
use xebec_deflate::encoders::{Cut, Encoder, Output};
use xebec_zstd_frames::restore::restore;

/// Plain bytes of a slice that an encoder makes, at least: it ends with a block. Less makes descriptions larger, by some twenty bytes for each slice, and has
/// more bytes before slices read again; more makes each restored range longer, and leaves processors without a slice of their own.
/// In the crate's own tests it is less, so that short streams have many cuts.
pub(crate) const SLICE: u64 = if cfg!(test) { 256 << 10 } else { 1 << 20 };
/// The same of the first ones: what comes first comes soon. Each is as long as all before it, until one has [`SLICE`].
const FIRST_SLICE: u64 = SLICE / 4;

/// Plain bytes that a slice has at least, of a stream with so many before it.
pub(crate) fn least(before: u64) -> u64 {
    before.clamp(FIRST_SLICE, SLICE)
}

/// The encoder made something else than the description promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch;

/// Bits that corrections may make beyond their slice, before they are refused.
const READERS_ROOM: u64 = 64 << 10;
/// Plain bytes that a maker is given at once.
const PIECE: usize = 16 << 10;

/// Makes one slice.
pub(crate) struct SliceRestorer {
    maker: Maker,
    bits: BitWriter,
    /// Plain bytes that it needs, those after its own too.
    plain: u64,
    /// Plain bytes that were taken.
    taken: u64,
    /// Bytes that it makes, and those that were made.
    bytes: u64,
    made: u64,
    is_last: bool,
    is_finished: bool,
}

enum Maker {
    Encoder {
        encoder: Box<dyn Encoder>,
        /// After how many plain bytes it is flushed, and how often that was done.
        flushes: Vec<u64>,
        flushed: usize,
    },
    Prediction(Box<Reader>),
    /// Frames are made at once, when all plain bytes are there.
    Frames {
        corrections: Vec<u8>,
        text: Vec<u8>,
        start: usize,
    },
}

impl SliceRestorer {
    /// `position` is how many plain bytes of its deflate stream come before the slice.
    pub(crate) fn new(slice: &Slice, history: &[u8], position: u64) -> Result<SliceRestorer, Mismatch> {
        let maker = match &slice.making {
            Making::Encoder {
                method,
                state,
                flushes,
            } => {
                let encoder = match state {
                    None => method.start(),
                    Some(state) => {
                        let cut = Cut {
                            plain: position,
                            bit: u64::from(slice.begun.0),
                            state: state.clone(),
                        };
                        method.resume(history, &cut)
                    }
                };
                Maker::Encoder {
                    encoder: encoder.ok_or(Mismatch)?,
                    flushes: flushes.clone(),
                    flushed: 0,
                }
            }
            Making::Corrections { corrections, .. } => {
                // The reader looks ahead of itself: it refuses a block that might not fit.
                let limit = u64::from(slice.begun.0) + slice.bits + READERS_ROOM;
                let reader = Reader::new(corrections.clone(), history, limit).map_err(|_| Mismatch)?;
                Maker::Prediction(Box::new(reader))
            }
            Making::Frames(corrections) => Maker::Frames {
                corrections: corrections.clone(),
                text: history.to_vec(),
                start: history.len(),
            },
        };
        Ok(SliceRestorer {
            maker,
            bits: BitWriter::resume(u64::from(slice.begun.0), slice.begun.1),
            plain: slice.plain + u64::from(slice.lookahead),
            taken: 0,
            bytes: slice.bytes(),
            made: 0,
            is_last: slice.is_last,
            is_finished: false,
        })
    }

    /// Whether all of its bytes were made.
    pub(crate) fn has_ended(&self) -> bool {
        self.made == self.bytes && (self.is_finished || !self.is_last)
    }

    /// Takes plain bytes and appends what they make. Returns how many were taken: all, unless the slice has ended.
    pub(crate) fn write(&mut self, plain: &[u8], stream: &mut Vec<u8>) -> Result<usize, Mismatch> {
        let mut rest = plain;
        while !self.has_ended() {
            let left = self.plain - self.taken;
            let piece = &rest[..(PIECE as u64).min(left).min(rest.len() as u64) as usize];
            let Some(taken) = self.step(piece)? else { break };
            self.taken += taken as u64;
            rest = &rest[taken..];
            let made = self.bits.take();
            let wanted = (self.bytes - self.made).min(made.len() as u64) as usize;
            if self.is_last && wanted < made.len() {
                return Err(Mismatch);
            }
            stream.extend_from_slice(&made[..wanted]);
            self.made += wanted as u64;
        }
        Ok(plain.len() - rest.len())
    }

    /// Takes some of a piece of plain bytes, or does what comes when there is none. `None`: more plain bytes are needed.
    fn step(&mut self, piece: &[u8]) -> Result<Option<usize>, Mismatch> {
        let is_end = self.taken == self.plain;
        if is_end && self.is_finished {
            return Err(Mismatch);
        }
        match &mut self.maker {
            Maker::Encoder { .. } => self.encode(piece, is_end),
            Maker::Prediction(reader) if !piece.is_empty() => {
                reader.write(piece, &mut self.bits).map_err(|_| Mismatch)?;
                Ok(Some(piece.len()))
            }
            Maker::Frames { text, .. } if !piece.is_empty() => {
                text.extend_from_slice(piece);
                Ok(Some(piece.len()))
            }
            _ if !is_end => Ok(None),
            Maker::Prediction(reader) => {
                reader.finish(&mut self.bits).map_err(|_| Mismatch)?;
                if self.is_last {
                    self.bits.align();
                }
                self.is_finished = true;
                Ok(Some(0))
            }
            Maker::Frames {
                corrections,
                text,
                start,
            } => {
                let most = usize::try_from(self.bytes).map_err(|_| Mismatch)?;
                let frames = restore(text, *start, corrections, most).map_err(|_| Mismatch)?;
                self.bits.put_bytes(&frames);
                self.is_finished = true;
                Ok(Some(0))
            }
        }
    }

    /// A step of an encoder: it takes plain bytes up to the next flush, flushes, or finishes.
    fn encode(&mut self, piece: &[u8], is_end: bool) -> Result<Option<usize>, Mismatch> {
        let Maker::Encoder {
            encoder,
            flushes,
            flushed,
        } = &mut self.maker
        else {
            return Err(Mismatch);
        };
        // An encoder writes to an output of its own kind; nobody wants a cut here.
        let mut output = Output {
            bits: std::mem::take(&mut self.bits),
            ..Output::default()
        };
        let flush = flushes
            .get(*flushed)
            .copied()
            .filter(|flush| *flush <= self.plain);
        let before_flush = flush.map_or(u64::MAX, |flush| flush.saturating_sub(self.taken));
        let taken = (piece.len() as u64).min(before_flush) as usize;
        let outcome = if taken > 0 {
            encoder.write(&piece[..taken], &mut output);
            Ok(Some(taken))
        } else if before_flush == 0 {
            encoder.flush(&mut output);
            *flushed += 1;
            Ok(Some(0))
        } else if is_end && self.is_last {
            encoder.finish(&mut output);
            output.bits.align();
            self.is_finished = true;
            Ok(Some(0))
        } else if is_end {
            Err(Mismatch)
        } else {
            Ok(None)
        };
        self.bits = output.bits;
        outcome
    }
}
