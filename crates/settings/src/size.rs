//! Sizes as the configuration writes them: `64k`, `4m`, `50g`, `1t`.

use serde::{Deserialize, Deserializer};
use xebec_kernel::size::Bytes;

use crate::text::Text;

/// A number of bytes, more than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Text(Bytes(size)) = Text::deserialize(deserializer)?;
        Ok(Self(size))
    }
}

/// Reads a [`Size`], for a field that is a number.
///
/// # Errors
/// If it is none.
pub fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Size::deserialize(deserializer).map(|size| size.0)
}

/// The same for a field that may be absent.
///
/// # Errors
/// If it is none.
pub fn some_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    bytes(deserializer).map(Some)
}
