//! Patterns over the names of repositories and tags, as rights, immutable tags, retention and quotas use them.
//!
//! `*` stands for any characters within one component of a name, `**` as a whole component for any number of components.
//! A pattern is refused if no name fits it: a rule that protects nothing looks like one that protects. The grammar of the OCI
//! distribution specification decides which names there can be.

use std::fmt;

use serde::Deserialize;

/// The longest name of a repository, in bytes, that the distribution specification suggests.
pub const MAX_REPOSITORY: usize = 255;

/// The longest tag, in bytes (OCI distribution specification).
pub const MAX_TAG: usize = 128;

/// Why a pattern cannot be used. Each names the pattern, and the right form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Nothing, or nothing between two slashes.
    #[error("the pattern {0:?} is empty or has an empty component; write it like \"team/**\"")]
    Empty(String),
    /// `**` with something else in its component.
    #[error("in the pattern {0:?}, \"**\" must stand alone between slashes")]
    DoubleStar(String),
    /// The grammar admits no such name.
    #[error("the pattern {pattern:?} fits no name: {part:?} cannot be part of {what}; {allowed}")]
    Impossible {
        /// The whole pattern.
        pattern: String,
        /// The component that nothing fits.
        part: String,
        /// The kind of name, in words: "a tag".
        what: &'static str,
        /// The grammar in words.
        allowed: &'static str,
    },
    /// Longer than any name.
    #[error("the pattern {0:?} fits no name: names have at most {1} bytes")]
    TooLong(String, usize),
}

const REPOSITORY_GRAMMAR: &str =
    "components are a-z and 0-9, with single '.', '_', '__' or any '-' between them";
const TAG_GRAMMAR: &str = "tags are letters, digits, '.', '_' and '-', and do not begin with '.' or '-'";

/// A pattern over names of repositories: `team/*`, `team/**`, `**/cache`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct RepositoryPattern {
    text: String,
    components: Vec<String>,
}

/// How closely a pattern describes a name: the greater of two is the more specific one.
///
/// Component by component from the left, a whole name is more than one with a `*`, of these the one with more characters of
/// its own is more, and `**` is least. If all are alike, the pattern with more components is more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Specificity(Vec<(u8, usize)>);

impl RepositoryPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// See [`PatternError`]; a pattern that no name fits is one.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let literal = text.bytes().filter(|byte| *byte != b'*').count();
        if literal > MAX_REPOSITORY || text.len() > 2 * MAX_REPOSITORY {
            return Err(PatternError::TooLong(shortened(text), MAX_REPOSITORY));
        }
        let components: Vec<String> = text.split('/').map(str::to_owned).collect();
        for component in &components {
            if component.is_empty() {
                return Err(PatternError::Empty(text.to_owned()));
            }
            if component == "**" {
                continue;
            }
            if component.contains("**") {
                return Err(PatternError::DoubleStar(text.to_owned()));
            }
            if !component_is_possible(component) {
                return Err(PatternError::Impossible {
                    pattern: text.to_owned(),
                    part: component.clone(),
                    what: "a repository's name",
                    allowed: REPOSITORY_GRAMMAR,
                });
            }
        }
        Ok(Self {
            text: text.to_owned(),
            components,
        })
    }

    /// Whether the pattern covers the repository `name`. At most components times components of work, whatever the names.
    pub fn covers(&self, name: &str) -> bool {
        // Most names are ruled out by their first component: lists of repositories compare thousands of names with each rule.
        let first = self.components.first().filter(|first| !first.contains('*'));
        if first.is_some_and(|first| name.split('/').next() != Some(first.as_str())) {
            return false;
        }
        let parts: Vec<&str> = name.split('/').collect();
        // reached[i]: the pattern's components so far can stand for the first i parts.
        let mut reached = vec![false; parts.len() + 1];
        if let Some(first) = reached.first_mut() {
            *first = true;
        }
        for component in &self.components {
            let mut next = vec![false; reached.len()];
            if component == "**" {
                let mut any = false;
                for (now, before) in next.iter_mut().zip(&reached) {
                    any |= *before;
                    *now = any;
                }
            } else {
                for ((now, before), part) in next.iter_mut().skip(1).zip(&reached).zip(&parts) {
                    *now = *before && wildcard_fits(component.as_bytes(), part.as_bytes());
                }
            }
            reached = next;
        }
        reached.last().copied().unwrap_or(false)
    }

    /// How closely this pattern describes names.
    pub fn specificity(&self) -> Specificity {
        let rank = |component: &String| {
            let own = component.bytes().filter(|byte| *byte != b'*').count();
            match component.as_str() {
                "**" => (0, 0),
                _ if component.contains('*') => (1, own),
                _ => (2, own),
            }
        };
        Specificity(self.components.iter().map(rank).collect())
    }
}

impl fmt::Display for RepositoryPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A pattern over tags: `v*`, `release-*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct TagPattern(String);

impl TagPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// See [`PatternError`].
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let impossible = || PatternError::Impossible {
            pattern: text.to_owned(),
            part: text.to_owned(),
            what: "a tag",
            allowed: TAG_GRAMMAR,
        };
        if text.is_empty() {
            return Err(PatternError::Empty(text.to_owned()));
        }
        let literal = text.bytes().filter(|byte| *byte != b'*').count();
        if literal > MAX_TAG || text.len() > 2 * MAX_TAG {
            return Err(PatternError::TooLong(shortened(text), MAX_TAG));
        }
        let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'*');
        if !text.bytes().all(sound) || text.starts_with(['.', '-']) {
            return Err(impossible());
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether the pattern covers `tag`.
    pub fn covers(&self, tag: &str) -> bool {
        wildcard_fits(self.0.as_bytes(), tag.as_bytes())
    }
}

impl fmt::Display for TagPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RepositoryPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        Self::parse(&text)
    }
}

impl TryFrom<String> for TagPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        Self::parse(&text)
    }
}

/// A message holds no more of a pattern than a person reads.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Where in a component of a repository's name a reader of it stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Start,
    Word,
    Dot,
    Underscore,
    TwoUnderscores,
    Dashes,
}

const AFTER_START: [Place; 5] = [
    Place::Word,
    Place::Dot,
    Place::Underscore,
    Place::TwoUnderscores,
    Place::Dashes,
];

fn step(place: Place, byte: u8) -> Option<Place> {
    match (place, byte) {
        (_, b'a'..=b'z' | b'0'..=b'9') => Some(Place::Word),
        (Place::Word, b'.') => Some(Place::Dot),
        (Place::Word, b'_') => Some(Place::Underscore),
        (Place::Underscore, b'_') => Some(Place::TwoUnderscores),
        (Place::Word | Place::Dashes, b'-') => Some(Place::Dashes),
        _ => None,
    }
}

/// Whether some component of a repository's name fits: the grammar's automaton is run with every place that a `*` can lead to.
fn component_is_possible(component: &str) -> bool {
    let mut places = vec![Place::Start];
    for byte in component.bytes() {
        if byte == b'*' {
            // From anywhere, some text leads to each place but the start, and no text leaves it where it is.
            let at_start = places.contains(&Place::Start);
            if !places.is_empty() {
                places = AFTER_START.to_vec();
            }
            if at_start {
                places.push(Place::Start);
            }
        } else {
            let mut next: Vec<Place> = Vec::with_capacity(places.len());
            for place in places.iter().filter_map(|place| step(*place, byte)) {
                if !next.contains(&place) {
                    next.push(place);
                }
            }
            places = next;
        }
    }
    places.contains(&Place::Word)
}

/// Whether `name` fits `pattern`, in which `*` stands for any bytes. Greedy with one point to come back to, so that the time is
/// at most the product of the lengths.
fn wildcard_fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(byte) if name.get(n) == Some(byte) => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((after_star, taken)) => {
                    p = after_star;
                    n = taken + 1;
                    retry = Some((after_star, taken + 1));
                }
                None => return false,
            },
        }
    }
    pattern
        .get(p..)
        .unwrap_or_default()
        .iter()
        .all(|byte| *byte == b'*')
}

/// Whether `text` with its stars as wildcards covers `value`: for claims of tokens, which have no grammar.
pub fn text_fits(text: &str, value: &str) -> bool {
    wildcard_fits(text.as_bytes(), value.as_bytes())
}
