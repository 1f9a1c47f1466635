//! The key of a registry's own tokens: a file.
//!
//! It is made at the first start and kept in the root directory, readable by its owner only; several nodes of one registry share it. It
//! signs tokens ([`super::own_tokens`]), and places in lists are encrypted by a key that is derived from it ([`super::places`]).

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustix::process::geteuid;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use xebec_kernel::{file, lock};

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

/// The key.
#[derive(Debug)]
pub(super) struct TokenKey {
    pkcs8: PrivatePkcs8KeyDer<'static>,
    /// The same, ready to sign.
    pub(super) signing: Ed25519KeyPair,
}

impl TokenKey {
    /// The key at `path`, which is made if there is none.
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
        let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(&pem).map_err(|_| unsound())?;
        let signing = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8.secret_pkcs8_der());
        let signing = signing.map_err(|_| unsound())?;
        Ok(Self { pkcs8, signing })
    }

    /// The bytes of the key, to derive others from.
    pub(super) fn secret(&self) -> &[u8] {
        self.pkcs8.secret_pkcs8_der()
    }
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
        TokenKey::open(&path).unwrap();
        let entries = std::fs::read_dir(directory.path()).unwrap();
        assert_eq!(entries.count(), 1);
    }
}
