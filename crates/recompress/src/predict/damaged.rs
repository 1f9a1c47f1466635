//! What a reader says of corrections that cannot be followed.

/// Corrections that do not fit the plain bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damaged {
    /// A profile that does not exist.
    #[error("corrections name a profile that does not exist")]
    Profile,
    /// A copy from where the bytes are others, or from before the beginning.
    #[error("corrections tell a copy of bytes that are not there")]
    Copy,
    /// A symbol that its block's code has no word for.
    #[error("corrections tell a code without a word for a symbol that comes")]
    Word,
    /// Blocks that do not end where the plain bytes do.
    #[error("corrections tell blocks of more or fewer plain bytes than there are")]
    Length,
    /// More bits than the caller allows.
    #[error("corrections tell a longer stream than is allowed")]
    TooLong,
}
