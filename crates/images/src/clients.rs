//! One registry client for each docker configuration: they share connections, tokens and budgets. When `registries.toml` changes,
//! calls that begin then get new clients, and those under way go on with the old ones. A login of a pull that is under way is not
//! yet known to be good. Clients of their own use such logins: for those pulls, and for readers that are refused
//! otherwise, so that no reader is refused for such a login.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{info, warn};
use xebec_oci::credentials::Login;
use xebec_oci::{Client, ClientConfig, Stats};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;

use crate::registry_memory::RememberedRegistries;

/// Makes and keeps clients.
#[derive(Debug)]
pub struct Clients {
    /// The part of the configuration that is the host's: mirrors, certificates, budgets.
    settings: PathBuf,
    /// Files of logins that the kubelet pulled with, the first that has one counts.
    logins: Vec<PathBuf>,
    /// Where logins are that are being tried.
    tried: PathBuf,
    memory: Arc<RememberedRegistries>,
    clients: Arc<Mutex<Made>>,
}

/// Docker configuration and files of logins.
type Key = (Option<PathBuf>, Vec<PathBuf>);

/// The clients that were made.
#[derive(Debug, Default)]
struct Made {
    clients: HashMap<Key, Client>,
    /// Of which `registries.toml` they are.
    of: Option<Version>,
    /// The one that they were not made of, since something is wrong with it.
    refused: Option<Version>,
    /// Counts of the clients of earlier versions.
    before: Stats,
}

/// A version of a file; its absence is one, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version(Option<(u64, u64, i64, i64)>);

impl Version {
    fn of(file: &Path) -> Self {
        let status = fs::metadata(file).ok();
        Self(status.map(|status| (status.ino(), status.size(), status.mtime(), status.mtime_nsec())))
    }
}

impl Clients {
    /// Clients with the settings of `registries.toml`, which keep what they learn of registries in `registries.json`.
    /// Neither need exist.
    pub fn new(paths: &Paths) -> Self {
        Self {
            settings: paths.registries(),
            logins: vec![paths.logins()],
            tried: paths.tried_logins(),
            memory: Arc::new(RememberedRegistries::new(paths.registries_seen())),
            clients: Arc::default(),
        }
    }

    /// The same, but with logins of pulls that are under way.
    pub(crate) fn trying(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            logins: std::iter::once(&self.tried)
                .chain(&self.logins)
                .cloned()
                .collect(),
            tried: self.tried.clone(),
            memory: self.memory.clone(),
            clients: self.clients.clone(),
        }
    }

    /// Those with logins of pulls that are under way, if there are any.
    pub(crate) fn tried(&self) -> Option<Self> {
        self.tried.exists().then(|| self.trying())
    }

    /// The client that uses the credentials of `docker_config`. If `registries.toml` was damaged since one was made, it is that one:
    /// readers wait for it.
    ///
    /// # Errors
    /// When `registries.toml` is damaged.
    pub fn get(&self, docker_config: Option<&Path>) -> Result<Client, Failure> {
        let key = (docker_config.map(Path::to_owned), self.logins.clone());
        let mut made = self.clients.lock();
        // Before it is read: what is written meanwhile is seen by the next call.
        let version = Some(Version::of(&self.settings));
        let known = made.clients.get(&key).cloned();
        if let Some(client) = &known
            && (made.of == version || made.refused == version)
        {
            return Ok(client.clone());
        }
        match (self.make(&key), known) {
            (Ok(client), _) => {
                if made.of != version {
                    made.begin_anew(version);
                }
                made.clients.insert(key, client.clone());
                Ok(client)
            }
            (Err(failure), Some(client)) => {
                warn!(
                    "{failure}; until it is corrected, registries are asked with the settings as they were"
                );
                made.refused = version;
                Ok(client)
            }
            (Err(failure), None) => Err(failure),
        }
    }

    fn make(&self, key: &Key) -> Result<Client, Failure> {
        let mut config = self.settings()?;
        // The caller's own configuration comes first, files that happen to be there for root come last.
        match &key.0 {
            Some(_) => config.docker_configs_after.extend(self.logins.clone()),
            None => config.docker_configs_before.extend(self.logins.clone()),
        }
        config.docker_config = key.0.clone().or(config.docker_config);
        Client::remembering(config, self.memory.clone())
            .map_err(|error| Failure::new(FailureKind::Registry, error))
    }

    /// A client that sends this login to every registry, to see whether one takes it.
    ///
    /// # Errors
    /// When `registries.toml` is damaged.
    pub fn with_login(&self, login: Login) -> Result<Client, Failure> {
        let config = ClientConfig {
            login: Some(login),
            ..self.settings()?
        };
        Client::remembering(config, self.memory.clone())
            .map_err(|error| Failure::new(FailureKind::Registry, error))
    }

    /// The settings of `registries.toml`.
    ///
    /// # Errors
    /// When it is damaged.
    pub fn settings(&self) -> Result<ClientConfig, Failure> {
        let settings_file = self.settings.clone();
        let settings = self.read_settings()?;
        Ok(ClientConfig {
            settings_file,
            ..settings
        })
    }

    /// Calls that begin from now on send no login, and no token for one, that was read before. Calls that are under way since before
    /// `registries.toml` changed keep theirs.
    pub fn forget_logins(&self) {
        self.clients
            .lock()
            .clients
            .values()
            .for_each(Client::forget_logins);
    }

    /// Counters of all clients together.
    pub fn stats(&self) -> Stats {
        self.clients.lock().stats()
    }

    fn read_settings(&self) -> Result<ClientConfig, Failure> {
        let text = match fs::read_to_string(&self.settings) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(ClientConfig::default()),
            Err(error) => return Err(Failure::host(format!("read {}", self.settings.display()), error)),
        };
        toml::from_str(&text).map_err(|error| {
            Failure::new(
                FailureKind::Usage,
                format!("{}: {error}", self.settings.display()),
            )
        })
    }
}

impl Made {
    /// The clients are of another version of the settings from now on.
    fn begin_anew(&mut self, version: Option<Version>) {
        if !self.clients.is_empty() {
            info!("registries.toml has changed: registries are asked with the new settings");
        }
        self.before = self.stats();
        self.clients.clear();
        self.of = version;
    }

    fn stats(&self) -> Stats {
        let each = self.clients.values().map(Client::stats);
        each.fold(self.before, |sum, one| Stats {
            requests: sum.requests + one.requests,
            bytes_received: sum.bytes_received + one.bytes_received,
            bytes_sent: sum.bytes_sent + one.bytes_sent,
            retries: sum.retries + one.retries,
            tokens: sum.tokens + one.tokens,
            redirects: sum.redirects + one.redirects,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use xebec_testkit::registry::{Fault, FaultyRegistry, Options, When};

    use super::*;

    /// A daemon that runs asks as the file says now, and goes on as before while something is wrong with the file.
    #[test]
    fn a_changed_file_counts_for_the_next_call() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::create(&directory.path().join("root"), &directory.path().join("run")).unwrap();
        let registry = FaultyRegistry::with(Options::default()).unwrap();
        let clients = Clients::new(&paths);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let tries = || {
            registry.clear_log();
            let client = clients.get(None).unwrap();
            let probed = runtime.block_on(client.probe(&registry.host(), None));
            probed.unwrap_err();
            // Each asks twice.
            registry.log().len() / 2
        };
        let write = |text: &str| fs::write(paths.registries(), text).unwrap();
        write("[budget]\nattempts = 2\nbase_delay = \"1ms\"\n");
        registry.inject(
            When::any(),
            Fault::Status {
                code: 503,
                retry_after: None,
            },
        );
        assert_eq!(tries(), 2);
        assert_eq!(tries(), 2);
        write("[budget]\nattempts = 5\nbase_delay = \"1ms\"\n");
        assert_eq!(tries(), 5);
        write("atempts = 1\n");
        assert_eq!(tries(), 5, "as before, until it is corrected");
        Clients::new(&paths).get(None).unwrap_err();
        fs::remove_file(paths.registries()).unwrap();
        write("[budget]\nattempts = 1\n");
        assert_eq!(tries(), 1);
        let counted = clients.stats().requests;
        let asked = 2 * (2 + 2 + 5 + 5 + 1);
        assert!(counted >= asked, "{counted}");
    }
}
