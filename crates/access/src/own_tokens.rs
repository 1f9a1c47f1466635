//! The tokens that the registry gives out itself, and the key that signs them.
//!
//! The key is made at the first start and kept in the root directory, readable by its owner only; several nodes of one registry
//! share it. An access token carries what was granted, for minutes. A refresh token carries who it is for, and a mark of the
//! password that was given for it: it counts no more once the password has changed or the user has gone.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustix::process::geteuid;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;
use xebec_kernel::{clock, file, lock};

use crate::identity::{Identity, Recognized};
use crate::jwk::{Key, KeySet};
use crate::public_key::PublicKey;
use crate::scope::{AccessEntry, Scope};
use crate::token::{self, Claims, Expected, TokenError};

/// The issuer in own tokens. No other token is taken for one: the key decides.
pub(super) const ISSUER: &str = "xebec-registry";

/// The audience of access tokens.
const FOR_ACCESS: &str = "xebec-registry";

/// The audience of refresh tokens, so that neither kind is taken for the other.
const FOR_REFRESH: &str = "xebec-registry/token";

/// How much the clocks of nodes that share a key may differ, in seconds.
const LEEWAY: u64 = 30;

/// The largest file that is read as a key, in bytes.
const MAX_KEY: u64 = 16 * 1024;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read or written.
    #[error("the key of this registry's tokens, {path}: {cause}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// Others may read it.
    #[error(
        "the key of this registry's tokens, {0}, may be read by others; run `chmod 600` on it, or have it be root's and its group's (0640)"
    )]
    Open(PathBuf),
    /// It is none.
    #[error("{0} holds no Ed25519 key in PKCS #8 PEM; remove the file, and the next start makes a new key")]
    Unsound(PathBuf),
    /// The system has no randomness.
    #[error("the kernel gives no random bytes to make a key of")]
    NoRandomness,
}

/// Gives out and recognizes own tokens.
#[derive(Debug)]
pub(super) struct OwnTokens {
    signing: Ed25519KeyPair,
    name: String,
    keys: KeySet,
}

#[derive(Serialize)]
struct Written<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    iat: u64,
    nbf: u64,
    exp: u64,
    jti: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Vec<AccessEntry>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<&'a str>,
}

impl OwnTokens {
    /// With the key at `path`, which is made if there is none.
    pub(super) fn open(path: &Path) -> Result<Self, KeyError> {
        let failed = |cause| KeyError::File {
            path: path.to_owned(),
            cause,
        };
        // A key that somebody else has put there, such as Kubernetes, may be in a directory where nothing can be written.
        let pem = match read(path).map_err(failed)? {
            Some(pem) => pem,
            None => {
                // Of two nodes that start at once, one makes the key.
                let _lock = lock::lock_file(&path.with_extension("lock"), 0o600).map_err(failed)?;
                match read(path).map_err(failed)? {
                    Some(pem) => pem,
                    None => {
                        let pem = new_key()?;
                        file::write_privately(path, &pem).map_err(failed)?;
                        pem
                    }
                }
            }
        };
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if may_be_read_by_others(metadata.mode(), metadata.uid(), geteuid().as_raw()) {
            return Err(KeyError::Open(path.to_owned()));
        }
        let unsound = || KeyError::Unsound(path.to_owned());
        let der = PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(|_| unsound())?;
        Self::of(der.secret_pkcs8_der()).ok_or_else(unsound)
    }

    fn of(pkcs8: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).ok()?;
        let public = PublicKey::Ed25519(pair.public_key().as_ref().to_vec());
        let name = public.thumbprint();
        Some(Self {
            signing: pair,
            keys: KeySet::of(vec![Key::new(public, None)]),
            name,
        })
    }

    /// A token for what was granted.
    pub(super) fn access(&self, identity: &Identity, granted: &[Scope], seconds: u64) -> Option<String> {
        let access = granted.iter().filter_map(AccessEntry::of).collect();
        // What the htpasswd file's users belong to may change; what an issuer's token said does not.
        let groups: &[String] = if identity.recognized == Recognized::Oidc {
            &identity.groups
        } else {
            &[]
        };
        self.sign(FOR_ACCESS, &identity.name, seconds, |written| {
            written.access = Some(access);
            written.groups = groups;
        })
    }

    /// A token to get others by, without the password.
    pub(super) fn refresh(&self, user: &str, password_mark: &str, seconds: u64) -> Option<String> {
        self.sign(FOR_REFRESH, user, seconds, |written| {
            written.password = Some(password_mark)
        })
    }

    fn sign<'a>(
        &self,
        audience: &'a str,
        subject: &'a str,
        seconds: u64,
        add: impl FnOnce(&mut Written<'a>),
    ) -> Option<String> {
        let now = clock::seconds_since_1970();
        let mut written = Written {
            iss: ISSUER,
            aud: audience,
            sub: subject,
            iat: now,
            nbf: now,
            exp: now + seconds,
            jti: xebec_kernel::random::random_name(12).ok()?,
            access: None,
            groups: &[],
            password: None,
        };
        add(&mut written);
        let header = serde_json::json!({"alg": "EdDSA", "typ": "JWT", "kid": self.name});
        let claims = serde_json::to_vec(&written).ok()?;
        let message = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let signature = self.signing.sign(message.as_bytes());
        Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Who an access token is for, and what it grants.
    pub(super) fn read_access(&self, token: &str) -> Result<(Identity, Vec<Scope>), TokenError> {
        let claims = self.read(token, FOR_ACCESS)?;
        let name = text(&claims, "sub")?;
        let granted = super::scope::granted(&claims).unwrap_or_default();
        if name.is_empty() {
            return Ok((Identity::anonymous(), granted));
        }
        let groups = claims
            .get("groups")
            .and_then(|groups| serde_json::from_value(groups.clone()).ok());
        let identity = Identity {
            name,
            recognized: Recognized::OwnToken,
            groups: groups.unwrap_or_default(),
        };
        Ok((identity, granted))
    }

    /// Whose a refresh token is, and the mark of the password.
    pub(super) fn read_refresh(&self, token: &str) -> Result<(String, String), TokenError> {
        let claims = self.read(token, FOR_REFRESH)?;
        Ok((text(&claims, "sub")?, text(&claims, "password")?))
    }

    fn read(&self, token: &str, audience: &str) -> Result<Claims, TokenError> {
        let expected = Expected {
            issuer: ISSUER.to_owned(),
            audiences: vec![audience.to_owned()],
            leeway: LEEWAY,
        };
        token::verify(token, &self.keys, &expected)
    }
}

fn text(claims: &Claims, name: &str) -> Result<String, TokenError> {
    let text = claims.get(name).and_then(serde_json::Value::as_str);
    text.map(str::to_owned)
        .ok_or_else(|| TokenError::Claim(name.to_owned()))
}

/// A new key as PEM.
fn new_key() -> Result<Vec<u8>, KeyError> {
    let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| KeyError::NoRandomness)?;
    let text = STANDARD.encode(key.as_ref());
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .filter_map(|line| str::from_utf8(line).ok())
        .collect();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        lines.join("\n")
    );
    Ok(pem.into_bytes())
}

/// The file at `path`; `None` if there is none.
fn read(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    match file::read_limited(path, MAX_KEY) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether users besides `reader` may read a file of `owner`. Root's file is for the group to read that the reader is in: Kubernetes and
/// service managers hand over secrets in that way.
fn may_be_read_by_others(mode: u32, owner: u32, reader: u32) -> bool {
    let is_handed_over = owner == 0 && reader != 0;
    let forbidden = if is_handed_over { 0o037 } else { 0o077 };
    mode & forbidden != 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_for_one_user_or_handed_over_by_root() {
        for (mode, owner, reader, is_open) in [
            (0o600, 7, 7, false),
            (0o640, 7, 7, true),
            (0o604, 7, 7, true),
            (0o440, 0, 7, false),
            (0o640, 0, 7, false),
            (0o660, 0, 7, true),
            (0o444, 0, 7, true),
            (0o600, 0, 0, false),
            (0o640, 0, 0, true),
        ] {
            assert_eq!(
                may_be_read_by_others(mode, owner, reader),
                is_open,
                "{mode:o} of {owner} for {reader}"
            );
        }
    }

    #[test]
    fn nothing_is_written_beside_a_key_that_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token-key.pem");
        file::write_privately(&path, &new_key().unwrap()).unwrap();
        OwnTokens::open(&path).unwrap();
        let entries = std::fs::read_dir(directory.path()).unwrap();
        assert_eq!(entries.count(), 1);
    }
}
