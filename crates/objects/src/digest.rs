//! Digests, and hashing: what a blob or a manifest is called.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use sha2_resumable::digest::common::hazmat::SerializableState;
use sha2_resumable::{Digest as _, Sha256, Sha512};

/// An algorithm that the distribution specification registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// `sha256`
    Sha256,
    /// `sha512`
    Sha512,
}

impl Algorithm {
    /// Its name before the colon.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn hex_digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl FromStr for Algorithm {
    type Err = InvalidDigest;

    fn from_str(name: &str) -> Result<Self, InvalidDigest> {
        match name {
            "sha256" => Ok(Self::Sha256),
            "sha512" => Ok(Self::Sha512),
            _ => Err(InvalidDigest::Algorithm(shown(name))),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A digest: an algorithm and lower-case hexadecimal digits, as many as the algorithm has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    algorithm: Algorithm,
    hex: Box<str>,
}

/// Why a text is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDigest {
    /// No colon.
    #[error("\"{0}\" is no digest: write ALGORITHM:HEX, as in sha256:2c26…")]
    Form(String),
    /// An algorithm that this registry does not compute.
    #[error("the digest algorithm \"{0}\" is not supported: use sha256 or sha512")]
    Algorithm(String),
    /// Too many or too few digits, or others than `0-9a-f`.
    #[error("a {algorithm} digest has {} lower-case hexadecimal digits, not \"{digits}\"", algorithm.hex_digits())]
    Digits {
        /// The algorithm that the text names.
        algorithm: Algorithm,
        /// The text after the colon.
        digits: String,
    },
}

/// As much of a client's text as an error repeats.
fn shown(text: &str) -> String {
    text.chars().take(160).flat_map(char::escape_debug).collect()
}

impl Digest {
    /// The digest of some bytes that are all here.
    pub fn of(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(bytes);
        hasher.finish()
    }

    /// Its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The digits after the colon.
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let form = || InvalidDigest::Form(shown(text));
        let (algorithm, digits) = text.split_once(':').ok_or_else(form)?;
        let algorithm: Algorithm = algorithm.parse()?;
        let are_hex = digits
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match are_hex && digits.len() == algorithm.hex_digits() {
            true => Ok(Self {
                algorithm,
                hex: digits.into(),
            }),
            false => Err(InvalidDigest::Digits {
                algorithm,
                digits: shown(digits),
            }),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.algorithm, self.hex)
    }
}

/// So many bytes of a file are read at once.
const PIECE: usize = 256 << 10;

/// Hashes bytes as they come in. Its state can be written down.
#[derive(Clone)]
pub struct Hasher(State);

#[derive(Clone)]
enum State {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    /// Has hashed nothing yet.
    pub fn new(algorithm: Algorithm) -> Self {
        Self(match algorithm {
            Algorithm::Sha256 => State::Sha256(Sha256::new()),
            Algorithm::Sha512 => State::Sha512(Sha512::new()),
        })
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha256(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
        }
    }

    /// Takes all that is left to read, and says how many bytes that were. Blocks.
    pub fn read(&mut self, mut from: impl Read) -> io::Result<u64> {
        let mut buffer = vec![0; PIECE];
        let mut size = 0;
        loop {
            let read = match from.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if read == 0 {
                return Ok(size);
            }
            self.update(buffer.get(..read).unwrap_or_default());
            size += read as u64;
        }
    }

    /// The digest of all bytes.
    pub fn finish(self) -> Digest {
        let (algorithm, hex) = match self.0 {
            State::Sha256(state) => (Algorithm::Sha256, hex::encode(state.finalize())),
            State::Sha512(state) => (Algorithm::Sha512, hex::encode(state.finalize())),
        };
        Digest {
            algorithm,
            hex: hex.into(),
        }
    }

    /// The state that another process needs to go on, if this hashes `sha256`: uploads are hashed so.
    pub fn save(&self) -> Option<Vec<u8>> {
        match &self.0 {
            State::Sha256(state) => Some(state.serialize().to_vec()),
            State::Sha512(_) => None,
        }
    }

    /// Goes on from what [`Hasher::save`] gave.
    pub fn resume(saved: &[u8]) -> Option<Self> {
        let saved = saved.try_into().ok()?;
        let state = Sha256::deserialize(&saved).ok()?;
        Some(Self(State::Sha256(state)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        let empty = Digest::of(Algorithm::Sha256, b"");
        let known = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(empty.to_string(), known);
        assert_eq!(known.parse(), Ok(empty));
        let abc = Digest::of(Algorithm::Sha512, b"abc");
        assert!(
            abc.to_string()
                .starts_with("sha512:ddaf35a193617abacc417349ae204131")
        );
        assert_eq!(abc.to_string().parse(), Ok(abc));
    }

    #[test]
    fn what_is_no_digest_is_refused() {
        for text in [
            "",
            "sha256",
            "sha256:",
            "md5:d41d8cd98f00b204e9800998ecf8427e",
            "sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85",
            "sha512:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha256:../../../../etc/passwd",
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_hash_goes_on_from_what_was_saved() {
        let mut whole = Hasher::new(Algorithm::Sha256);
        for length in [0_usize, 1, 63, 64, 65, 1000] {
            let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
            whole.update(&bytes);
            let resumed = Hasher::resume(&whole.save().unwrap()).unwrap();
            assert_eq!(resumed.finish(), whole.clone().finish());
        }
        assert!(Hasher::resume(b"short").is_none());
    }
}
