//! Errors of a tar archive.

use xebec_format::path::PathError;

/// Why a layer's tar archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// The stream ends where more must follow.
    #[error("the tar archive is cut off: it ends at byte {at}, inside {inside}")]
    Truncated {
        /// Where the stream ends.
        at: u64,
        /// The structure that is incomplete, in words.
        inside: &'static str,
    },
    /// A header block, or a PAX header, makes no sense.
    #[error("bad tar header at byte {at}: {problem}")]
    Header {
        /// Offset of the header block in the stream.
        at: u64,
        /// The defect of the header.
        problem: HeaderProblem,
    },
    /// The header is well formed, but the entry cannot be part of an image.
    #[error("tar entry {name:?} (header at byte {at}) is refused: {problem}")]
    Entry {
        /// Offset of the header block in the stream.
        at: u64,
        /// The entry's name as written, shortened.
        name: String,
        /// The reason for the refusal.
        problem: EntryProblem,
    },
    /// The archive asks for more than a [`crate::tar::TarLimits`] allows.
    #[error("tar header at byte {at}: {what} would exceed the limit of {limit}")]
    Limit {
        /// Offset of the header block in the stream.
        at: u64,
        /// The quantity that is too large, in words.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The sink refused contents.
    #[error("cannot hand on file contents: {0}")]
    Sink(#[from] std::io::Error),
    /// The parser was used again after an error.
    #[error("the tar parser has failed before")]
    Failed,
}

/// A defect of a header.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HeaderProblem {
    /// Neither the signed nor the unsigned sum matches.
    #[error("wrong checksum (is this a tar archive?)")]
    Checksum,
    /// A numeric field holds no number, or one that does not fit.
    #[error("the field {0:?} is not a number")]
    Number(&'static str),
    /// Something follows a single block of zeros.
    #[error("a block that is not zero follows a single end block")]
    AfterEndBlock,
    /// A special entry has a negative size.
    #[error("negative size")]
    NegativeSize,
    /// A PAX record is not `LENGTH KEY=VALUE\n`, or holds a NUL where none may be.
    #[error("malformed PAX record")]
    PaxRecord,
    /// A 0.0 sparse map in PAX records is out of order.
    #[error("PAX sparse records out of order")]
    PaxSparseOrder,
}

/// Why an entry cannot be part of an image.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EntryProblem {
    /// The path is not usable.
    #[error("{0}")]
    Path(#[from] PathError),
    /// The target of a hard link is not usable.
    #[error("hard link target: {0}")]
    LinkPath(PathError),
    /// The entry's type is unknown.
    #[error("unhandled tar header type {:?}", char::from(*.0))]
    Type(u8),
    /// A size below zero.
    #[error("negative size")]
    NegativeSize,
    /// A PAX record that must be a number or a time is not.
    #[error("PAX record {0:?} is not a number")]
    Number(&'static str),
    /// Owner or group outside 32 bits.
    #[error("{0} {1} does not fit into 32 bits")]
    Owner(&'static str, i64),
    /// A device number that Linux does not have (12 bits major, 20 bits minor).
    #[error("device number {0}:{1} is out of range")]
    Device(i64, i64),
    /// A whiteout that names nothing below its directory.
    #[error("whiteout without a name to remove")]
    Whiteout,
    /// A symbolic link without a target, or with one of more than 4,095 bytes.
    #[error("symbolic link target of {0} bytes (1 to 4095 are possible)")]
    SymlinkTarget(usize),
    /// A hard link to the root or to itself.
    #[error("hard link to the root or to itself")]
    LinkTarget,
    /// An extended attribute's name is empty, too long, or nothing but a namespace.
    #[error("bad name of an extended attribute: {0:?}")]
    XattrName(String),
    /// An extended attribute's value is longer than 64 KiB.
    #[error("extended attribute {0:?} is larger than 65536 bytes")]
    XattrValue(String),
    /// All extended attributes of the entry together are too large.
    #[error("extended attributes are larger than {0} bytes together")]
    Xattrs(u64),
    /// The map of a sparse file is wrong.
    #[error("sparse file: {0}")]
    Sparse(#[from] SparseProblem),
}

/// A defect of a sparse file's map.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SparseProblem {
    /// A number in the map is missing or malformed.
    #[error("malformed map")]
    Malformed,
    /// Type `S` in an archive that is not GNU's.
    #[error("old GNU sparse map in a header that is not GNU's")]
    NotGnu,
    /// A sparse map on something that has no contents.
    #[error("map on an entry that has no contents")]
    NotAFile,
    /// An offset or length below zero.
    #[error("negative offset or length")]
    Negative,
    /// Segments overlap or descend.
    #[error("segments overlap or are out of order")]
    Order,
    /// A segment ends beyond the file's size.
    #[error("a segment ends beyond the file's size")]
    BeyondSize,
    /// The segments do not add up to the contents that the archive carries.
    #[error("segments of {mapped} bytes in all, but {stored} bytes are stored")]
    Total {
        /// Sum of the segments' lengths.
        mapped: u64,
        /// Bytes of contents in the archive.
        stored: u64,
    },
    /// The map is longer than the limit.
    #[error("map too long")]
    TooLong,
}
