//! Public keys of tokens, of the three kinds that are accepted, and their signatures by ring, which the program has for TLS.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

/// An algorithm of signatures. There are no others: what asks for `none` or an HMAC asks for nothing that exists here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA (PKCS #1 1.5) with SHA-256.
    Rs256,
    /// ECDSA by P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl Algorithm {
    const ALL: [Self; 3] = [Self::Rs256, Self::Es256, Self::EdDsa];

    /// The name in headers of tokens (RFC 7518, 3.1; RFC 8037, 3.1).
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// The algorithm of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

/// A public key, and with it the algorithm of its signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PublicKey {
    /// RS256. Both numbers are big-endian, without leading zeros.
    Rsa {
        /// The modulus.
        modulus: Vec<u8>,
        /// The exponent.
        exponent: Vec<u8>,
    },
    /// ES256: the uncompressed point, 65 bytes.
    P256(Vec<u8>),
    /// EdDSA: 32 bytes.
    Ed25519(Vec<u8>),
}

impl PublicKey {
    pub(super) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa { .. } => Algorithm::Rs256,
            Self::P256(_) => Algorithm::Es256,
            Self::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// Whether the signature of `message` is this key's, by the key's own algorithm.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Self::Rsa { modulus, exponent } => {
                let key = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
        };
        verified.is_ok()
    }

    /// The thumbprint of RFC 7638.
    pub(super) fn thumbprint(&self) -> String {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let canonical = match self {
            Self::Rsa { modulus, exponent } => {
                format!(
                    r#"{{"e":"{}","kty":"RSA","n":"{}"}}"#,
                    encode(exponent),
                    encode(modulus)
                )
            }
            Self::P256(point) => {
                let numbers = point.get(1..).unwrap_or_default();
                let (x, y) = numbers.split_at(numbers.len() / 2);
                format!(
                    r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#,
                    encode(x),
                    encode(y)
                )
            }
            Self::Ed25519(key) => format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, encode(key)),
        };
        encode(digest(&SHA256, canonical.as_bytes()).as_ref())
    }
}
