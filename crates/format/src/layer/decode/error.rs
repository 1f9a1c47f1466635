//! Why bytes are refused, and the checks that every reader of them makes before it takes more.

use crate::columns::ColumnError;
use crate::layer::check::InvalidIndex;
use crate::layer::encode::VERSION;
use crate::layer::weight::Room;
use crate::path::PathError;

/// Why bytes are not a layer index that can be used.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes do not start as a layer index does.
    #[error("not a layer index: the first eight bytes are not \"XEBECIDX\"")]
    Magic,
    /// A version this program does not read.
    #[error(
        "the layer index has version {0}, this program reads version {VERSION}: use a newer xebec, or index the image again"
    )]
    Version(u16),
    /// Feature flags this program does not know.
    #[error("the layer index needs features {0:#06x} that this program does not know: use a newer xebec")]
    Features(u16),
    /// A numbered choice has a number that means nothing.
    #[error("the layer index has {what} {value}, which is not known")]
    Unknown {
        /// Which choice.
        what: &'static str,
        /// The number found.
        value: u64,
    },
    /// The bytes end inside something.
    #[error("the layer index ends inside {0}")]
    Truncated(&'static str),
    /// Bytes are left over.
    #[error("the layer index has bytes left over after {0}")]
    Trailing(&'static str),
    /// A variable-length number is longer than 64 bits.
    #[error("the layer index has a number over 64 bits in {0}")]
    Number(&'static str),
    /// A count or length is over its limit (see [`crate::layer::limits`]).
    #[error("the layer index declares {value} for {what}, over the limit of {limit}")]
    Limit {
        /// The things that are counted, in words.
        what: &'static str,
        /// The value declared.
        value: u64,
        /// Its limit.
        limit: u64,
    },
    /// The decoded index is larger than the caller has room for.
    #[error("what the layer index decodes to is too large")]
    NoRoom,
    /// A section is not the zstd frame that it should be.
    #[error("cannot decompress the {section} section of a layer index: {reason}")]
    Decompress {
        /// Which section.
        section: &'static str,
        /// The error of zstd.
        reason: String,
    },
    /// A path is not valid.
    #[error("the layer index holds a bad path")]
    Path(#[from] PathError),
    /// The values contradict each other.
    #[error(transparent)]
    Invalid(#[from] InvalidIndex),
}

impl From<ColumnError> for DecodeError {
    fn from(error: ColumnError) -> Self {
        match error {
            ColumnError::Truncated(what) => Self::Truncated(what),
            ColumnError::Trailing(what) => Self::Trailing(what),
            ColumnError::Number(what) => Self::Number(what),
            ColumnError::Limit { what, value, limit } => Self::Limit { what, value, limit },
        }
    }
}

/// That so many bytes more may be held.
pub(super) fn hold(room: &mut Room<'_>, bytes: u64) -> Result<(), DecodeError> {
    match room(bytes) {
        true => Ok(()),
        false => Err(DecodeError::NoRoom),
    }
}

pub(super) fn limit(what: &'static str, value: u64, limit: u64) -> Result<(), DecodeError> {
    if value > limit {
        Err(DecodeError::Limit { what, value, limit })
    } else {
        Ok(())
    }
}
