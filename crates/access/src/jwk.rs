//! Public keys of tokens: JSON Web Keys (RFC 7517) and PEM, and by which names tokens call them.
//!
//! A key is for one algorithm, which its kind decides: RSA for RS256, P-256 for ES256, Ed25519 for EdDSA. The header of a token never
//! chooses the algorithm, so that a public key cannot be used as the secret of an HMAC, and `none` is nothing that could be asked for.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use serde::Deserialize;

use crate::public_key::{Algorithm, PublicKey};
use crate::spki;

/// The largest set of keys that is read, in bytes.
pub const MAX_SET: usize = 256 * 1024;

/// The most keys of a set that are used. Issuers have two to ten.
pub const MAX_KEYS: usize = 100;

/// Why a set of keys cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// Not JSON as RFC 7517 has it, nor PEM.
    #[error("it is neither a JSON Web Key Set nor PEM: {0}")]
    Malformed(String),
    /// Larger than the limit.
    #[error("it has more than {MAX_SET} bytes")]
    TooLarge,
    /// Nothing in it that is of use.
    #[error("it has no key for RS256 (RSA of 2048 bits or more), ES256 (P-256) or EdDSA (Ed25519); {0}")]
    NoKey(String),
}

/// The name that Docker's libtrust gives a key, which token services written for the CNCF registry use: the first 240 bits of
/// the SHA-256 of its DER form, in base 32, a colon after each four letters.
fn libtrust_name(key: &PublicKey) -> String {
    let hash = digest(&SHA256, &spki::encode(key));
    let letters = base32(hash.as_ref().get(..30).unwrap_or_default());
    let groups: Vec<&str> = letters
        .as_bytes()
        .chunks(4)
        .filter_map(|group| str::from_utf8(group).ok())
        .collect();
    groups.join(":")
}

/// RFC 4648's base 32 of a length that needs no padding.
fn base32(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut text = String::new();
    for five in bytes.chunks(5) {
        let number = five
            .iter()
            .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        for place in (0..8).rev() {
            let letter = usize::try_from(number >> (5 * place) & 31).unwrap_or(0);
            text.push(char::from(LETTERS.get(letter).copied().unwrap_or(b'A')));
        }
    }
    text
}

/// A key of a set, and what tokens call it.
#[derive(Debug, Clone)]
pub struct Key {
    names: Vec<String>,
    key: PublicKey,
}

impl Key {
    pub(super) fn new(key: PublicKey, name: Option<String>) -> Self {
        let mut names = vec![key.thumbprint(), libtrust_name(&key)];
        names.extend(name);
        Self { names, key }
    }

    /// Whether a token means this key by `kid`: the name in the set, its RFC 7638 thumbprint, or libtrust's name.
    pub fn is_called(&self, kid: &str) -> bool {
        self.names.iter().any(|name| name == kid)
    }

    /// The algorithm of its signatures.
    pub fn algorithm(&self) -> Algorithm {
        self.key.algorithm()
    }

    /// Whether the signature of `message` is this key's.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.key.verifies(message, signature)
    }
}

/// The keys of one issuer.
#[derive(Debug, Clone, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

/// A key of a set as it is written. Unknown members are passed over.
#[derive(Deserialize)]
struct WrittenKey {
    kty: Option<String>,
    crv: Option<String>,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct WrittenSet {
    keys: Vec<serde_json::Value>,
}

impl KeySet {
    /// A set of these.
    pub(super) fn of(keys: Vec<Key>) -> Self {
        Self { keys }
    }

    /// Reads a JSON Web Key Set, or PEM with public keys or certificates. A key that is of no use here is passed over: issuers
    /// have keys for other purposes too.
    ///
    /// # Errors
    /// See [`KeySetError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, KeySetError> {
        if bytes.len() > MAX_SET {
            return Err(KeySetError::TooLarge);
        }
        let mut passed_over = Vec::new();
        let keys = if bytes.trim_ascii_start().starts_with(b"{") {
            keys_of_json(bytes, &mut passed_over)?
        } else {
            keys_of_pem(bytes, &mut passed_over)?
        };
        if keys.is_empty() {
            return Err(KeySetError::NoKey(match passed_over.as_slice() {
                [] => "it is empty".to_owned(),
                reasons => reasons.join("; "),
            }));
        }
        Ok(Self { keys })
    }

    /// Its keys.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// Whether a token means one of these by `kid`.
    pub fn knows(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key.is_called(kid))
    }
}

fn keys_of_json(bytes: &[u8], passed_over: &mut Vec<String>) -> Result<Vec<Key>, KeySetError> {
    let malformed = |error: serde_json::Error| KeySetError::Malformed(error.to_string());
    let set: WrittenSet = serde_json::from_slice(bytes).map_err(malformed)?;
    let mut keys = Vec::new();
    for value in set.keys.into_iter().take(MAX_KEYS) {
        let written: Result<WrittenKey, _> = serde_json::from_value(value);
        let read = written.map_err(|error| error.to_string()).and_then(|written| {
            let key = public_key(&written)?;
            Ok(Key::new(key, written.kid))
        });
        match read {
            Ok(key) => keys.push(key),
            Err(reason) => passed_over.push(reason),
        }
    }
    passed_over.truncate(5);
    Ok(keys)
}

fn public_key(written: &WrittenKey) -> Result<PublicKey, String> {
    if written.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
        return Err("a key is not for signatures".to_owned());
    }
    let number = |field: &Option<String>, name: &str| {
        let text = field.as_deref().ok_or_else(|| format!("a key has no {name:?}"))?;
        URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|_| format!("{name:?} of a key is not base64url"))
    };
    let key = match (written.kty.as_deref(), written.crv.as_deref()) {
        (Some("RSA"), _) => spki::rsa(&number(&written.n, "n")?, &number(&written.e, "e")?)?,
        (Some("EC"), Some("P-256")) => {
            let (x, y) = (number(&written.x, "x")?, number(&written.y, "y")?);
            if x.len() != 32 || y.len() != 32 {
                return Err("a P-256 key's coordinates do not have 32 bytes".to_owned());
            }
            PublicKey::P256([&[4][..], &x, &y].concat())
        }
        (Some("OKP"), Some("Ed25519")) => {
            let key = number(&written.x, "x")?;
            if key.len() != 32 {
                return Err("an Ed25519 key does not have 32 bytes".to_owned());
            }
            PublicKey::Ed25519(key)
        }
        (kind, curve) => return Err(format!("a key is of kind {kind:?}, curve {curve:?}")),
    };
    let expected = key.algorithm().name();
    match written.alg.as_deref() {
        Some(named) if named != expected && named != "Ed25519" => Err(format!("a key is for {named:?}")),
        _ => Ok(key),
    }
}

fn keys_of_pem(bytes: &[u8], passed_over: &mut Vec<String>) -> Result<Vec<Key>, KeySetError> {
    let mut keys = Vec::new();
    let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes);
    for section in sections.take(MAX_KEYS) {
        let (kind, der) = section.map_err(|error| KeySetError::Malformed(error.to_string()))?;
        let key = match kind {
            SectionKind::PublicKey => spki::decode(SubjectPublicKeyInfoDer::from(der).as_ref()),
            SectionKind::Certificate => spki::of_certificate(&CertificateDer::from(der)),
            _ => Err("a section is neither a public key nor a certificate".to_owned()),
        };
        match key {
            Ok(key) => keys.push(Key::new(key, None)),
            Err(reason) => passed_over.push(reason),
        }
    }
    passed_over.truncate(5);
    Ok(keys)
}
