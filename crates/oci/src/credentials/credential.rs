//! Credentials: how Xebec tells a registry on whose behalf it asks.

use std::fmt;
use std::path::{Path, PathBuf};

use tokio::io::AsyncReadExt as _;

/// Largest `config.json` and largest answer of a helper; real ones have a few KiB.
pub(super) const MAX_CONFIG_JSON: u64 = 1 << 20;

/// The proof of a client's identity.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// A name and a password.
    Basic {
        /// The name.
        username: String,
        /// The password or access token.
        password: String,
    },
    /// An OAuth refresh token (`identitytoken`).
    IdentityToken(String),
    /// A bearer token that is sent as it is (`registrytoken`).
    RegistryToken(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Secrets must not reach logs by way of a Debug print.
        match self {
            Self::Basic { username, .. } => write!(f, "Basic({username:?}, …)"),
            Self::IdentityToken(_) => f.write_str("IdentityToken(…)"),
            Self::RegistryToken(_) => f.write_str("RegistryToken(…)"),
        }
    }
}

/// Why Xebec cannot get credentials although they are configured.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is not what docker and podman write.
    #[error("{path} is no file of logins, as docker and podman write them: {reason}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        reason: String,
    },
    /// A credential provider of the kubelet cannot be run, failed, or gave nonsense.
    #[error("credential provider {provider} for {image}: {reason}")]
    Provider {
        /// Its name.
        provider: String,
        /// The image, without tag and digest.
        image: String,
        /// The reason of the failure.
        reason: String,
    },
    /// The helper cannot be run, failed, or gave nonsense.
    #[error("credential helper docker-credential-{helper} for {registry}: {reason}")]
    Helper {
        /// The helper's name after `docker-credential-`.
        helper: String,
        /// The key it was asked for.
        registry: String,
        /// The reason of the failure.
        reason: String,
    },
}

impl CredentialError {
    /// Whether a file of logins is to blame, and not a program that was asked: it stays so until a person mends it.
    pub fn is_of_a_file(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Parse { .. })
    }
}

/// The bytes of a file; `None` if there is no file.
pub(super) async fn read_bytes(path: &Path) -> Result<Option<Vec<u8>>, CredentialError> {
    let failed = |source| CredentialError::Read {
        path: path.to_owned(),
        source,
    };
    let file = match tokio::fs::File::open(path).await {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_CONFIG_JSON + 1)
        .read_to_end(&mut bytes)
        .await
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_CONFIG_JSON {
        return Err(failed(std::io::Error::other("it has more than a mebibyte")));
    }
    Ok(Some(bytes))
}
