//! Logins are stored and removed as docker does it: in a file, or by the helper that the file names.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use xebec_kernel::file::write_privately;

use super::credential::{CredentialError, read_bytes};
use super::entries::{bare, helper_for, keys_of};
use super::helper::{Order, order_helper, program};

/// A file of logins that are stored and removed.
#[derive(Debug, Clone)]
pub struct LoginFile {
    path: PathBuf,
    helper_directory: Option<PathBuf>,
    helper_timeout: Duration,
}

impl LoginFile {
    /// The file at `path`, which need not exist. Helpers that it names are looked for in `helper_directory`, then in `PATH`.
    pub fn new(path: &Path, helper_directory: Option<&Path>, helper_timeout: Duration) -> Self {
        Self {
            // A file that is a link stays one.
            path: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
            helper_directory: helper_directory.map(Path::to_owned),
            helper_timeout,
        }
    }

    /// Stores a login for `registry` (`host[:port]`), and says where, for people.
    ///
    /// # Errors
    /// When the file cannot be read or written, or its helper fails.
    pub async fn store(
        &self,
        registry: &str,
        username: &str,
        password: &str,
    ) -> Result<String, CredentialError> {
        let mut config = self.read().await?;
        let keys = keys_of(registry);
        let key = keys.first().map_or(registry, String::as_str);
        let path = self.path.display();
        let (entry, place) = match helper_of(&config, &keys).map(|(helper, _)| helper) {
            None => {
                let auth = STANDARD.encode(format!("{username}:{password}"));
                (json!({ "auth": auth }), path.to_string())
            }
            Some(helper) => {
                let question = json!({ "ServerURL": key, "Username": username, "Secret": password });
                self.order(&helper, key, Order::Store, &question.to_string())
                    .await?;
                (
                    json!({}),
                    format!("docker-credential-{helper}, which {path} names"),
                )
            }
        };
        let auths = config.entry("auths").or_insert_with(|| json!({}));
        match auths.as_object_mut() {
            Some(auths) => auths.insert(key.to_owned(), entry),
            None => return Err(self.no_object("\"auths\" is no object")),
        };
        self.write(&config)?;
        Ok(place)
    }

    /// Removes the login for `registry`; whether there was one.
    ///
    /// # Errors
    /// When the file cannot be read or written, or its helper fails.
    pub async fn remove(&self, registry: &str) -> Result<bool, CredentialError> {
        let mut config = self.read().await?;
        let keys = keys_of(registry);
        let mut was_there = false;
        if let Some((helper, spelled)) = helper_of(&config, &keys) {
            for key in keys.iter().chain(&spelled) {
                was_there |= self.order(&helper, key, Order::Erase, key).await?;
            }
        }
        if let Some(auths) = config.get_mut("auths").and_then(Value::as_object_mut) {
            let before = auths.len();
            auths.retain(|key, _| !keys.iter().any(|one| bare(one) == bare(key)));
            if auths.len() < before {
                was_there = true;
                self.write(&config)?;
            }
        }
        Ok(was_there)
    }

    async fn order(
        &self,
        helper: &str,
        key: &str,
        order: Order,
        question: &str,
    ) -> Result<bool, CredentialError> {
        let program = program(self.helper_directory.as_deref(), helper);
        order_helper(&program, helper, key, order, question, self.helper_timeout).await
    }

    async fn read(&self) -> Result<Map<String, Value>, CredentialError> {
        let Some(bytes) = read_bytes(&self.path).await? else {
            return Ok(Map::new());
        };
        // Docker takes an empty file for one with nothing in it.
        if bytes.trim_ascii().is_empty() {
            return Ok(Map::new());
        }
        match serde_json::from_slice(&bytes) {
            Ok(Value::Object(config)) => Ok(config),
            Ok(_) => Err(self.no_object("it is no JSON object")),
            Err(error) => Err(self.no_object(&error.to_string())),
        }
    }

    fn no_object(&self, reason: &str) -> CredentialError {
        CredentialError::Parse {
            path: self.path.clone(),
            reason: reason.to_owned(),
        }
    }

    fn write(&self, config: &Map<String, Value>) -> Result<(), CredentialError> {
        let failed = |source: std::io::Error| CredentialError::Write {
            path: self.path.clone(),
            source,
        };
        let mut bytes = serde_json::to_vec_pretty(config).map_err(|error| failed(error.into()))?;
        bytes.push(b'\n');
        if let Some(directory) = self.path.parent() {
            make_closed(directory).map_err(failed)?;
        }
        write_privately(&self.path, &bytes).map_err(failed)
    }
}

/// Makes a directory that only its owner may enter, and what is missing above it.
fn make_closed(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)
}

/// The helper that keeps the logins of a registry, and the registry's host as the file spells it, if that is none of its `keys`.
fn helper_of(config: &Map<String, Value>, keys: &[String]) -> Option<(String, Option<String>)> {
    let named = config.get("credHelpers").and_then(Value::as_object);
    let named = named.and_then(|helpers| helper_for(helpers.iter(), keys));
    let named = named.and_then(|(host, helper)| Some((helper.as_str()?, Some(host))));
    let for_all = || Some((config.get("credsStore")?.as_str()?, None));
    let (helper, host) = named.or_else(for_all)?;
    let spelled = host.map(str::to_owned).filter(|host| !keys.contains(host));
    (!helper.is_empty()).then(|| (helper.to_owned(), spelled))
}
