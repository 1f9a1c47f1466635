//! The settings of indexing: `[indexing]` of the configuration.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use xebec_trust::{MAX_KEY_FILE, PrivateKey};

/// How layers are indexed.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IndexingSettings {
    /// Whether they are.
    pub enabled: bool,
    /// Layers that are read at the same time.
    pub jobs: usize,
    /// Whether a new version of an image that was recorded gets a predicted runtime image.
    pub predict: bool,
    /// The private key that signs index artifacts and predicted runtime images, as `xebec keys` and cosign write it; its password is in the environment.
    pub sign_key: Option<PathBuf>,
    /// `host[:port]` by which hosts call this registry. A signature says it.
    pub name: Option<String>,
}

impl Default for IndexingSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            jobs: 1,
            predict: true,
            sign_key: None,
            name: None,
        }
    }
}

/// The signer of index artifacts.
pub struct Signer {
    /// The key.
    pub key: PrivateKey,
    /// `host[:port]` by which hosts call this registry.
    pub name: String,
}

/// Why nothing can be signed.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// A key without the name.
    #[error(
        "indexing.sign_key needs indexing.name: the host and port by which clients call this registry, which each signature says"
    )]
    NoName,
    /// The file.
    #[error("the key {path}: {reason}", path = path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        reason: String,
    },
}

impl IndexingSettings {
    /// The signer, if there is one.
    ///
    /// # Errors
    /// If the key cannot be read, or the name is missing.
    pub fn signer(&self) -> Result<Option<Signer>, SignerError> {
        let Some(path) = &self.sign_key else {
            return Ok(None);
        };
        let name = self.name.clone().ok_or(SignerError::NoName)?;
        let key = read_key(path).map_err(|reason| SignerError::Key {
            path: path.clone(),
            reason,
        })?;
        Ok(Some(Signer { key, name }))
    }
}

fn read_key(path: &Path) -> Result<PrivateKey, String> {
    let size = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_KEY_FILE as u64 {
        return Err(format!("{size} bytes are too many for a key"));
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let password = xebec_trust::password_from_environment();
    PrivateKey::from_pem(&bytes, password.as_ref().map(|password| password.as_slice()))
        .map_err(|error| error.to_string())
}
