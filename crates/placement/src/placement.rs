//! Where one copy is: `cold`, or `a,b,c(2+1)`.

use std::collections::BTreeSet;
use std::fmt;
use std::slice;
use std::str::FromStr;

use crate::name::{NameError, PlaceName};

/// The most shards of an object. More places than these would cost a request each for every read.
pub const MAX_SHARDS: u8 = 16;

/// How an object is cut: into `data` shards, with `parity` more. Any `data` of all give the object back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code {
    data: u8,
    parity: u8,
}

/// Numbers that are no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a code; write how many places suffice and how many may be lost, as \"2+1\": at least 1 of each, \
     {MAX_SHARDS} in all"
)]
pub struct CodeError(String);

impl Code {
    /// A code of so many shards.
    ///
    /// # Errors
    /// [`CodeError`], if one of them is zero, or both are more than [`MAX_SHARDS`].
    pub fn new(data: u8, parity: u8) -> Result<Self, CodeError> {
        let fits = u16::from(data) + u16::from(parity) <= u16::from(MAX_SHARDS);
        if data == 0 || parity == 0 || !fits {
            return Err(CodeError(format!("{data}+{parity}")));
        }
        Ok(Self { data, parity })
    }

    /// How many shards suffice.
    pub fn data(self) -> u8 {
        self.data
    }

    /// How many shards may be lost.
    pub fn parity(self) -> u8 {
        self.parity
    }

    /// How many shards there are.
    pub fn shards(self) -> u8 {
        self.data + self.parity
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let wrong = || CodeError(crate::shortened(text));
        let (data, parity) = text.split_once('+').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<u8>().map_err(|_| wrong());
        let code = Self::new(number(data)?, number(parity)?).map_err(|_| wrong())?;
        // A number has one text: "02" and "+2" are none.
        if code.to_string() == text {
            Ok(code)
        } else {
            Err(wrong())
        }
    }
}

/// Where one copy is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// All of it on one place.
    At(PlaceName),
    /// A shard on each of several places. [`Placement::spread`] makes it: the places are distinct, and as many as the code has shards.
    #[non_exhaustive]
    Spread {
        /// How the object is cut.
        code: Code,
        /// The place of each shard, the data shards first. The order counts.
        places: Vec<PlaceName>,
    },
}

/// A text that is no placement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// A place has another name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Several places without a code.
    #[error("{0:?} does not say how many of the places suffice; write it as \"a,b,c(2+1)\"")]
    WithoutCode(String),
    /// The code is none.
    #[error("in {text:?}: {error}")]
    Code {
        /// The placement.
        text: String,
        /// The fault.
        error: CodeError,
    },
    /// More or fewer places than shards.
    #[error("{text:?} names {places} places, and its code needs {shards}: a place for each shard")]
    Count {
        /// The placement.
        text: String,
        /// How many places it names.
        places: usize,
        /// How many the code needs.
        shards: u8,
    },
    /// Two shards on one place would be lost together.
    #[error(
        "{text:?} names the place {place} twice; name distinct places, since two shards on one place are lost together"
    )]
    Twice {
        /// The placement.
        text: String,
        /// The place.
        place: PlaceName,
    },
}

impl Placement {
    /// A shard on each of the places, in their order.
    ///
    /// # Errors
    /// [`PlacementError`], if the places are not distinct or not as many as the code has shards.
    pub fn spread(code: Code, places: Vec<PlaceName>) -> Result<Self, PlacementError> {
        let mut seen = BTreeSet::new();
        let twice = places.iter().find(|place| !seen.insert(*place)).cloned();
        let count = places.len();
        let spread = Self::Spread { code, places };
        if let Some(place) = twice {
            let text = crate::shortened(&spread.to_string());
            return Err(PlacementError::Twice { text, place });
        }
        if count != usize::from(code.shards()) {
            return Err(PlacementError::Count {
                text: crate::shortened(&spread.to_string()),
                places: count,
                shards: code.shards(),
            });
        }
        Ok(spread)
    }

    /// The places that have a part of it. Shard `i` is on place `i`.
    pub fn places(&self) -> &[PlaceName] {
        match self {
            Self::At(place) => slice::from_ref(place),
            Self::Spread { places, .. } => places,
        }
    }

    /// How many of its places suffice to read it.
    pub fn needs(&self) -> usize {
        match self {
            Self::At(_) => 1,
            Self::Spread { code, .. } => usize::from(code.data()),
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(place) => place.fmt(f),
            Self::Spread { code, places } => {
                for (index, place) in places.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{place}")?;
                }
                write!(f, "({code})")
            }
        }
    }
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let spread = text.strip_suffix(')').and_then(|text| text.split_once('('));
        let Some((places, code)) = spread else {
            return if text.contains(',') {
                Err(PlacementError::WithoutCode(crate::shortened(text)))
            } else {
                Ok(Self::At(text.parse()?))
            };
        };
        let code = code.parse().map_err(|error| PlacementError::Code {
            text: crate::shortened(text),
            error,
        })?;
        let places: Result<Vec<PlaceName>, NameError> = places.split(',').map(str::parse).collect();
        Self::spread(code, places?)
    }
}
