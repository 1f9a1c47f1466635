//! Says why a text names no image.

use crate::digest::DigestError;

/// Why a text names no image.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReferenceError {
    /// Nothing was given.
    #[error("an image reference cannot be empty")]
    Empty,
    /// The part before the first `/` looks like a registry, but is no host.
    #[error("{0:?} is not a registry host: expected a name or address with an optional \":port\"")]
    Registry(String),
    /// It begins as a URL, or as other programs say that an image is in a registry.
    #[error("{text:?} begins with {scheme}, which no image's name does: leave {scheme} out")]
    Scheme {
        /// The text.
        text: String,
        /// The part that is too much, such as `docker://`.
        scheme: String,
    },
    /// It names an image that is not in a registry, as other programs write it.
    #[error(
        "{text:?} is no image of a registry: {kind} images are not read; push the image to a registry, and name it there"
    )]
    Elsewhere {
        /// The text.
        text: String,
        /// Where the image is, as `oci:`.
        kind: String,
    },
    /// The path has upper-case letters.
    #[error("repository {0:?} must be in lower case")]
    UpperCase(String),
    /// The path has a component that the distribution specification does not allow.
    #[error(
        "{0:?} is not a repository name: components are lower-case letters and digits, separated by '.', \
         '_', '__' or dashes"
    )]
    Repository(String),
    /// The tag has characters or a length that are not allowed.
    #[error("{0:?} is not a tag: up to 128 letters, digits, '_', '.' and '-', not starting with '.' or '-'")]
    Tag(String),
    /// Host and path are longer than [`MAX_NAME_LENGTH`](super::MAX_NAME_LENGTH).
    #[error("a name of {0} bytes is longer than 255")]
    TooLong(usize),
    /// The text after `@` is no digest.
    #[error(transparent)]
    Digest(#[from] DigestError),
}
