//! How much a stream may be, and why one is not taken apart.

use xebec_deflate::format::inflate::InvalidDeflate;
use xebec_zstd_frames::InvalidZstd;

/// How much a stream may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Plain bytes.
    pub plain: u64,
}

/// Why a stream is not taken apart. It stays as it is, then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It is not compressed, or in a format that is not known.
    #[error("the format of the stream is not known")]
    Format,
    /// A deflate stream is broken.
    #[error("{0}")]
    Deflate(#[from] InvalidDeflate),
    /// Zstd frames are broken, or need a dictionary or too large a window.
    #[error("{0}")]
    Zstd(#[from] InvalidZstd),
    /// It has more plain bytes than it may.
    #[error("there are more than {0} plain bytes")]
    TooLarge(u64),
    /// It ends in the middle.
    #[error("the stream ends too soon")]
    Truncated,
    /// Its description would have more than 128 MiB.
    #[error("the description of the stream would have more than 128 MiB")]
    TooLong,
    /// Something in it that no encoder writes, and that a description cannot tell.
    #[error("the stream has what no encoder writes")]
    Unknown,
}
