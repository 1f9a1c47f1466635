//! The names of places.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name of a place, in bytes: short enough to stand in a list of places, in a path and in a metric.
pub const MAX_NAME: usize = 32;

const MAIN: &str = "main";

/// The name of a place, which is an object store: letters `a-z`, digits and `-`, a letter first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaceName(Arc<str>);

/// A text that is no name of a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the name of a place; write 1 to {MAX_NAME} of a-z, 0-9 and '-', a letter first, as \"cold\""
)]
pub struct NameError(String);

impl PlaceName {
    /// The place that the registry has without any further configuration: `[storage]` itself.
    pub fn main() -> Self {
        Self(Arc::from(MAIN))
    }

    /// Whether it is [`PlaceName::main`].
    pub fn is_main(&self) -> bool {
        self.as_str() == MAIN
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PlaceName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let sound = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let begins_well = text.starts_with(|first: char| first.is_ascii_lowercase());
        if begins_well && text.len() <= MAX_NAME && text.bytes().all(sound) {
            Ok(Self(Arc::from(text)))
        } else {
            Err(NameError(crate::shortened(text)))
        }
    }
}

impl fmt::Display for PlaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
