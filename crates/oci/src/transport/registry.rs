//! The facts that this process knows about each registry: scheme, places, whether it honours ranges.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Url;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use xebec_format::docker_hub::{DOCKER_HUB, DOCKER_HUB_SERVER, registry_name};

use super::gate::Gate;
use super::reach::LastReach;
use crate::config::{Budget, ClientConfig, Mirror};
use crate::error::ClientError;

/// A mirror that could not be reached is left out for this long.
const MIRROR_REST: Duration = Duration::from_secs(30);
/// How often it is looked whether a server is remembered to answer starts in advance.
const NATIVE_NOTED: Duration = Duration::from_secs(60 * 60);

/// Yes, no, or not known yet, shared between threads.
#[derive(Debug, Default)]
pub(crate) struct Known(AtomicU8);

impl Known {
    pub(crate) fn get(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            value => Some(value == 2),
        }
    }

    pub(crate) fn set(&self, value: bool) {
        self.0.store(if value { 2 } else { 1 }, Ordering::Relaxed);
    }
}

/// One server: a registry or a mirror.
#[derive(Debug)]
pub(crate) struct Server {
    /// `host[:port]` as connected to.
    pub(crate) authority: String,
    /// Path before `/v2/`, with no slash at its end; empty for registries.
    pub(crate) prefix: String,
    /// `http` or `https`, once it is known.
    pub(crate) scheme: OnceCell<&'static str>,
    /// Places and pauses.
    pub(crate) gate: Gate,
    /// Whether a range request is answered with that range.
    pub(crate) honours_ranges: Known,
    /// How near it is.
    pub(crate) reach: LastReach,
    resting_until: Mutex<Option<Instant>>,
    /// When this process last looked whether it is remembered that the server answers starts in advance.
    native_noted: Mutex<Option<Instant>>,
    /// A start request was in vain: until then there is none.
    starts_rest_until: Mutex<Option<Instant>>,
}

impl Server {
    fn new(authority: &str, prefix: &str, scheme: Option<&'static str>, budget: &Budget) -> Self {
        Self {
            authority: authority.to_owned(),
            prefix: prefix.to_owned(),
            scheme: scheme.map_or_else(OnceCell::new, |scheme| OnceCell::new_with(Some(scheme))),
            gate: Gate::new(budget),
            honours_ranges: Known::default(),
            reach: LastReach::default(),
            resting_until: Mutex::new(None),
            native_noted: Mutex::new(None),
            starts_rest_until: Mutex::new(None),
        }
    }

    /// The name under which it is remembered: `host[:port][/path]`.
    pub(crate) fn name(&self) -> String {
        format!("{}{}", self.authority, self.prefix)
    }

    /// Leaves this mirror out for a while.
    pub(crate) fn rest(&self) {
        *self.resting_until.lock() = Some(Instant::now() + MIRROR_REST);
    }

    /// Whether this mirror is left out now.
    pub(crate) fn is_resting(&self) -> bool {
        is_yet_to_come(&self.resting_until)
    }

    /// The server says that it answers starts in advance. Whether it is time to look if that is remembered: a file says so, which
    /// is too much to read for each answer.
    pub(crate) fn is_native_due(&self) -> bool {
        let mut noted = self.native_noted.lock();
        let is_due = noted.is_none_or(|noted| noted.elapsed() >= NATIVE_NOTED);
        if is_due {
            *noted = Some(Instant::now());
        }
        is_due
    }

    /// Sends no start requests for this long.
    pub(crate) fn rest_starts(&self, time: Duration) {
        *self.starts_rest_until.lock() = Some(Instant::now() + time);
        // What is remembered may have changed.
        *self.native_noted.lock() = None;
    }

    /// Whether it is too early for a start request.
    pub(crate) fn do_starts_rest(&self) -> bool {
        is_yet_to_come(&self.starts_rest_until)
    }
}

fn is_yet_to_come(until: &Mutex<Option<Instant>>) -> bool {
    until.lock().is_some_and(|until| until > Instant::now())
}

/// One server, and the registry for which it answers.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) server: Arc<Server>,
    /// The registry that it mirrors; `None` if it is the registry itself.
    pub(crate) mirror_of: Option<String>,
}

/// All servers that were spoken to.
#[derive(Debug)]
pub(crate) struct Servers {
    known: Mutex<HashMap<String, Arc<Server>>>,
    mirrors: HashMap<String, Vec<(String, Mirror)>>,
    plain_http: Vec<String>,
    budget: Budget,
}

impl Servers {
    pub(crate) fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        let servers = Self {
            known: Mutex::default(),
            mirrors: HashMap::new(),
            plain_http: config.plain_http.clone(),
            budget: config.budget.clone(),
        };
        let mut mirrors = HashMap::<_, Vec<_>>::new();
        // By name, so that the mirrors of one registry by several names always come in the same order.
        for (registry, list) in config.mirrors.iter().collect::<BTreeMap<_, _>>() {
            // References have it in lower case.
            let name = registry_name(registry).to_ascii_lowercase();
            let places = mirrors.entry(name).or_default();
            for mirror in list {
                places.push((servers.add_mirror(mirror)?, mirror.clone()));
            }
        }
        Ok(Self { mirrors, ..servers })
    }

    /// Checks a mirror's URL and gives the key under which its server is known.
    fn add_mirror(&self, mirror: &Mirror) -> Result<String, ClientError> {
        let refuse =
            || ClientError::Config(format!("mirror {:?} is not a host or an http(s) URL", mirror.url));
        let with_scheme = mirror.url.contains("://");
        let text = if with_scheme {
            mirror.url.clone()
        } else {
            format!("https://{}", mirror.url)
        };
        let url: Url = text.parse().map_err(|_| refuse())?;
        if url.host_str().is_none() || url.query().is_some() || !url.username().is_empty() {
            return Err(refuse());
        }
        let scheme = match url.scheme() {
            _ if !with_scheme => None,
            "http" => Some("http"),
            "https" => Some("https"),
            _ => return Err(refuse()),
        };
        let authority = super::authority::authority(&url);
        let prefix = url.path().trim_end_matches('/');
        let key = format!("{}://{authority}{prefix}", scheme.unwrap_or_default());
        let scheme = scheme.or_else(|| self.allows_plain_http(&authority).then_some("http"));
        let server = Arc::new(Server::new(&authority, prefix, scheme, &self.budget));
        self.known.lock().insert(key.clone(), server);
        Ok(key)
    }

    /// Whether the user said that this host may be spoken to without TLS.
    pub(crate) fn allows_plain_http(&self, authority: &str) -> bool {
        let mut listed = self.plain_http.iter();
        listed.any(|host| host.eq_ignore_ascii_case(authority))
    }

    /// The server of the registry `name` (`host[:port]`).
    pub(crate) fn registry(&self, name: &str) -> Arc<Server> {
        let mut known = self.known.lock();
        if let Some(server) = known.get(name) {
            return server.clone();
        }
        // Docker Hub is named by one host and answers at another.
        let authority = match registry_name(name) {
            DOCKER_HUB => DOCKER_HUB_SERVER,
            name => name,
        };
        let scheme = self.allows_plain_http(name).then_some("http");
        let server = Arc::new(Server::new(authority, "", scheme, &self.budget));
        known.insert(name.to_owned(), server.clone());
        server
    }

    /// Where content of the registry `name` may be read: mirrors in order, then the registry. Content that is not asked for by digest
    /// comes only from mirrors that are trusted with tags. Mirrors that rest are listed only `with_resting`.
    pub(crate) fn readable(&self, name: &str, by_digest: bool, with_resting: bool) -> Vec<Endpoint> {
        let mut endpoints = Vec::new();
        for (key, mirror) in self.mirrors.get(name).into_iter().flatten() {
            let server = self.known.lock().get(key).cloned();
            if let Some(server) = server.filter(|server| with_resting || !server.is_resting())
                && (by_digest || mirror.resolve_tags)
            {
                endpoints.push(Endpoint {
                    server,
                    mirror_of: Some(name.to_owned()),
                });
            }
        }
        endpoints.push(self.origin(name));
        endpoints
    }

    /// The registry itself.
    pub(crate) fn origin(&self, name: &str) -> Endpoint {
        Endpoint {
            server: self.registry(name),
            mirror_of: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use xebec_format::docker_hub::DOCKER_HUB_NAMES;

    use super::*;

    fn servers(urls: &[(&str, bool)]) -> Result<Servers, ClientError> {
        let list = urls
            .iter()
            .map(|(url, tags)| Mirror {
                url: (*url).to_owned(),
                resolve_tags: *tags,
            })
            .collect();
        Servers::new(&ClientConfig {
            mirrors: HashMap::from([("docker.io".to_owned(), list)]),
            ..ClientConfig::default()
        })
    }

    #[test]
    fn settings_name_hosts_in_upper_or_lower_case() {
        let mirror = Mirror {
            url: "Mirror.LAN:5000".to_owned(),
            resolve_tags: true,
        };
        let servers = Servers::new(&ClientConfig {
            mirrors: HashMap::from([("Registry.Example".to_owned(), vec![mirror])]),
            plain_http: vec!["Registry.Example".to_owned(), "MIRROR.lan:5000".to_owned()],
            ..ClientConfig::default()
        })
        .unwrap();
        let places = servers.readable("registry.example", true, false);
        let names: Vec<&str> = places
            .iter()
            .map(|place| place.server.authority.as_str())
            .collect();
        assert_eq!(names, ["mirror.lan:5000", "registry.example"]);
        for name in names {
            assert!(servers.allows_plain_http(name), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn mirrors_come_first_and_rest_when_they_fail() {
        let servers = servers(&[("https://m.example/hub/", false), ("[::1]:5000", true)]).unwrap();
        let names = |by_digest| {
            let places = servers.readable("docker.io", by_digest, false);
            places
                .iter()
                .map(|e| format!("{}{}", e.server.authority, e.server.prefix))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(true),
            ["m.example/hub", "[::1]:5000", "registry-1.docker.io"]
        );
        assert_eq!(names(false), ["[::1]:5000", "registry-1.docker.io"]);
        servers.readable("docker.io", true, false)[0].server.rest();
        assert_eq!(names(true), ["[::1]:5000", "registry-1.docker.io"]);
        // When nobody else has an answer, even one that rests is asked.
        assert_eq!(servers.readable("docker.io", true, true).len(), 3);
        tokio::time::advance(MIRROR_REST).await;
        assert_eq!(names(true).len(), 3);
        assert_eq!(servers.readable("ghcr.io", true, false).len(), 1);
    }

    #[test]
    fn docker_hub_has_the_mirrors_of_all_its_names() {
        let mirror = |host: String| Mirror {
            url: host,
            resolve_tags: true,
        };
        let mirrors = DOCKER_HUB_NAMES.map(|name| (name.to_owned(), vec![mirror(format!("{name}.example"))]));
        let servers = Servers::new(&ClientConfig {
            mirrors: HashMap::from(mirrors),
            ..ClientConfig::default()
        });
        let places = servers.unwrap().readable("docker.io", true, false);
        let names: Vec<&str> = places
            .iter()
            .map(|place| place.server.authority.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "docker.io.example",
                "index.docker.io.example",
                "registry-1.docker.io.example",
                "registry.hub.docker.com.example",
                "registry-1.docker.io"
            ]
        );
    }

    #[test]
    fn refuses_mirrors_that_are_no_url() {
        for url in ["", "ftp://x", "https://", "https://u@h/", "https://h/?q=1", "a b"] {
            assert!(servers(&[(url, false)]).is_err(), "{url}");
        }
    }
}
