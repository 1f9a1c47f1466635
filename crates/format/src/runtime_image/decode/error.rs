//! Why bytes are refused, and how every reader of them takes numbers and lengths.

use crate::columns::{Column, ColumnError};
use crate::runtime_image::check::InvalidRecording;
use crate::runtime_image::encode::VERSION;
use crate::runtime_image::limits::MAX_PAGES;

/// Why bytes are not a recording that can be used.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes do not start as a recording does.
    #[error("not a recording: the first eight bytes are not \"XEBECRTI\"")]
    Magic,
    /// A version this program does not read.
    #[error(
        "the recording has version {0}, this program reads version {VERSION}: use a newer xebec, or record the service again"
    )]
    Version(u16),
    /// Feature flags this program does not know.
    #[error("the recording needs features {0:#06x} that this program does not know: use a newer xebec")]
    Features(u16),
    /// A numbered choice has a number that means nothing.
    #[error("the recording has {what} {value}, which is not known")]
    Unknown {
        /// Which choice.
        what: &'static str,
        /// The number found.
        value: u64,
    },
    /// A length is wrong, or a number in a column.
    #[error("the recording {0}")]
    Column(#[from] ColumnError),
    /// The numbers are not the zstd frame that they should be.
    #[error("cannot decompress the numbers of a recording: {0}")]
    Decompress(String),
    /// A text is not UTF-8.
    #[error("the recording has a text that is not UTF-8")]
    Text,
    /// The values contradict each other.
    #[error(transparent)]
    Invalid(#[from] InvalidRecording),
}

pub(super) fn limit(what: &'static str, value: u64, limit: u64) -> Result<(), ColumnError> {
    if value > limit {
        Err(ColumnError::Limit { what, value, limit })
    } else {
        Ok(())
    }
}

/// The number of pages of a run. One of none would cost time and say nothing.
pub(super) fn length(column: &mut Column<'_>) -> Result<u64, DecodeError> {
    match column.count(MAX_PAGES)? {
        0 => Err(DecodeError::Unknown {
            what: "length of a run of pages",
            value: 0,
        }),
        pages => Ok(pages as u64),
    }
}

pub(super) fn fixed<const N: usize>(column: &mut Column<'_>) -> Result<[u8; N], ColumnError> {
    column
        .bytes(N)?
        .try_into()
        .map_err(|_| ColumnError::Truncated("a field of fixed width"))
}
