//! Why a pack cannot be read.

/// Why a pack, or a part of it, cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damaged {
    /// It ends otherwise.
    #[error("this is no pack")]
    Magic,
    /// A version that this program does not know.
    #[error("the pack has version {0}, and this program knows version 1")]
    Version(u32),
    /// It is shorter or longer than it says.
    #[error("the pack has a wrong length")]
    Length,
    /// The index is not the one that was written.
    #[error("the index of the pack does not have the digest that was written with it")]
    IndexDigest,
    /// The index has a number that cannot be.
    #[error("the index of the pack has a number that cannot be")]
    Number,
    /// The pack has no frame of this number.
    #[error("the pack has no frame {0}")]
    NoFrame(u32),
    /// The bytes of a frame are not those that were written.
    #[error("frame {0} of the pack does not have the digest that the index says")]
    FrameDigest(u32),
    /// The bytes of a frame are no zstd frame of the right length. It was written so.
    #[error("frame {0} of the pack cannot be decompressed")]
    Frame(u32),
}
