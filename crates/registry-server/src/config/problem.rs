//! A problem of a configuration, and its place.

use std::ops::Range;

/// Something that is wrong at a place of the file.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) at: Option<Range<usize>>,
    pub(super) text: String,
}

/// Where values of the environment come from.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;
