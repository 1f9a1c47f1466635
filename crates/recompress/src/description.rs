//! What is kept of a compressed stream beside its plain bytes: a list of parts, in the order of the stream. The format in bytes is
//! `docs/formats/recompression.md`.

use crate::method::Method;

/// Plain bytes before a slice that it may want, at most.
pub(crate) const MOST_HISTORY: u64 = 8 << 20;

/// How a compressed stream is made again from its plain bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Description {
    pub(crate) parts: Vec<Part>,
}

/// By what the bytes of a stream are made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shares {
    /// Bytes that known encoders make.
    pub encoder: u64,
    /// Bytes that predictions with corrections make.
    pub corrected: u64,
    /// Bytes that the description has.
    pub kept: u64,
    /// The encoders, each once.
    pub methods: Vec<Method>,
}

impl Description {
    /// By what the bytes of the stream are made.
    pub fn shares(&self) -> Shares {
        let mut shares = Shares::default();
        for part in &self.parts {
            match part {
                Part::Bytes(bytes) => shares.kept += bytes.len() as u64,
                Part::Slice(slice) => match &slice.making {
                    Making::Encoder { method, .. } => {
                        shares.encoder += slice.bytes();
                        if !shares.methods.contains(method) {
                            shares.methods.push(*method);
                        }
                    }
                    Making::Corrections { .. } | Making::Frames(_) => shares.corrected += slice.bytes(),
                },
            }
        }
        shares
    }
}

/// A part of the stream. Parts begin and end with bytes of the stream, and no byte belongs to two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// Bytes as they are: heads, sums of members, frames that readers skip.
    Bytes(Vec<u8>),
    /// Bytes that are made of plain bytes.
    Slice(Slice),
}

impl Part {
    /// How many bytes of memory it keeps, roughly, beside what every part has.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let bytes = match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Slice(slice) => match &slice.making {
                Making::Encoder { state, flushes, .. } => {
                    size_of::<u64>() * (flushes.len() + state.as_ref().map_or(0, Vec::len))
                }
                Making::Corrections { corrections, .. } | Making::Frames(corrections) => corrections.len(),
            },
        };
        bytes as u64
    }

    /// Bytes of memory that it takes while a stream is made: a vector grows to twice of what it has, and one slice at a time is copied.
    pub(crate) fn memory(&self) -> u64 {
        2 * (size_of::<Part>() as u64 + self.kept_bytes())
    }
}

/// A part that is made of plain bytes, by itself: a slice needs no other slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slice {
    /// How many plain bytes it covers.
    pub(crate) plain: u64,
    /// How many plain bytes directly before those it needs.
    pub(crate) history: u32,
    /// How many plain bytes directly after those it needs.
    pub(crate) lookahead: u32,
    /// How many bits it makes, those of `begun` not counted.
    pub(crate) bits: u64,
    /// The bits of its first byte that come from the slice before: how many, and which.
    pub(crate) begun: (u8, u8),
    /// Whether the deflate stream ends with it. Its last byte is filled up then; else the bits after its last whole byte are the next slice's.
    pub(crate) is_last: bool,
    /// How it is made.
    pub(crate) making: Making,
}

impl Slice {
    /// Whether it begins with nothing before it: a deflate stream does.
    pub(crate) fn is_first(&self) -> bool {
        match &self.making {
            Making::Encoder { state, .. } => state.is_none(),
            Making::Corrections { is_first, .. } => *is_first,
            Making::Frames(_) => self.history == 0,
        }
    }

    /// How many bytes of the stream it makes.
    pub(crate) fn bytes(&self) -> u64 {
        let bits = u64::from(self.begun.0) + self.bits;
        if self.is_last { bits.div_ceil(8) } else { bits / 8 }
    }
}

/// How a slice is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Making {
    /// By an encoder.
    Encoder {
        /// Which.
        method: Method,
        /// With what it goes on; `None` at the beginning of a deflate stream.
        state: Option<Vec<u64>>,
        /// After how many plain bytes of the slice it is flushed, in order.
        flushes: Vec<u64>,
    },
    /// By a prediction, and corrections of it.
    Corrections {
        /// Whether a deflate stream begins here.
        is_first: bool,
        /// Where the stream differs from the prediction.
        corrections: Vec<u8>,
    },
    /// Of zstd frames: by a prediction, and corrections of it.
    Frames(Vec<u8>),
}
