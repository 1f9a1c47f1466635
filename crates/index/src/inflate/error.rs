//! Why a stream cannot be inflated.

/// Why bytes are not a deflate stream.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each message says what the variant means")]
pub enum InflateError {
    #[error("the deflate stream ends in the middle of a block")]
    Truncated,
    #[error("a deflate block has the reserved type 3")]
    BlockType,
    #[error("a stored deflate block's length {length:#06x} does not match its complement {complement:#06x}")]
    StoredLength { length: u16, complement: u16 },
    #[error(
        "a deflate block declares {litlen} literal/length codes and {distance} distance codes; at most 286 and 30 exist"
    )]
    TooManyCodes { litlen: usize, distance: usize },
    #[error("a deflate block has more {0:?} codes than their lengths allow")]
    OversubscribedCode(Alphabet),
    #[error("a deflate block's {0:?} code leaves bit patterns without meaning")]
    IncompleteCode(Alphabet),
    #[error("a deflate block repeats a code length before the first, or beyond the last")]
    BadRepeat,
    #[error("a deflate block has no code for its own end")]
    NoEndOfBlock,
    #[error("a deflate block uses a bit pattern that stands for no symbol")]
    NotASymbol,
    #[error("a deflate match reaches {distance} bytes back, but only {history} bytes came before")]
    DistanceTooFar { distance: usize, history: usize },
}

/// Which of the three codes of a block a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    /// Code lengths of the other two codes.
    CodeLengths,
    /// Literals, end of block, lengths.
    LiteralsAndLengths,
    /// Distances.
    Distances,
}
