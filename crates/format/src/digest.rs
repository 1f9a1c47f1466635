//! SHA-256 digests, the only algorithm that images in the field use and that Xebec accepts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// A SHA-256 digest; written `sha256:<64 lower-case hexadecimal digits>` (OCI image spec, "Digests").
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

/// Why a text is not a digest.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DigestError {
    /// The algorithm is not `sha256`.
    #[error("digest {0:?} does not use sha256, the only algorithm supported")]
    Algorithm(String),
    /// The part after the colon is not 64 lower-case hexadecimal digits.
    #[error("digest {0:?} is not \"sha256:\" and 64 lower-case hexadecimal digits")]
    Hex(String),
}

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// A digest from its 32 raw bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 raw bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The 64 hexadecimal digits without the algorithm, for file names.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// The first twelve hexadecimal digits, for messages to people.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..6])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let Some(digits) = text.strip_prefix("sha256:") else {
            return Err(DigestError::Algorithm(text.to_owned()));
        };
        let lower = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let mut bytes = [0; 32];
        if !lower || hex::decode_to_slice(digits, &mut bytes).is_err() {
            return Err(DigestError::Hex(text.to_owned()));
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Computes a [`Digest`] of bytes that arrive in parts.
#[derive(Clone, Default)]
pub struct Digester(sha2::Sha256);

impl Digester {
    /// A digester that has seen no bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes taken in.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        let digest = Digest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse(), Ok(digest));
    }

    #[test]
    fn rejects_what_is_not_a_digest() {
        for text in ["", "sha256:", "sha256:AB", "sha512:00", "ba78"] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
        let upper = "sha256:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";
        assert!(upper.parse::<Digest>().is_err());
    }
}
