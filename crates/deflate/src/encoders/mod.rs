//! Encoders whose output can be made again, bit for bit.
//!
//! Each module makes what one family of encoders makes, by its own matcher and its own choice of blocks and codes, so that the same plain bytes give
//! the same stream. All of them write through [`Output`] and promise this:
//!
//! * The sizes of the pieces in which plain bytes come make no difference.
//! * Memory is bounded by a constant of the encoder (about 2 MiB at most), whatever comes.
//! * At the end of each block [`Output::end_of_block`] may ask for a [`Cut`]: all that is needed, beside plain bytes before the cut, to go on there as
//!   if nothing had been cut. Tables are not part of it: whoever resumes fills them from the bytes before. Whether that does is tried when a stream
//!   is taken apart; where it does not, the cut is not kept.

pub mod gnu_gzip;
pub mod go;
pub mod klauspost;
pub mod pigz;
pub mod zlib;

use xebec_bitstream::BitWriter;

/// A place between two blocks at which an encoder can be resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// How many plain bytes the blocks before it hold. The caller of a resumed encoder gives it the bytes from here on.
    pub plain: u64,
    /// The bit of the deflate stream at which the next block begins.
    pub bit: u64,
    /// What the encoder was about to do with the bytes after the cut: small numbers, whose meaning is the encoder's own.
    pub state: Vec<u64>,
}

/// Where an encoder writes.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// The deflate stream.
    pub bits: BitWriter,
    /// From which plain byte on the end of a block is wanted as a cut; `None`: none is.
    pub wanted: Option<u64>,
    /// The cut that was made since. Nothing is wanted after it.
    pub cut: Option<Cut>,
}

impl Output {
    /// Encoders call this after each block that they have written whole, but not after the last one of a stream. `plain` is how many plain bytes,
    /// from the beginning of the stream, the blocks up to here hold. `state` is called only if a cut is wanted here; it returns `None` if the
    /// encoder cannot be resumed here.
    #[inline]
    pub fn end_of_block(&mut self, plain: u64, state: impl FnOnce() -> Option<Vec<u64>>) {
        if self.wanted.is_some_and(|wanted| plain >= wanted)
            && let Some(state) = state()
        {
            self.wanted = None;
            self.cut = Some(Cut {
                plain,
                bit: self.bits.position(),
                state,
            });
        }
    }
}

/// An encoder at work on one deflate stream.
pub trait Encoder: Send {
    /// Takes plain bytes, and writes the blocks which they make complete.
    fn write(&mut self, plain: &[u8], output: &mut Output);

    /// Writes all that was taken, and an empty stored block (zlib's `Z_SYNC_FLUSH`, Go's `Flush`).
    fn flush(&mut self, output: &mut Output);

    /// Writes all that was taken, and the end of the stream. Nothing is written afterwards.
    fn finish(&mut self, output: &mut Output);
}
