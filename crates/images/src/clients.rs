//! One registry client for each docker configuration: they share connections, tokens and budgets. Logins of pulls that are
//! under way, of which nothing is known yet, are used by clients of their own: by those pulls, and by readers who are refused
//! otherwise, so that no reader is refused for such a login.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

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

/// Clients by docker configuration and files of logins.
type Made = HashMap<(Option<PathBuf>, Vec<PathBuf>), Client>;

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

    /// The client that uses the credentials of `docker_config`.
    ///
    /// # Errors
    /// When `registries.toml` or the credentials' file is damaged.
    pub fn get(&self, docker_config: Option<&Path>) -> Result<Client, Failure> {
        let mut clients = self.lock();
        let key = (docker_config.map(Path::to_owned), self.logins.clone());
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let mut config = self.settings()?;
        // What somebody brings along comes first, what happens to be there for root last.
        match &key.0 {
            Some(_) => config.docker_configs_after.extend(self.logins.clone()),
            None => config.docker_configs_before.extend(self.logins.clone()),
        }
        config.docker_config = key.0.clone().or(config.docker_config);
        let client = Client::remembering(config, self.memory.clone())
            .map_err(|error| Failure::new(FailureKind::Registry, error))?;
        clients.insert(key, client.clone());
        Ok(client)
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

    /// Counters of all clients together.
    pub fn stats(&self) -> Stats {
        let clients = self.lock();
        clients
            .values()
            .map(Client::stats)
            .fold(Stats::default(), |sum, one| Stats {
                requests: sum.requests + one.requests,
                bytes_received: sum.bytes_received + one.bytes_received,
                bytes_sent: sum.bytes_sent + one.bytes_sent,
                retries: sum.retries + one.retries,
                tokens: sum.tokens + one.tokens,
                redirects: sum.redirects + one.redirects,
            })
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Made> {
        self.clients
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
