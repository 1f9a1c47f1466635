//! Logins that the kubelet pulled with: `<root>/logins.json`, and of pulls that are under way: `<run>/tried-logins.json`.
//!
//! The files are as docker writes them, with an entry for each repository, so the registry client reads them like any other; only
//! root may. The first survives the daemon: a container that is started again after a boot reads on with the login that its image
//! was pulled with. The last login of a repository is the one that is used, for all of its images. The oldest go when there are
//! many, and those that no pull has brought for as long as the settings say.
//!
//! While a pull is under way its login is tried: the pull itself asks with it for lazy layers, and for the recording that comes
//! with them; readers only if they are refused otherwise. A pull that works makes it everybody's; one that fails, or whose end
//! nobody saw, leaves the earlier login.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use xebec_kernel::file::write_privately;
use xebec_oci::Reference;
use xebec_snapshotter::image_service::{Login, Logins, Ticket};

use xebec_kernel::clock::seconds_since_1970;

/// How large a file may be, in bytes. The registry client reads no larger ones than twice that.
const LARGEST: usize = 512 << 10;

/// Logins are looked at for their age at least this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The files of logins, and the logins of pulls that go on.
#[derive(Debug)]
pub struct KeptLogins {
    file: PathBuf,
    tried_file: PathBuf,
    /// How long a login is kept that no pull brings again.
    age: Option<Duration>,
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
    /// Keeps them in these files. Logins that were being tried when the last keeper died are not tried any more.
    pub fn new(file: PathBuf, tried_file: PathBuf, age: Option<Duration>) -> Self {
        let kept = Self {
            file,
            tried_file,
            age,
            tried: Mutex::default(),
        };
        if let Err(error) = kept.write_tried(&kept.tried.lock()) {
            warn!("{error}");
        }
        kept.forget_old();
        kept
    }

    /// Whether a pull of the image is under way that brings a login.
    pub fn are_tried(&self, image: &str) -> bool {
        let tried = self.tried.lock();
        key(image).is_ok_and(|key| {
            let mut pulls = tried.pulls.values();
            pulls.any(|(repository, login)| *repository == key && login.is_some())
        })
    }

    /// Forgets logins that are too old, and says how long it is until that is worth doing again; `None` if it never is.
    pub fn forget_old(&self) -> Option<Duration> {
        let age = self.age?;
        let _one = self.tried.lock();
        if let Err(error) = self.change(|_| {}) {
            warn!("cannot remove logins that are too old: {error}");
        }
        Some(LONGEST_PAUSE.min(age))
    }

    /// Changes the kept logins. Called by one at a time.
    fn change(&self, work: impl FnOnce(&mut File)) -> Result<(), String> {
        let mut file = read(&self.file)?;
        let before = file.to_bytes()?;
        work(&mut file);
        if let Some(age) = self.age {
            file.forget_older(age);
        }
        let mut bytes = file.to_bytes()?;
        while bytes.len() > LARGEST && file.forget_oldest() {
            bytes = file.to_bytes()?;
        }
        if bytes == before {
            return Ok(());
        }
        write(&self.file, &bytes)
    }

    /// Writes the logins that are being tried, the last one of each repository.
    fn write_tried(&self, tried: &Tried) -> Result<(), String> {
        let pulls = tried.pulls.values();
        let auths = pulls.filter_map(|(key, login)| Some((key.clone(), login.clone()?)));
        let file = File {
            auths: auths.collect(),
        };
        if file.auths.is_empty() {
            return match std::fs::remove_file(&self.tried_file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(format!("remove {}: {error}", self.tried_file.display()))
                }
                _ => Ok(()),
            };
        }
        let bytes = file.to_bytes()?;
        match bytes.len() {
            ..=LARGEST => write(&self.tried_file, &bytes),
            length => Err(format!("logins of {length} bytes are tried at once")),
        }
    }
}

impl File {
    fn to_bytes(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }

    fn put(&mut self, key: String, entry: Option<Entry>) {
        match entry {
            Some(entry) => drop(self.auths.insert(key, entry)),
            None => drop(self.auths.remove(&key)),
        }
    }

    fn forget_older(&mut self, age: Duration) {
        let now = seconds_since_1970();
        self.auths.retain(|key, entry| {
            // A clock that was set back makes none older.
            let is_young = Duration::from_secs(now.saturating_sub(entry.since)) < age;
            if !is_young {
                info!(
                    "removed the login of {key}: no pull has used it for {} s",
                    age.as_secs()
                );
            }
            is_young
        });
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

fn write(file: &Path, bytes: &[u8]) -> Result<(), String> {
    write_privately(file, bytes).map_err(|error| format!("write {}: {error}", file.display()))
}

impl Logins for KeptLogins {
    fn begin(&self, image: &str, login: Option<&Login>) -> Result<Ticket, String> {
        let key = key(image)?;
        let login = login.map(Entry::from);
        let mut tried = self.tried.lock();
        tried.last += 1;
        let ticket = Ticket(tried.last);
        tried.pulls.insert(ticket, (key, login));
        if let Err(error) = self.write_tried(&tried) {
            tried.pulls.remove(&ticket);
            return Err(error);
        }
        Ok(ticket)
    }

    fn end(&self, ticket: Ticket, has_worked: bool) -> Result<(), String> {
        let mut tried = self.tried.lock();
        let Some((key, login)) = tried.pulls.remove(&ticket) else {
            return Ok(());
        };
        // It is never neither tried nor kept.
        let kept = match has_worked {
            true => self.change(|file| file.put(key, login)),
            false => Ok(()),
        };
        self.write_tried(&tried).and(kept)
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

    fn kept_in(folder: &Path, age: Option<Duration>) -> KeptLogins {
        KeptLogins::new(folder.join("logins.json"), folder.join("tried-logins.json"), age)
    }

    struct Kept {
        folder: tempfile::TempDir,
        logins: KeptLogins,
    }

    impl Kept {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let logins = kept_in(folder.path(), None);
            Self { folder, logins }
        }

        fn file(&self) -> PathBuf {
            self.folder.path().join("logins.json")
        }

        fn restart(&mut self) {
            self.logins = kept_in(self.folder.path(), None);
        }

        fn begin(&self, image: &str, name: &str) -> Ticket {
            let login = (!name.is_empty()).then(|| login(name));
            self.logins.begin(image, login.as_ref()).unwrap()
        }

        fn pull(&self, image: &str, name: &str, has_worked: bool) {
            let ticket = self.begin(image, name);
            self.logins.end(ticket, has_worked).unwrap();
        }

        /// The user as whom the registry client would read.
        async fn user(&self, registry: &str, repository: &str) -> Option<String> {
            self.user_of(&self.file(), registry, repository).await
        }

        /// The user as whom it would ask for the layers of a pull.
        async fn tried(&self) -> Option<String> {
            let file = self.folder.path().join("tried-logins.json");
            self.user_of(&file, "registry.example", "app").await
        }

        async fn user_of(&self, file: &Path, registry: &str, repository: &str) -> Option<String> {
            use xebec_oci::credentials::{Credential, CredentialStore};
            let store = CredentialStore::new(Some(file), None, Duration::ZERO);
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
    async fn what_is_tried_is_nobody_elses_in_whatever_order_pulls_end() {
        let kept = Kept::new();
        let good = kept.begin(APP, "good");
        assert_eq!(kept.app().await, None);
        assert_eq!(kept.tried().await.as_deref(), Some("good"));
        assert!(kept.logins.are_tried(APP) && !kept.logins.are_tried("registry.example/other"));
        kept.logins.end(good, true).unwrap();
        assert_eq!(kept.app().await.as_deref(), Some("good"));
        assert_eq!(kept.tried().await, None);
        assert!(!kept.logins.are_tried(APP));

        let bad = kept.begin(APP, "bad");
        let worse = kept.begin(APP, "worse");
        let nobody = kept.begin(APP, "");
        assert_eq!(kept.tried().await.as_deref(), Some("worse"));
        kept.logins.end(worse, false).unwrap();
        assert_eq!(kept.tried().await.as_deref(), Some("bad"));
        kept.logins.end(bad, false).unwrap();
        kept.logins.end(nobody, false).unwrap();
        assert_eq!(kept.tried().await, None);
        assert_eq!(kept.app().await.as_deref(), Some("good"));

        let (bad, newer) = (kept.begin(APP, "bad"), kept.begin(APP, "newer"));
        assert_eq!(kept.app().await.as_deref(), Some("good"));
        kept.logins.end(newer, true).unwrap();
        kept.logins.end(bad, false).unwrap();
        assert_eq!(kept.app().await.as_deref(), Some("newer"));
        kept.pull(APP, "", false);
        assert_eq!(kept.app().await.as_deref(), Some("newer"));
    }

    #[tokio::test]
    async fn what_no_pull_brings_any_more_is_forgotten() {
        let mut kept = Kept::new();
        kept.pull(APP, "old", true);
        kept.pull("registry.example/other", "old", true);
        let age = |kept: &Kept, by: u64| {
            let older = |file: &mut File| file.auths.values_mut().for_each(|entry| entry.since -= by);
            kept.logins.change(older).unwrap();
        };
        age(&kept, 3590);
        assert_eq!(kept.logins.forget_old(), None);
        kept.logins = kept_in(kept.folder.path(), Some(Duration::from_secs(3600)));
        assert_eq!(kept.logins.forget_old(), Some(LONGEST_PAUSE));
        assert_eq!(kept.app().await.as_deref(), Some("old"));
        kept.pull(APP, "old", true);
        age(&kept, 20);
        kept.logins.forget_old();
        assert_eq!(kept.app().await.as_deref(), Some("old"));
        assert_eq!(kept.user("registry.example", "other").await, None);
        // One that is as old when the daemon is started.
        age(&kept, 3500);
        kept.restart();
        kept.logins = kept_in(kept.folder.path(), Some(Duration::from_secs(3600)));
        assert_eq!(kept.app().await.as_deref(), Some("old"));
        kept.logins = kept_in(kept.folder.path(), Some(Duration::from_secs(60)));
        assert_eq!(kept.app().await, None);
    }

    #[tokio::test]
    async fn a_pull_whose_end_nobody_saw_leaves_what_worked() {
        let mut kept = Kept::new();
        kept.pull(APP, "good", true);
        kept.begin(APP, "bad");
        kept.begin("registry.example/other", "bad");
        kept.restart();
        assert_eq!(kept.app().await.as_deref(), Some("good"));
        assert_eq!(kept.tried().await, None);
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
        let ticket = kept.begin(APP, "one");
        let error = kept.logins.end(ticket, true).unwrap_err();
        assert!(error.contains("logins.json is damaged"), "{error}");
        assert!(!error.contains("hunter2"));
        assert!(!format!("{:?}", kept.logins).contains("hunter2"));
        assert!(kept.logins.begin("not an image", None).is_err());
        let mut large = login("large");
        large.password = "x".repeat(LARGEST);
        assert!(kept.logins.begin(APP, Some(&large)).is_err());
        assert!(!kept.logins.are_tried(APP));
    }
}
