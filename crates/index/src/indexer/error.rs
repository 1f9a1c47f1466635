//! Why a layer cannot be indexed.

use std::io;

use crate::gzip::GzipError;
use crate::tar::TarError;

/// Why a layer cannot be indexed.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The blob could not be read.
    #[error("reading the layer: {0}")]
    Read(io::Error),
    /// The blob is not the gzip that its first bytes promise.
    #[error("the layer is bad gzip: {0}")]
    Gzip(GzipError),
    /// The blob is not the zstd that its first bytes promise.
    #[error("the layer is bad zstd, near byte {at}: {error}")]
    Zstd {
        /// Offset in the blob.
        at: u64,
        /// The error of zstd.
        error: io::Error,
    },
    /// The decoded layer is not a usable tar archive.
    #[error("the layer's tar archive: {0}")]
    Tar(TarError),
    /// The [`super::DataSink`] failed.
    #[error("keeping the layer's contents: {0}")]
    Sink(io::Error),
    /// The layer decodes to more than [`super::IndexOptions::max_plain`].
    #[error("the layer decodes to more than {limit} bytes; it may be a decompression bomb")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The compressed frame is larger than [`super::IndexOptions::max_frame`].
    #[error("what the layer's archive holds besides file contents is larger than {limit} bytes compressed")]
    FrameTooLarge {
        /// The limit.
        limit: u64,
    },
    /// Compressing a window or the frame failed.
    #[error("compressing the index: {0}")]
    Compress(io::Error),
    /// A thread of the indexer could not be started, or ended early.
    #[error("a thread of the indexer failed: {0}")]
    Thread(String),
}

impl From<GzipError> for IndexError {
    fn from(error: GzipError) -> Self {
        match error {
            GzipError::Read(error) => Self::Read(error),
            error => Self::Gzip(error),
        }
    }
}

impl From<TarError> for IndexError {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Sink(error) => Self::Sink(error),
            error => Self::Tar(error),
        }
    }
}
