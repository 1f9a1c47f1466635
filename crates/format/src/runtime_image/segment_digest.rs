//! The digest that a segment's pages are compared with, of one of two kinds: `docs/decisions/0014-digests-of-segments.md`.

use std::fmt;

use crate::digest::Digest;

/// Digest of the plain bytes of a [`super::Segment`]: its pages one after the other.
///
/// Made by [`SegmentDigest::of`] it is BLAKE3, which takes about half as long as SHA-256 does on x86-64 processors with
/// instructions for that, or less, and a tenth on others. Recordings of before have SHA-256, and keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentDigest {
    /// SHA-256.
    Sha256(Digest),
    /// BLAKE3 (its specification, "hash" mode, 32 bytes).
    Blake3([u8; 32]),
}

impl SegmentDigest {
    /// The digest of the plain bytes of a segment.
    pub fn of(plain: &[u8]) -> Self {
        Self::Blake3(blake3::hash(plain).into())
    }

    /// The digest of other plain bytes, by the same function.
    #[must_use]
    pub fn like(&self, plain: &[u8]) -> Self {
        match self {
            Self::Sha256(_) => Self::Sha256(Digest::of(plain)),
            Self::Blake3(_) => Self::of(plain),
        }
    }

    /// Its 32 raw bytes.
    pub(super) const fn as_bytes(&self) -> &[u8; 32] {
        match self {
            Self::Sha256(digest) => digest.as_bytes(),
            Self::Blake3(bytes) => bytes,
        }
    }
}

impl fmt::Display for SegmentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256(digest) => digest.fmt(f),
            Self::Blake3(bytes) => write!(f, "blake3:{}", hex::encode(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_specifications_have_it() {
        // The test vector of one byte that is 0, and that of SHA-256 of the same.
        let blake3 = "blake3:2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213";
        assert_eq!(SegmentDigest::of(&[0]).to_string(), blake3);
        let sha256 = "sha256:6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d";
        let other = SegmentDigest::Sha256(Digest::of(b"something else"));
        assert_eq!(other.like(&[0]).to_string(), sha256);
        assert_eq!(
            SegmentDigest::of(b"something else").like(&[0]).to_string(),
            blake3
        );
    }
}
