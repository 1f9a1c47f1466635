//! Logs in to registries: anonymous or named tokens, or a password with each request.
//!
//! The first answer with status 401 says what a registry wants; from then on requests carry the proof from the
//! start. Tokens are kept by registry and scope. One that has used up four fifths of its life is renewed in
//! the background while it is still sent; one that has ended is renewed by a single call while the others
//! wait. Credentials are looked up again for each renewal, so that what a helper hands out for some hours
//! never ends unnoticed; between renewals they are kept for some minutes at most.

mod challenge;
pub(crate) mod tokens;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use tokio::time::Instant;

pub use challenge::{Challenge, parse_challenges};

use crate::client::call_options::Wait;
use crate::client::stats::Counters;
use crate::config::{Budget, is_loopback};
use crate::credentials::{Credential, CredentialStore, SentLogin, basic_header};
use crate::error::Fault;
use crate::transport::authority::authority;
use crate::transport::http::{Pools, execute};
use crate::transport::names::NAMER;
use crate::transport::reach::{Reach, Way};
use crate::transport::registry::Server;
use tokens::{Freshness, Slot, Token, TokenKey, Tokens};

/// Largest answer of an authorization server.
const MAX_TOKEN_ANSWER: u64 = 256 << 10;
/// How long a password is kept before its helper is asked again.
const BASIC_LIFE: Duration = Duration::from_secs(300);

/// Repositories of which it is remembered which login they were sent, with some hundred bytes each.
const MAX_SENT: usize = 4096;

/// The rights that a request needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    /// The repository, or empty for the registry as a whole.
    pub(crate) repository: String,
    /// Whether it writes.
    pub(crate) push: bool,
    /// Another repository of the same registry that it reads.
    pub(crate) mount_from: Option<String>,
}

/// Stands for the list of all repositories where a repository's name stands.
const CATALOG: &str = "*";

impl Scope {
    pub(crate) fn pull(repository: &str) -> Self {
        Self {
            repository: repository.to_owned(),
            push: false,
            mount_from: None,
        }
    }

    pub(crate) fn push(repository: &str) -> Self {
        Self {
            repository: repository.to_owned(),
            push: true,
            mount_from: None,
        }
    }

    /// The list of all repositories. No repository has this name.
    pub(crate) fn catalog() -> Self {
        Self::pull(CATALOG)
    }

    /// As distribution's token specification writes them.
    fn texts(&self) -> Vec<String> {
        if self.repository == CATALOG {
            return vec!["registry:catalog:*".to_owned()];
        }
        let actions = if self.push { "pull,push" } else { "pull" };
        let own = (!self.repository.is_empty()).then(|| format!("repository:{}:{actions}", self.repository));
        let other = self
            .mount_from
            .as_ref()
            .map(|from| format!("repository:{from}:pull"));
        own.into_iter().chain(other).collect()
    }
}

/// Proofs for all registries.
#[derive(Debug, Clone)]
pub(crate) struct Authenticator(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    pools: Arc<Pools>,
    budget: Budget,
    plain_http: Vec<String>,
    store: CredentialStore,
    challenges: Mutex<HashMap<String, Challenge>>,
    tokens: Tokens,
    /// The login that was sent last, by authority and repository.
    sent: Mutex<HashMap<(String, String), SentLogin>>,
    settings_file: PathBuf,
}

/// Everything that a renewal needs to know.
#[derive(Debug, Clone)]
struct Renewal {
    registry: String,
    registry_is_plain: bool,
    /// How near the registry is.
    reach: Reach,
    challenge: Challenge,
    scope: Scope,
    counters: Counters,
}

impl Authenticator {
    pub(crate) fn new(
        pools: Arc<Pools>,
        budget: Budget,
        plain_http: Vec<String>,
        store: CredentialStore,
        settings_file: PathBuf,
    ) -> Self {
        let (challenges, tokens, sent) = Default::default();
        Self(Arc::new(Inner {
            pools,
            budget,
            plain_http,
            store,
            challenges,
            tokens,
            sent,
            settings_file,
        }))
    }

    /// The login that `server` was last sent for this repository.
    pub(crate) fn sent(&self, server: &Server, repository: &str) -> SentLogin {
        let sent = self.0.sent.lock();
        let key = (server.authority.clone(), repository.to_owned());
        sent.get(&key).cloned().unwrap_or_default()
    }

    fn note_sent(&self, renewal: &Renewal, login: SentLogin) {
        let mut sent = self.0.sent.lock();
        if sent.len() >= MAX_SENT {
            sent.clear();
        }
        sent.insert(
            (renewal.registry.clone(), renewal.scope.repository.clone()),
            login,
        );
    }

    /// The kind of proof that `server` is known to want.
    pub(crate) fn challenge(&self, server: &Server) -> Option<Challenge> {
        let challenges = self.0.challenges.lock();
        challenges.get(&server.authority).cloned()
    }

    /// Notes what `server` said in an answer with status 401.
    pub(crate) fn learn(&self, server: &Server, challenge: Challenge) {
        let mut challenges = self.0.challenges.lock();
        challenges.insert(server.authority.clone(), challenge);
    }

    /// Forgets all proofs: credentials are looked up again for the next request.
    pub(crate) fn forget(&self) {
        self.0.tokens.clear();
    }

    /// Forgets a proof that was refused.
    pub(crate) fn refuse(&self, server: &Server, scope: &Scope, header: &str) {
        self.0.tokens.slot(&key(server, scope)).forget(header);
    }

    /// The `Authorization` header for a request; `None` if the registry is not known to want one, or there are no credentials.
    ///
    /// # Errors
    /// If credentials or a token are needed and cannot be got.
    pub(crate) async fn header(
        &self,
        server: &Server,
        scope: &Scope,
        counters: &Counters,
    ) -> Result<Option<String>, Fault> {
        let Some(challenge) = self.challenge(server) else {
            return Ok(None);
        };
        let renewal = Renewal {
            registry: server.authority.clone(),
            registry_is_plain: server.scheme.get() == Some(&"http"),
            reach: server.reach.get(),
            challenge,
            scope: scope.clone(),
            counters: counters.unobserved(),
        };
        let slot = self.0.tokens.slot(&key(server, scope));
        if let Some(token) = slot.get() {
            match token.freshness() {
                Freshness::Fresh => return Ok(Some(token.header)),
                Freshness::Aging => {
                    self.renew_in_background(slot, renewal);
                    return Ok(Some(token.header));
                }
                Freshness::Ended => {}
            }
        }
        counters.waits(Wait::Token);
        let _single = slot.renewal.lock().await;
        // Another call may have renewed it while this one waited.
        if let Some(token) = slot.get().filter(|token| token.freshness() != Freshness::Ended) {
            return Ok(Some(token.header));
        }
        let token = self.renew(&renewal).await?;
        if let Some(token) = &token {
            slot.put(token.clone());
        }
        Ok(token.map(|token| token.header))
    }

    fn renew_in_background(&self, slot: Arc<Slot>, renewal: Renewal) {
        if slot.renewal.try_lock().is_err() {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            let Ok(_single) = slot.renewal.try_lock() else {
                return;
            };
            let registry = renewal.registry.as_str().into();
            match NAMER.scope(registry, this.renew(&renewal)).await {
                Ok(Some(token)) => slot.put(token),
                Ok(None) => {}
                Err(fault) => {
                    tracing::warn!(registry = renewal.registry, %fault, "cannot renew a token before it ends");
                }
            }
        });
    }

    async fn renew(&self, renewal: &Renewal) -> Result<Option<Token>, Fault> {
        let found = self
            .0
            .store
            .find(&renewal.registry, &renewal.scope.repository)
            .await;
        // An error says more than the note of the login that was sent before.
        self.note_sent(renewal, SentLogin::Unknown);
        let (sent, login) = match found {
            Ok(Some(login)) => (SentLogin::of(&login), Some(login)),
            Ok(None) => (self.0.store.nothing_sent(&renewal.registry), None),
            // Much can be read without a login. The registry refuses the rest, and the message about that names this file.
            Err(error) if error.is_of_a_file() => {
                tracing::info!(registry = renewal.registry, "asks without a login: {error}");
                (SentLogin::Damaged(error.to_string()), None)
            }
            Err(error) => return Err(Fault::Credentials(error.to_string())),
        };
        self.note_sent(renewal, sent);
        let credential = login.map(|login| login.credential);
        let asked = Instant::now();
        match (&renewal.challenge, credential) {
            (_, Some(Credential::RegistryToken(token))) => {
                Ok(Some(Token::lasting(format!("Bearer {token}"), asked, BASIC_LIFE)))
            }
            (Challenge::Basic, Some(Credential::Basic { username, password })) => Ok(Some(Token::lasting(
                basic_header(&username, &password),
                asked,
                BASIC_LIFE,
            ))),
            (Challenge::Basic, _) => Ok(None),
            (
                Challenge::Bearer {
                    realm,
                    service,
                    scope,
                },
                credential,
            ) => {
                let request =
                    self.token_request(renewal, realm, service.as_deref(), scope.as_deref(), credential)?;
                self.fetch_token(request, renewal).await.map(Some)
            }
        }
    }

    /// The request for a token: POST with a refresh token, GET otherwise (distribution's "token" and "oauth").
    fn token_request(
        &self,
        renewal: &Renewal,
        realm: &str,
        service: Option<&str>,
        asked_scope: Option<&str>,
        credential: Option<Credential>,
    ) -> Result<reqwest::Request, Fault> {
        let mut url: Url = realm
            .parse()
            .map_err(|_| Fault::Protocol(format!("the registry names {realm:?} as its token server")))?;
        self.check_realm(&url, renewal)?;
        let mut scopes = renewal.scope.texts();
        if scopes.is_empty() {
            scopes.extend(asked_scope.map(str::to_owned));
        }
        if let Some(Credential::IdentityToken(refresh_token)) = credential {
            let joined = scopes.join(" ");
            let form = [
                ("grant_type", "refresh_token"),
                ("service", service.unwrap_or_default()),
                ("client_id", "xebec"),
                ("scope", &joined),
                ("refresh_token", &refresh_token),
            ];
            let mut request = reqwest::Request::new(reqwest::Method::POST, url.clone());
            // The query part of a URL is encoded exactly as a form is.
            let encoded = url
                .query_pairs_mut()
                .clear()
                .extend_pairs(form)
                .finish()
                .query()
                .unwrap_or_default()
                .to_owned();
            *request.body_mut() = Some(encoded.into());
            let form_type = reqwest::header::HeaderValue::from_static("application/x-www-form-urlencoded");
            request.headers_mut().insert(CONTENT_TYPE, form_type);
            return Ok(request);
        }
        {
            let mut query = url.query_pairs_mut();
            query.extend_pairs(service.map(|service| ("service", service)));
            query.extend_pairs(scopes.iter().map(|scope| ("scope", scope)));
        }
        let mut request = reqwest::Request::new(reqwest::Method::GET, url);
        if let Some(Credential::Basic { username, password }) = credential {
            let header = basic_header(&username, &password).parse();
            let header =
                header.map_err(|_| Fault::Credentials("they cannot be sent in a header".to_owned()))?;
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        Ok(request)
    }

    /// A registry with TLS must not make Xebec send a password in the clear; on the same host nobody listens.
    fn check_realm(&self, realm: &Url, renewal: &Renewal) -> Result<(), Fault> {
        let host = authority(realm);
        let is_within_host = renewal.reach == Reach::Host && is_loopback(&host);
        let mut listed = self.0.plain_http.iter();
        let is_listed = listed.any(|listed| listed.eq_ignore_ascii_case(&host));
        match realm.scheme() {
            "https" => Ok(()),
            "http" if renewal.registry_is_plain || is_within_host || is_listed => Ok(()),
            _ => Err(Fault::Protocol(format!(
                "the registry names the token server {host} without TLS; to allow that, list it under plain_http in {}",
                self.0.settings_file.display()
            ))),
        }
    }

    async fn fetch_token(&self, request: reqwest::Request, renewal: &Renewal) -> Result<Token, Fault> {
        let (host, counters) = (authority(request.url()), &renewal.counters);
        let asked = Instant::now();
        let way = match host == renewal.registry {
            true => Way::Named,
            false => Way::Told(renewal.reach),
        };
        let answer = execute(&self.0.pools, request, way, &self.0.budget, counters).await?;
        if !answer.status().is_success() {
            // A refusal of the token server is a matter of credentials, with each of these codes.
            return Err(match answer.into_fault().await {
                Fault::Status { code, message, .. } if matches!(code, 400 | 401 | 403) => Fault::Credentials(
                    format!("token server {host} refused with status {code} {message}"),
                ),
                fault => fault,
            });
        }
        let body = answer.body(MAX_TOKEN_ANSWER).await?;
        counters.token();
        Token::parse(&body, asked).map_err(|reason| Fault::Protocol(format!("token server {host}: {reason}")))
    }
}

fn key(server: &Server, scope: &Scope) -> TokenKey {
    TokenKey {
        authority: server.authority.clone(),
        scope: scope.texts().join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes() {
        assert_eq!(Scope::pull("a/b").texts(), ["repository:a/b:pull"]);
        let push = Scope {
            mount_from: Some("c".to_owned()),
            ..Scope::push("a/b")
        };
        assert_eq!(push.texts(), ["repository:a/b:pull,push", "repository:c:pull"]);
        assert!(Scope::pull("").texts().is_empty());
    }

    const REGISTRY: &str = "registry.example";

    /// An authenticator without credentials that may speak to `plain.example` without TLS.
    fn authenticator() -> Authenticator {
        let config = crate::ClientConfig::default();
        let pools = Arc::new(Pools::new(&config).unwrap());
        let nothing = std::path::Path::new("/nonexistent");
        let store = CredentialStore::new(Some(nothing), None, Duration::from_secs(1));
        let plain = ["plain.example", "plain.example:5000"].map(str::to_owned);
        Authenticator::new(pools, config.budget, plain.to_vec(), store, config.settings_file)
    }

    fn renewal(registry_is_plain: bool, reach: Reach) -> Renewal {
        Renewal {
            registry: REGISTRY.to_owned(),
            registry_is_plain,
            reach,
            challenge: Challenge::Basic,
            scope: Scope::pull("team/app"),
            counters: Counters::default(),
        }
    }

    /// The realm comes from the registry, and the password goes where it leads.
    #[test]
    fn a_password_goes_to_token_servers_with_tls_or_such_as_the_user_allows() {
        use Reach::{Host, Internet, Link, Private};
        let authenticator = authenticator();
        for (realm, is_plain, reach, host) in [
            // With TLS, wherever it is: registries have their token servers on other hosts.
            ("https://registry.example/token", false, Internet, Some(REGISTRY)),
            (
                "https://auth.example/token",
                false,
                Internet,
                Some("auth.example"),
            ),
            (
                "HTTPS://auth.example:444/token",
                false,
                Private,
                Some("auth.example:444"),
            ),
            // Without TLS, only for a registry that is spoken to without it ...
            ("http://registry.example/token", false, Internet, None),
            ("http://auth.example/token", false, Private, None),
            ("http://auth.example/token", false, Host, None),
            ("http://auth.example/token", true, Internet, Some("auth.example")),
            // ... or to a host on the list, named as it is there ...
            (
                "http://plain.example/token",
                false,
                Internet,
                Some("plain.example"),
            ),
            (
                "http://plain.example:5000/token",
                false,
                Internet,
                Some("plain.example:5000"),
            ),
            ("http://plain.example:5001/token", false, Internet, None),
            ("http://not-plain.example/token", false, Internet, None),
            ("http://plain.example.evil.example/token", false, Internet, None),
            // ... or within this host, if the registry is there, too.
            ("http://127.0.0.1:5000/token", false, Host, Some("127.0.0.1:5000")),
            ("http://localhost:5000/token", false, Host, Some("localhost:5000")),
            ("http://[::1]:5000/token", false, Host, Some("[::1]:5000")),
            ("http://127.0.0.1:5000/token", false, Link, None),
            ("http://127.0.0.1:5000/token", false, Private, None),
            ("http://localhost:5000/token", false, Internet, None),
            ("http://localhost.example/token", false, Host, None),
            // A user name, a path or a fragment that looks like a host is no host.
            ("http://plain.example@evil.example/token", false, Internet, None),
            (
                "http://plain.example:5000@evil.example/token",
                false,
                Internet,
                None,
            ),
            ("http://evil.example/plain.example", false, Internet, None),
            ("http://evil.example#@plain.example/token", false, Internet, None),
            ("http://127.0.0.1@evil.example/token", false, Host, None),
            (
                "https://registry.example@auth.example/token",
                false,
                Internet,
                Some("auth.example"),
            ),
            // Texts that are no URLs of the web.
            ("ftp://registry.example/token", true, Host, None),
            ("file:///etc/passwd", true, Host, None),
            ("//registry.example/token", true, Host, None),
            ("registry.example/token", true, Host, None),
            ("", true, Host, None),
        ] {
            let credential = || Credential::Basic {
                username: "user".to_owned(),
                password: "pass".to_owned(),
            };
            let renewal = renewal(is_plain, reach);
            for credential in [credential(), Credential::IdentityToken("refresh".to_owned())] {
                let request =
                    authenticator.token_request(&renewal, realm, Some("service"), None, Some(credential));
                let said = request.as_ref().err().map(ToString::to_string);
                let asked = request.ok().map(|request| authority(request.url()));
                assert_eq!(asked.as_deref(), host, "{realm} {is_plain} {reach}: {said:?}");
            }
        }
        let refused =
            authenticator.check_realm(&"http://auth.example/".parse().unwrap(), &renewal(false, Host));
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains("auth.example") && said.contains("plain_http"),
            "{said}"
        );
    }

    /// The old token is good for a while yet, so the request goes on with it while another is fetched.
    #[tokio::test]
    async fn an_aging_token_is_sent_while_another_is_fetched() {
        use xebec_testkit::registry::{Access, FaultyRegistry, Options};
        let registry = FaultyRegistry::with(Options {
            access: Access::anonymous_tokens(Duration::from_secs(300)),
            ..Options::default()
        });
        let registry = registry.unwrap();
        let authenticator = authenticator();
        let config = crate::ClientConfig {
            plain_http: vec![registry.host()],
            ..Default::default()
        };
        let server = crate::transport::registry::Servers::new(&config)
            .unwrap()
            .registry(&registry.host());
        authenticator.learn(
            &server,
            Challenge::Bearer {
                realm: format!("http://{}/token", registry.host()),
                service: None,
                scope: None,
            },
        );
        let scope = Scope::pull("team/app");
        let slot = authenticator.0.tokens.slot(&key(&server, &scope));
        let life = Duration::from_secs(1000);
        let asked = Instant::now().checked_sub(life.mul_f64(0.9)).unwrap();
        slot.put(Token::lasting("Bearer old".to_owned(), asked, life));
        let counters = Counters::default();
        let header = async || authenticator.header(&server, &scope, &counters).await.unwrap();
        // One renewal for all requests that come meanwhile.
        for _ in 0..3 {
            assert_eq!(header().await.as_deref(), Some("Bearer old"));
        }
        let renewed = tokio::time::timeout(Duration::from_secs(10), async {
            while slot.get().is_some_and(|token| token.header == "Bearer old") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        renewed.await.expect("nobody renews the token");
        assert_eq!(header().await.as_deref(), Some("Bearer token-1"));
        assert_eq!(registry.tokens_given(), 1);
    }
}
