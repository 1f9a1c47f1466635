//! Keys: ECDSA on the curve P-256 with SHA-256, which `cosign generate-key-pair` makes and every cosign
//! verifies.
//!
//! One algorithm on purpose: a second one would double the ways to go wrong, and help no user: a key for
//! this is made in one command.

use std::fmt;

use p256::ecdsa::signature::{Signer, Verifier};
use p256::ecdsa::{Signature, SigningKey, VerifyingKey};
use p256::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePublicKey};
use serde::{Deserialize, Serialize};
use xebec_format::digest::Digest;
use zeroize::Zeroizing;

use super::key_error::KeyError;
use super::sealed;

/// Largest key file that is read, in bytes. A P-256 key takes less than 400, sealed less than 1,000.
pub const MAX_KEY_FILE: usize = 64 * 1024;

/// Variables that hold the password of a private key, in the order in which they are asked.
const PASSWORD_VARIABLES: [&str; 2] = ["XEBEC_KEY_PASSWORD", "COSIGN_PASSWORD"];

/// Identity of a public key: the SHA-256 of its `SubjectPublicKeyInfo` in DER. Compare with
/// `openssl pkey -pubin -in KEY.pub -outform DER | sha256sum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyId(Digest);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A public key in `trust.toml`.
#[derive(Clone, Debug)]
pub struct PublicKey {
    key: VerifyingKey,
    id: KeyId,
}

impl PublicKey {
    /// Reads a PEM file with a `PUBLIC KEY` (`cosign.pub`, or the output of `openssl ec -pubout`).
    ///
    /// # Errors
    /// Everything that is not a P-256 public key.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        let (label, der) = decode_pem(pem)?;
        if label != "PUBLIC KEY" {
            return Err(KeyError::Label {
                found: label,
                wanted: "PUBLIC KEY",
            });
        }
        let key = VerifyingKey::from_public_key_der(&der).map_err(|_| KeyError::Algorithm)?;
        Self::new(key)
    }

    fn new(key: VerifyingKey) -> Result<Self, KeyError> {
        // The identity is that of the canonical encoding, so a compressed point has no second one.
        let der = key.to_public_key_der().map_err(|_| KeyError::Algorithm)?;
        Ok(Self {
            key,
            id: KeyId(Digest::of(der.as_bytes())),
        })
    }

    /// The key's identity.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Whether `signature` (ASN.1 DER) is this key's over the SHA-256 of `message`.
    pub fn accepts(&self, message: &[u8], signature: &[u8]) -> bool {
        match Signature::from_der(signature) {
            Ok(signature) => self.key.verify(message, &signature).is_ok(),
            Err(_) => false,
        }
    }

    /// The key as a PEM file.
    ///
    /// # Errors
    /// Never for a key that was read; the encoder's signature has an error.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        self.key
            .to_public_key_pem(p256::pkcs8::LineEnding::LF)
            .map_err(|_| KeyError::Algorithm)
    }
}

/// A private key; wiped from memory when dropped.
pub struct PrivateKey(SigningKey);

impl PrivateKey {
    /// Reads a PEM file: PKCS#8 (`PRIVATE KEY`), SEC1 (`EC PRIVATE KEY`), or cosign's encrypted form.
    ///
    /// # Errors
    /// Other kinds of keys, a missing or wrong password.
    pub fn from_pem(pem: &[u8], password: Option<&[u8]>) -> Result<Self, KeyError> {
        let (label, body) = decode_pem(pem)?;
        let body = Zeroizing::new(body);
        match label.as_str() {
            "PRIVATE KEY" => Self::from_pkcs8(&body),
            "EC PRIVATE KEY" => {
                let secret = p256::SecretKey::from_sec1_der(&body).map_err(|_| KeyError::Algorithm)?;
                Ok(Self(SigningKey::from(secret)))
            }
            "ENCRYPTED SIGSTORE PRIVATE KEY" | "ENCRYPTED COSIGN PRIVATE KEY" => {
                let password = password.ok_or(KeyError::NoPassword)?;
                Self::from_pkcs8(&sealed::open(&body, password)?)
            }
            "ENCRYPTED PRIVATE KEY" => Err(KeyError::Encrypted),
            _ => Err(KeyError::Label {
                found: label,
                wanted: "private key",
            }),
        }
    }

    fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        Ok(Self(
            SigningKey::from_pkcs8_der(der).map_err(|_| KeyError::Algorithm)?,
        ))
    }

    /// The key with this secret number (32 bytes, big-endian), for tests that need many keys.
    ///
    /// # Errors
    /// Zero, or not below the order of the curve.
    pub fn from_secret(secret: &[u8; 32]) -> Result<Self, KeyError> {
        Ok(Self(
            SigningKey::from_slice(secret).map_err(|_| KeyError::Algorithm)?,
        ))
    }

    /// The public half.
    ///
    /// # Errors
    /// Never for a key that was read; the encoder's signature has an error.
    pub fn public(&self) -> Result<PublicKey, KeyError> {
        PublicKey::new(*self.0.verifying_key())
    }

    /// Signs the SHA-256 of `message`; ASN.1 DER. Deterministic (RFC 6979).
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        let signature: Signature = self.0.sign(message);
        signature.to_der().as_bytes().to_vec()
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

/// The password for a private key from `XEBEC_KEY_PASSWORD` or, as cosign has it, `COSIGN_PASSWORD`. An empty
/// one is a password, too: cosign makes such keys.
pub fn password_from_environment() -> Option<Zeroizing<Vec<u8>>> {
    use std::os::unix::ffi::OsStringExt;
    let set = PASSWORD_VARIABLES.iter().find_map(std::env::var_os);
    set.map(|password| Zeroizing::new(password.into_vec()))
}

/// The label and contents of the first PEM block that is a key; curve parameters, which `openssl ecparam`
/// writes in front, are passed over.
fn decode_pem(pem: &[u8]) -> Result<(String, Vec<u8>), KeyError> {
    const BEGIN: &str = "-----BEGIN ";
    const END: &str = "-----END ";
    if pem.len() > MAX_KEY_FILE {
        return Err(KeyError::Pem);
    }
    let mut text = std::str::from_utf8(pem).map_err(|_| KeyError::Pem)?;
    loop {
        let block = &text[text.find(BEGIN).ok_or(KeyError::Pem)?..];
        let end = block.find(END).ok_or(KeyError::Pem)?;
        let end_line = block[end..]
            .find('\n')
            .map_or(block.len(), |newline| end + newline + 1);
        let (label, body) =
            pem_rfc7468::decode_vec(&block.as_bytes()[..end_line]).map_err(|_| KeyError::Pem)?;
        if label != "EC PARAMETERS" {
            return Ok((label.to_owned(), body));
        }
        text = &block[end_line..];
    }
}
