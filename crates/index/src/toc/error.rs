//! Errors of a table of contents.

use xebec_format::digest::Digest;
use xebec_format::layer::InvalidIndex;

use crate::inflate::InflateError;
use crate::tar::{EntryProblem, TarError};

/// Why a layer's own table of contents cannot be used. The layer can still be read as a plain gzip or zstd layer.
#[derive(Debug, thiserror::Error)]
pub enum TocError {
    /// An annotation of the layer's descriptor is malformed.
    #[error("the annotation {annotation} of the layer is not usable: {value:?}")]
    Annotation {
        /// The annotation's key.
        annotation: &'static str,
        /// Its value, shortened.
        value: String,
    },
    /// The blob is smaller than any eStargz footer.
    #[error("a blob of {0} bytes is too small to be eStargz, which its annotations say it is")]
    BlobTooSmall(u64),
    /// Bytes of another length than asked for.
    #[error("{expected} bytes of the blob were asked for, but {given} were given")]
    Length {
        /// Length of the wanted range.
        expected: u64,
        /// Bytes given.
        given: u64,
    },
    /// The blob does not end with an eStargz footer.
    #[error("no eStargz footer at the end of the blob: {0}")]
    Footer(&'static str),
    /// The table is larger than [`super::MAX_TOC`].
    #[error("the table of contents is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The table and the index that is made of it are larger than the caller has room for.
    #[error("what the table of contents describes is too large")]
    NoRoom,
    /// The table is not the one that the manifest names.
    #[error("the table of contents has digest {found}, but the manifest says {expected}")]
    Digest {
        /// The digest in the manifest.
        expected: Digest,
        /// The digest of the table that was read.
        found: Digest,
    },
    /// The table of an eStargz layer is not gzip.
    #[error("the table of contents has no proper gzip header")]
    GzipHeader,
    /// The table of an eStargz layer is not deflate.
    #[error("the table of contents cannot be decoded: {0}")]
    Inflate(#[from] InflateError),
    /// The table of an eStargz layer is not a tar archive.
    #[error("the table of contents is not in a tar archive: {0}")]
    Tar(#[from] TarError),
    /// The tar archive does not start with the table.
    #[error("no stargz.index.json where the table of contents should be")]
    NoTable,
    /// The manifest of a zstd:chunked layer cannot be decompressed to the length that it should have.
    #[error("the zstd:chunked manifest cannot be decoded: {0}")]
    Zstd(String),
    /// The table is not JSON of the expected shape.
    #[error("the table of contents is malformed: {0}")]
    Json(#[from] serde_json::Error),
    /// A version that is not known.
    #[error("the table of contents has version {0}; only version 1 is known")]
    Version(i64),
    /// An entry cannot be used.
    #[error("entry {name:?} of the table of contents is refused: {problem}")]
    Entry {
        /// The entry's name as written, shortened.
        name: String,
        /// The reason for the refusal.
        problem: TocProblem,
    },
    /// More than a layer index can hold.
    #[error("the table of contents has more {what} than {limit}")]
    Limit {
        /// The things that are too many, in words.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The result would not be a sound index.
    #[error("no layer index can be made of the table of contents: {0}")]
    Index(#[from] InvalidIndex),
}

/// Why an entry of a table of contents cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TocProblem {
    /// A tar entry would be refused for this as well.
    #[error("{0}")]
    Entry(#[from] EntryProblem),
    /// The type is unknown.
    #[error("unknown type {0:?}")]
    Type(String),
    /// The time is not RFC 3339.
    #[error("time {0:?} is not in RFC 3339 format")]
    Time(String),
    /// An extended attribute is not base64.
    #[error("extended attribute {0:?} is not base64")]
    Xattr(String),
    /// A digest is not SHA-256.
    #[error("{0:?} is not a SHA-256 digest")]
    Digest(String),
    /// A chunk has no digest of its own, so that it could not be verified.
    #[error("the chunk at {0} has no digest, so it cannot be verified")]
    NoDigest(u64),
    /// A chunk follows something that is not a file, or is of another file.
    #[error("a chunk that does not belong to the file before it")]
    StrayChunk,
    /// Chunks overlap, leave gaps, or do not add up to the file's size.
    #[error("the chunks do not make up the file: {0}")]
    Chunks(&'static str),
    /// A chunk's offsets are impossible.
    #[error("the chunk at {0} of the file is not inside the blob's payload")]
    Offset(u64),
    /// A chunk is larger than a span may be.
    #[error("the chunk at {0} of the file is too large to be fetched by itself")]
    ChunkTooLarge(u64),
    /// A chunk's type is unknown.
    #[error("unknown chunk type {0:?}")]
    ChunkType(String),
    /// A number below zero.
    #[error("{0} is negative")]
    Negative(&'static str),
}
