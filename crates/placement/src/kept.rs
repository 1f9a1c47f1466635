//! One copy that an operator asks for: `files@cold`.

use std::fmt;
use std::str::FromStr;

use crate::placement::{Placement, PlacementError};

/// In which form a blob is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// The bytes as they were pushed.
    Intact,
    /// A recipe and packs, in which a chunk is a file.
    Files,
    /// A recipe and packs, in which large files are cut by their contents.
    Chunks,
}

impl Form {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intact => "intact",
            Self::Files => "files",
            Self::Chunks => "chunks",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A copy: a form on a placement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kept {
    /// In which form.
    pub form: Form,
    /// Where.
    pub on: Placement,
}

/// A text that is no copy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeptError {
    /// It names no form.
    #[error("{0:?} is not a copy; write intact, files or chunks, then '@' and a place, as \"files@cold\"")]
    Form(String),
    /// It names no placement.
    #[error("{text:?} is not a copy: {error}")]
    Placement {
        /// The text.
        text: String,
        /// The fault.
        error: PlacementError,
    },
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.form, self.on)
    }
}

impl FromStr for Kept {
    type Err = KeptError;

    fn from_str(text: &str) -> Result<Self, KeptError> {
        let wrong = || KeptError::Form(crate::shortened(text));
        let (form, on) = text.split_once('@').ok_or_else(wrong)?;
        let forms = [Form::Intact, Form::Files, Form::Chunks];
        let form = forms.into_iter().find(|known| known.as_str() == form);
        let form = form.ok_or_else(wrong)?;
        let on = on.parse().map_err(|error| KeptError::Placement {
            text: crate::shortened(text),
            error,
        })?;
        Ok(Self { form, on })
    }
}
