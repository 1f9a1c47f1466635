//! Logins that the kubelet pulled with, for as long as their images may be read: `<root>/logins.json`.
//!
//! The file is as docker writes it, with an entry for each repository, so the registry client reads it like any other; only
//! root may. It is written before a pull goes on and survives the daemon: a container that is started again after a boot reads
//! on with what its image was pulled with. The last login of a repository is the one that is used, for all of its images.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use xebec_oci::Reference;
use xebec_snapshotter::image_service::{Login, Logins};

use crate::file::write_privately;

/// The file, and who changes it.
#[derive(Debug)]
pub struct KeptLogins {
    file: PathBuf,
    change: Mutex<()>,
}

#[derive(Default, Serialize, Deserialize)]
struct File {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

/// An entry of docker's `auths`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Entry {
    #[serde(skip_serializing_if = "String::is_empty")]
    auth: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    password: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    identitytoken: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    registrytoken: String,
}

impl From<&Login> for Entry {
    fn from(login: &Login) -> Self {
        Self {
            auth: login.auth.clone(),
            username: login.username.clone(),
            password: login.password.clone(),
            identitytoken: login.identity_token.clone(),
            registrytoken: login.registry_token.clone(),
        }
    }
}

impl From<Entry> for Login {
    fn from(entry: Entry) -> Self {
        Self {
            username: entry.username,
            password: entry.password,
            auth: entry.auth,
            identity_token: entry.identitytoken,
            registry_token: entry.registrytoken,
        }
    }
}

impl KeptLogins {
    /// Keeps them in this file.
    pub fn new(file: PathBuf) -> Self {
        Self {
            file,
            change: Mutex::default(),
        }
    }

    /// Gives an entry another value, if `is_due` of what it is, and says what it was.
    fn change(
        &self,
        image: &str,
        to: Option<Entry>,
        is_due: impl FnOnce(Option<&Entry>) -> bool,
    ) -> Result<Option<Entry>, String> {
        let key = key(image)?;
        let _one = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = read(&self.file)?;
        let before = file.auths.get(&key).cloned();
        if before == to || !is_due(before.as_ref()) {
            return Ok(before);
        }
        match to {
            Some(entry) => drop(file.auths.insert(key, entry)),
            None => drop(file.auths.remove(&key)),
        }
        let bytes = serde_json::to_vec(&file).map_err(|error| error.to_string())?;
        write_privately(&self.file, &bytes)
            .map_err(|error| format!("write {}: {error}", self.file.display()))?;
        Ok(before)
    }
}

/// `registry/repository`.
fn key(image: &str) -> Result<String, String> {
    let reference: Reference = image.parse().map_err(|error| format!("{image}: {error}"))?;
    Ok(format!(
        "{}/{}",
        reference.registry(),
        reference.repository().name()
    ))
}

fn read(file: &Path) -> Result<File, String> {
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(File::default()),
        Err(error) => return Err(format!("read {}: {error}", file.display())),
    };
    // Its text holds secrets, so the message must not quote it.
    serde_json::from_slice(&bytes).map_err(|_| format!("{} is damaged; remove it", file.display()))
}

impl Logins for KeptLogins {
    fn put(&self, image: &str, login: Option<&Login>) -> Result<Option<Login>, String> {
        let before = self.change(image, login.map(Entry::from), |_| true)?;
        Ok(before.map(Login::from))
    }

    fn take_back(&self, image: &str, login: Option<&Login>, before: Option<&Login>) -> Result<(), String> {
        let ours = login.map(Entry::from);
        self.change(image, before.map(Entry::from), |now| now == ours.as_ref())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn login(name: &str) -> Login {
        Login {
            username: name.to_owned(),
            password: "hunter2".to_owned(),
            ..Login::default()
        }
    }

    async fn used(file: &Path, registry: &str, repository: &str) -> Option<String> {
        let store = xebec_oci::credentials::CredentialStore::new(Some(file), None, std::time::Duration::ZERO);
        match store.look_up(registry, repository).await.unwrap() {
            Some(xebec_oci::credentials::Credential::Basic { username, .. }) => Some(username),
            _ => None,
        }
    }

    #[tokio::test]
    async fn the_registry_client_uses_what_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("logins.json");
        let logins = KeptLogins::new(file.clone());
        assert_eq!(
            logins.put("registry.example/team/app:1.4", Some(&login("one"))),
            Ok(None)
        );
        assert_eq!(logins.put("nginx", Some(&login("hub"))), Ok(None));
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(
            used(&file, "registry.example", "team/app").await.as_deref(),
            Some("one")
        );
        assert_eq!(
            used(&file, "docker.io", "library/nginx").await.as_deref(),
            Some("hub")
        );
        assert_eq!(used(&file, "registry.example", "team/other").await, None);
        // Another host of the daemon: the file is what counts.
        let again = KeptLogins::new(file.clone());
        assert_eq!(
            again.put("registry.example/team/app", None),
            Ok(Some(login("one")))
        );
        assert_eq!(used(&file, "registry.example", "team/app").await, None);
    }

    #[test]
    fn what_did_not_work_is_taken_back_unless_another_came() {
        let folder = tempfile::tempdir().unwrap();
        let logins = KeptLogins::new(folder.path().join("logins.json"));
        let (image, good, bad) = ("registry.example/app", login("good"), login("bad"));
        logins.put(image, Some(&good)).unwrap();
        let before = logins.put(image, Some(&bad)).unwrap();
        logins.take_back(image, Some(&bad), before.as_ref()).unwrap();
        assert_eq!(logins.put(image, Some(&good)), Ok(Some(good.clone())));
        let before = logins.put(image, Some(&bad)).unwrap();
        let newer = login("newer");
        logins.put(image, Some(&newer)).unwrap();
        logins.take_back(image, Some(&bad), before.as_ref()).unwrap();
        assert_eq!(logins.put(image, None), Ok(Some(newer)));
    }

    #[test]
    fn damage_is_named_without_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("logins.json");
        std::fs::write(&file, "{\"auths\": {\"a\": hunter2").unwrap();
        let error = KeptLogins::new(file)
            .put("registry.example/app", None)
            .unwrap_err();
        assert!(error.contains("logins.json is damaged"), "{error}");
        assert!(!error.contains("hunter2"));
        let logins = KeptLogins::new(folder.path().join("other.json"));
        assert!(logins.put("not an image", None).is_err());
    }
}
