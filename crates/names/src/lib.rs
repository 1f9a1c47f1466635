//! Names of repositories and tags, as the distribution specification has them, and ids of uploads and packs.
//!
//! Promise: a value of one of these types is a name that any registry takes, and no path that leads elsewhere. An error says what is wrong with a text.
//!
//! May use: `kernel`, for random ids, and no other crate of Xebec.

use std::fmt;
use std::str::FromStr;

/// Names of repositories are that long at most: with a tag and the host they stay below the 255 that clients accept.
pub const LONGEST_NAME: usize = 255;
/// Tags are that long at most, by the specification.
pub const LONGEST_TAG: usize = 128;
const UPLOAD_DIGITS: usize = 32;

/// Why a text names nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// No name of a repository.
    #[error(
        "\"{0}\" is no name of a repository: write parts of a-z and 0-9, joined by single '.', '_', '__' or any number of '-', \
         separated by '/', 255 characters at most"
    )]
    Repository(String),
    /// No tag.
    #[error(
        "\"{0}\" is no tag: write letters, digits, '_', '.' and '-', beginning with none of the last two, 128 at most"
    )]
    Tag(String),
    /// No id of an upload.
    #[error("\"{0}\" is no id of an upload: take the Location that the registry answered")]
    Upload(String),
}

fn shown(text: &str) -> String {
    text.chars().take(160).flat_map(char::escape_debug).collect()
}

/// A repository's name: `library/nginx`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RepositoryName(Box<str>);

impl RepositoryName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RepositoryName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_name = text.len() <= LONGEST_NAME && text.split('/').all(is_component);
        match is_name {
            true => Ok(Self(text.into())),
            false => Err(InvalidName::Repository(shown(text))),
        }
    }
}

/// `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
fn is_component(part: &str) -> bool {
    let is_word = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9');
    let bytes = part.as_bytes();
    let ends_in_words = bytes.first().is_some_and(is_word) && bytes.last().is_some_and(is_word);
    let are_separators = bytes.split(is_word).all(|between| {
        matches!(between, b"" | b"." | b"_" | b"__") || between.iter().all(|byte| *byte == b'-')
    });
    ends_in_words && are_separators
}

/// A tag: `1.27-alpine`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(Box<str>);

impl Tag {
    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tag {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_tag = text.len() <= LONGEST_TAG
            && text.bytes().next().is_some_and(is_word)
            && text
                .bytes()
                .all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'));
        match is_tag {
            true => Ok(Self(text.into())),
            false => Err(InvalidName::Tag(shown(text))),
        }
    }
}

/// A pack that a registry has or had. No other pack of it ever gets the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PackKey(pub i64);

impl fmt::Display for PackKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// An upload's id, which nobody can guess.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UploadId(Box<str>);

impl UploadId {
    ///
    /// # Errors
    /// If the kernel gives no random bytes.
    pub fn random() -> std::io::Result<Self> {
        let name = xebec_kernel::random::random_name(UPLOAD_DIGITS / 2)?;
        Ok(Self(name.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UploadId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let are_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match are_hex && text.len() == UPLOAD_DIGITS {
            true => Ok(Self(text.into())),
            false => Err(InvalidName::Upload(shown(text))),
        }
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_grammar() {
        for name in ["a", "library/nginx", "a.b/c_d/e__f/g---h", "0", "a/b/c/d/e"] {
            assert!(name.parse::<RepositoryName>().is_ok(), "{name}");
        }
        for name in [
            "", "/", "a/", "/a", "a//b", "A", "a..b", "a.-b", "a___b", "-a", "a-", ".", "..", "a/../b",
            "a b", "a\0", "ä", "_a", "a_",
        ] {
            assert!(name.parse::<RepositoryName>().is_err(), "{name}");
        }
        assert!("a".repeat(255).parse::<RepositoryName>().is_ok());
        assert!("a".repeat(256).parse::<RepositoryName>().is_err());
    }

    #[test]
    fn tags_follow_the_grammar() {
        for tag in ["latest", "_1", "1.27-alpine", "V_.-", "sha256-abc"] {
            assert!(tag.parse::<Tag>().is_ok(), "{tag}");
        }
        for tag in ["", ".a", "-a", "a/b", "a:b", "ä", "a b"] {
            assert!(tag.parse::<Tag>().is_err(), "{tag}");
        }
        assert!("a".repeat(128).parse::<Tag>().is_ok());
        assert!("a".repeat(129).parse::<Tag>().is_err());
    }

    #[test]
    fn ids_of_uploads_are_not_paths() {
        let id = UploadId::random().unwrap();
        assert_eq!(id.as_str().parse(), Ok(id.clone()));
        assert!("../../../../../../../etc/passwd0".parse::<UploadId>().is_err());
    }
}
