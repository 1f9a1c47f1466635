//! Reads a file of logins, as docker and podman write it.

use std::collections::HashMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use xebec_format::docker_hub::{DOCKER_HUB, DOCKER_HUB_NAMES, registry_name};

use super::credential::{Credential, CredentialError};

/// The key under which docker keeps credentials of its own registry.
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";

/// The parts of `config.json` that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DockerConfig {
    pub(super) auths: HashMap<String, Option<AuthEntry>>,
    pub(super) cred_helpers: HashMap<String, String>,
    pub(super) creds_store: Option<String>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub(super) struct AuthEntry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl DockerConfig {
    /// Parses the file at `path`. An empty file has no entries, as with docker.
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, CredentialError> {
        if bytes.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_slice(bytes).map_err(|error| wrong(path, said(&error)))
    }

    /// The credential that the file has for `repository` of `registry`, whose `keys` are given.
    pub(crate) fn credential(
        &self,
        path: &Path,
        keys: &[String],
        repository: &str,
    ) -> Result<Option<Credential>, CredentialError> {
        let entry = find_entry(&self.auths, keys, repository);
        let found = entry.map(|entry| entry_credential(&entry)).transpose();
        let registry = keys.first().map_or("", String::as_str);
        let found = found.map_err(|reason| wrong(path, format!("of {registry}, {reason}")))?;
        Ok(found.flatten())
    }

    /// How many logins it has or names helpers for.
    pub(crate) fn logins(&self, path: &Path) -> Result<usize, CredentialError> {
        for (key, entry) in &self.auths {
            let checked = entry.as_ref().map(entry_credential).transpose();
            checked.map_err(|reason| wrong(path, format!("of {key}, {reason}")))?;
        }
        let helped = self.cred_helpers.keys();
        Ok(self.auths.len() + helped.filter(|key| !self.auths.contains_key(*key)).count())
    }
}

/// The fault of a JSON text, without any part of the text: it may be a secret.
fn said(error: &serde_json::Error) -> String {
    match error.is_data() {
        false => error.to_string(),
        true => format!(
            "another kind of value is expected at line {} column {}",
            error.line(),
            error.column()
        ),
    }
}

fn wrong(path: &Path, reason: String) -> CredentialError {
    CredentialError::Parse {
        path: path.to_owned(),
        reason,
    }
}

/// The spellings under which a registry's credentials may be filed, the usual one first.
pub(crate) fn keys_of(registry: &str) -> Vec<String> {
    if registry_name(registry) != DOCKER_HUB {
        return vec![registry.to_ascii_lowercase()];
    }
    let names = std::iter::once(DOCKER_HUB_KEY).chain(DOCKER_HUB_NAMES);
    names.map(str::to_owned).collect()
}

/// Of helpers and the hosts that they are for: that of a registry, whose `keys` are given, and its host as the file spells it. Of several
/// spellings the one in lower case counts.
pub(super) fn helper_for<'a, H>(
    helpers: impl Iterator<Item = (&'a String, H)> + Clone,
    keys: &[String],
) -> Option<(&'a str, H)> {
    let of = |key: &String| {
        let alike = helpers.clone().filter(|(host, _)| host.eq_ignore_ascii_case(key));
        alike.max_by_key(|(host, _)| *host)
    };
    let (host, helper) = keys.iter().find_map(of)?;
    Some((host, helper))
}

/// A key without scheme, API version and upper case in its host: old tools filed entries under URLs.
pub(super) fn bare(key: &str) -> String {
    let key = key.trim_start_matches("https://").trim_start_matches("http://");
    let key = key.trim_end_matches('/');
    // A repository's name may end like that, too.
    let host = key.strip_suffix("/v1").or_else(|| key.strip_suffix("/v2"));
    let key = host.filter(|host| !host.contains('/')).unwrap_or(key);
    let host = key.split('/').next().unwrap_or_default();
    key.replacen(host, &host.to_ascii_lowercase(), 1)
}

/// The entry for the longest path above `repository`, else for the registry.
pub(super) fn find_entry(
    auths: &HashMap<String, Option<AuthEntry>>,
    keys: &[String],
    repository: &str,
) -> Option<AuthEntry> {
    let mut entries: Vec<(&String, &AuthEntry)> = auths
        .iter()
        .filter_map(|(key, entry)| Some((key, entry.as_ref()?)))
        .collect();
    // Of several spellings of a host the last one counts: the usual one, which a login writes.
    let place = |key: &String| keys.iter().position(|usual| usual == key).unwrap_or(keys.len());
    entries.sort_by(|(one, _), (other, _)| place(other).cmp(&place(one)).then_with(|| one.cmp(other)));
    let by_bare: HashMap<String, &AuthEntry> = entries
        .into_iter()
        .map(|(key, entry)| (bare(key), entry))
        .collect();
    let hosts: Vec<String> = keys.iter().map(|key| bare(key)).collect();
    let mut path = repository;
    loop {
        for host in &hosts {
            let key = if path.is_empty() {
                host.clone()
            } else {
                format!("{host}/{path}")
            };
            if let Some(entry) = by_bare.get(&key) {
                return Some((*entry).clone());
            }
        }
        if path.is_empty() {
            return None;
        }
        path = path.rsplit_once('/').map_or("", |(above, _)| above);
    }
}

/// The credential that an entry of `auths` holds. An entry with nothing in it marks that a helper has the secret.
pub(super) fn entry_credential(entry: &AuthEntry) -> Result<Option<Credential>, String> {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(token) = some(&entry.registrytoken) {
        return Ok(Some(Credential::RegistryToken(token)));
    }
    if let Some(token) = some(&entry.identitytoken) {
        return Ok(Some(Credential::IdentityToken(token)));
    }
    if let Some(auth) = some(&entry.auth) {
        return decode_auth(&auth).map(Some);
    }
    match (some(&entry.username), some(&entry.password)) {
        (Some(username), Some(password)) => Ok(Some(Credential::Basic { username, password })),
        _ => Ok(None),
    }
}

fn decode_auth(auth: &str) -> Result<Credential, String> {
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engine = GeneralPurpose::new(&base64::alphabet::STANDARD, lenient);
    let wrong = || "the \"auth\" entry is not base64 of \"name:password\"".to_owned();
    let bytes = engine.decode(auth.trim()).map_err(|_| wrong())?;
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    let (username, password) = text.split_once(':').ok_or_else(wrong)?;
    // Docker on Windows once padded the password with NUL bytes.
    let password = password.trim_end_matches('\0');
    Ok(Credential::Basic {
        username: username.to_owned(),
        password: password.to_owned(),
    })
}
