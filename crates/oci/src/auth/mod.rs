//! Logs in to registries: anonymous or named tokens, or a password with each request.
//!
//! The first answer with status 401 says what a registry wants; from then on requests carry the proof from the
//! start. Tokens are kept by registry and scope. One that has used up four fifths of its life is renewed in
//! the background while it is still sent; one that has ended is renewed by a single call while the others
//! wait. Credentials are looked up again for each renewal, so that what a helper hands out for some hours
//! never ends unnoticed; between renewals they are kept for some minutes at most.

mod challenge;
mod scope;
mod token_server;
pub(crate) mod tokens;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

pub use challenge::{Challenge, parse_challenges};
pub(crate) use scope::Scope;

use crate::client::call_options::Wait;
use crate::client::stats::Counters;
use crate::config::Budget;
use crate::credentials::{Credential, CredentialStore, SentLogin, basic_header};
use crate::error::Fault;
use crate::transport::http::Pools;
use crate::transport::names::NAMER;
use crate::transport::reach::Reach;
use crate::transport::registry::Server;
use tokens::{Freshness, Slot, Token, TokenKey, Tokens};

/// How long a password is kept before its helper is asked again.
const BASIC_LIFE: Duration = Duration::from_secs(300);

/// Repositories of which it is remembered which login they were sent, with some hundred bytes each.
const MAX_SENT: usize = 4096;

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

    /// An authenticator without credentials that may speak to `plain.example` without TLS.
    pub(super) fn authenticator() -> Authenticator {
        let config = crate::ClientConfig::default();
        let pools = Arc::new(Pools::new(&config).unwrap());
        let nothing = std::path::Path::new("/nonexistent");
        let store = CredentialStore::new(Some(nothing), None, Duration::from_secs(1));
        let plain = ["plain.example", "plain.example:5000"].map(str::to_owned);
        Authenticator::new(pools, config.budget, plain.to_vec(), store, config.settings_file)
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
