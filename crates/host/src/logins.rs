//! Logins that the kubelet pulled with: `<root>/logins.json`.
//!
//! The file is as docker writes it, with an entry for each repository, so the registry client reads it like any other; only
//! root may. It survives the daemon: a container that is started again after a boot reads on with what its image was pulled
//! with. The last login of a repository is the one that is used, for all of its images, and the oldest go when there are
//! many.
//!
//! While a pull is under way its login is tried: it is in force, since the pull asks for lazy layers with it, and what was
//! in force before is noted beside it. A pull that fails, or whose end nobody saw, leaves that.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use xebec_oci::Reference;
use xebec_snapshotter::image_service::{Login, Logins, Ticket};

use crate::file::write_privately;
use crate::image::seconds_since_1970;

/// How large the file may be, in bytes. The registry client reads no larger ones than twice that.
const LARGEST: usize = 512 << 10;

/// The file, and who changes it.
#[derive(Debug)]
pub struct KeptLogins {
    file: PathBuf,
    tried: Mutex<Tried>,
}

/// Pulls that are under way.
#[derive(Debug, Default)]
struct Tried {
    last: u64,
    /// Repository and login of each, the last one last.
    pulls: BTreeMap<Ticket, (String, Option<Entry>)>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct File {
    /// What is in force.
    auths: BTreeMap<String, Entry>,
    /// What worked last, of repositories that are being pulled.
    #[serde(rename = "xebecWorked", skip_serializing_if = "BTreeMap::is_empty")]
    worked: BTreeMap<String, Option<Entry>>,
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
    /// When it was put here, in seconds since 1970.
    #[serde(rename = "xebecSince")]
    since: u64,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entry(…)")
    }
}

impl From<&Login> for Entry {
    fn from(login: &Login) -> Self {
        Self {
            auth: login.auth.clone(),
            username: login.username.clone(),
            password: login.password.clone(),
            identitytoken: login.identity_token.clone(),
            registrytoken: login.registry_token.clone(),
            since: seconds_since_1970(),
        }
    }
}

impl KeptLogins {
    /// Keeps them in this file. What was being tried when its last keeper died is not in force any more.
    pub fn new(file: PathBuf) -> Self {
        let kept = Self {
            file,
            tried: Mutex::default(),
        };
        if let Err(error) = kept.change(|file| {
            for (key, entry) in std::mem::take(&mut file.worked) {
                file.put(key, entry);
            }
        }) {
            tracing::warn!("{error}");
        }
        kept
    }

    /// Called by one at a time.
    fn change(&self, work: impl FnOnce(&mut File)) -> Result<(), String> {
        let mut file = read(&self.file)?;
        let before = serde_json::to_vec(&file).map_err(|error| error.to_string())?;
        work(&mut file);
        let mut bytes = serde_json::to_vec(&file).map_err(|error| error.to_string())?;
        while bytes.len() > LARGEST && file.forget_oldest() {
            bytes = serde_json::to_vec(&file).map_err(|error| error.to_string())?;
        }
        if bytes == before {
            return Ok(());
        }
        write_privately(&self.file, &bytes).map_err(|error| format!("write {}: {error}", self.file.display()))
    }
}

impl File {
    fn put(&mut self, key: String, entry: Option<Entry>) {
        match entry {
            Some(entry) => drop(self.auths.insert(key, entry)),
            None => drop(self.auths.remove(&key)),
        }
    }

    /// Whether there was one to forget.
    fn forget_oldest(&mut self) -> bool {
        let oldest = self.auths.iter().min_by_key(|(_, entry)| entry.since);
        let Some(key) = oldest.map(|(key, _)| key.clone()) else {
            return false;
        };
        self.auths.remove(&key);
        true
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
    fn begin(&self, image: &str, login: Option<&Login>) -> Result<Ticket, String> {
        let key = key(image)?;
        let login = login.map(Entry::from);
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        self.change(|file| {
            if !file.worked.contains_key(&key) {
                file.worked.insert(key.clone(), file.auths.get(&key).cloned());
            }
            file.put(key.clone(), login.clone());
        })?;
        tried.last += 1;
        let ticket = Ticket(tried.last);
        tried.pulls.insert(ticket, (key, login));
        Ok(ticket)
    }

    fn end(&self, ticket: Ticket, has_worked: bool) -> Result<(), String> {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((key, login)) = tried.pulls.remove(&ticket) else {
            return Ok(());
        };
        let others = tried.pulls.values().filter(|(other, _)| *other == key);
        let still_tried = others.map(|(_, login)| login.clone()).next_back();
        self.change(|file| {
            if has_worked {
                file.worked.insert(key.clone(), login);
            }
            match still_tried {
                Some(login) => file.put(key, login),
                None => {
                    let worked = file.worked.remove(&key).flatten();
                    file.put(key, worked);
                }
            }
        })
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

    struct Kept {
        folder: tempfile::TempDir,
        logins: KeptLogins,
    }

    impl Kept {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let logins = KeptLogins::new(folder.path().join("logins.json"));
            Self { folder, logins }
        }

        fn file(&self) -> PathBuf {
            self.folder.path().join("logins.json")
        }

        fn restart(&mut self) {
            self.logins = KeptLogins::new(self.file());
        }

        fn begin(&self, image: &str, name: &str) -> Ticket {
            let login = (!name.is_empty()).then(|| login(name));
            self.logins.begin(image, login.as_ref()).unwrap()
        }

        fn pull(&self, image: &str, name: &str, has_worked: bool) {
            let ticket = self.begin(image, name);
            self.logins.end(ticket, has_worked).unwrap();
        }

        /// Who the registry client would be.
        async fn user(&self, registry: &str, repository: &str) -> Option<String> {
            use xebec_oci::credentials::{Credential, CredentialStore};
            let store = CredentialStore::new(Some(&self.file()), None, std::time::Duration::ZERO);
            match store.look_up(registry, repository).await.unwrap() {
                Some(Credential::Basic { username, .. }) => Some(username),
                _ => None,
            }
        }

        async fn app(&self) -> Option<String> {
            self.user("registry.example", "app").await
        }
    }

    const APP: &str = "registry.example/app:1.4";

    #[tokio::test]
    async fn the_registry_client_uses_what_is_kept() {
        let mut kept = Kept::new();
        kept.pull("registry.example/team/app:1.4", "one", true);
        kept.pull("nginx", "hub", true);
        let mode = std::fs::metadata(kept.file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        kept.restart();
        assert_eq!(
            kept.user("registry.example", "team/app").await.as_deref(),
            Some("one")
        );
        assert_eq!(
            kept.user("docker.io", "library/nginx").await.as_deref(),
            Some("hub")
        );
        assert_eq!(kept.user("registry.example", "team/other").await, None);
        // It is public now.
        kept.pull("registry.example/team/app", "", true);
        assert_eq!(kept.user("registry.example", "team/app").await, None);
    }

    #[tokio::test]
    async fn what_did_not_work_is_taken_back_in_whatever_order() {
        let kept = Kept::new();
        kept.pull(APP, "good", true);
        let bad = kept.begin(APP, "bad");
        assert_eq!(kept.app().await.as_deref(), Some("bad"));
        let worse = kept.begin(APP, "worse");
        kept.logins.end(bad, false).unwrap();
        assert_eq!(kept.app().await.as_deref(), Some("worse"));
        kept.logins.end(worse, false).unwrap();
        assert_eq!(kept.app().await.as_deref(), Some("good"));

        let (bad, newer) = (kept.begin(APP, "bad"), kept.begin(APP, "newer"));
        kept.logins.end(newer, true).unwrap();
        kept.logins.end(bad, false).unwrap();
        assert_eq!(kept.app().await.as_deref(), Some("newer"));
        kept.pull(APP, "", false);
        assert_eq!(kept.app().await.as_deref(), Some("newer"));
    }

    #[tokio::test]
    async fn a_pull_whose_end_nobody_saw_leaves_what_worked() {
        let mut kept = Kept::new();
        kept.pull(APP, "good", true);
        kept.begin(APP, "bad");
        kept.begin("registry.example/other", "bad");
        kept.restart();
        assert_eq!(kept.app().await.as_deref(), Some("good"));
        assert_eq!(kept.user("registry.example", "other").await, None);
    }

    #[tokio::test]
    async fn many_do_not_make_the_file_too_large_to_be_read() {
        let kept = Kept::new();
        let mut large = login("old");
        large.password = "x".repeat(LARGEST / 4);
        for number in 0..6 {
            let image = format!("registry.example/number-{number}");
            let ticket = kept.logins.begin(&image, Some(&large)).unwrap();
            kept.logins.end(ticket, true).unwrap();
            kept.logins
                .change(|file| file.auths.values_mut().for_each(|entry| entry.since -= 1))
                .unwrap();
        }
        assert!(std::fs::metadata(kept.file()).unwrap().len() <= LARGEST as u64);
        assert_eq!(
            kept.user("registry.example", "number-5").await.as_deref(),
            Some("old")
        );
        assert_eq!(kept.user("registry.example", "number-0").await, None);
    }

    #[test]
    fn damage_is_named_without_secrets() {
        let kept = Kept::new();
        std::fs::write(kept.file(), "{\"auths\": {\"a\": hunter2").unwrap();
        let error = kept.logins.begin(APP, None).unwrap_err();
        assert!(error.contains("logins.json is damaged"), "{error}");
        assert!(!error.contains("hunter2"));
        assert!(!format!("{:?}", kept.logins).contains("hunter2"));
        assert!(kept.logins.begin("not an image", None).is_err());
    }
}
