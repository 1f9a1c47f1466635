//! Recognizes who sends a request, and decides whether it may be carried out.
//!
//! Rights are asked before anything else is looked at, and the answer to somebody without rights is the same whether the repository
//! exists or not.

mod recognition;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;

use crate::action::{Action, Actions, Need};
use crate::challenge::{Challenge, TokenFault};
use crate::credentials::CredentialsError;
use crate::identity::{Caller, Identity, Recognized};
use crate::jwks::{KeySource, KeysError, Location};
use crate::login::{Logins, LoginsError};
use crate::oidc::Issuer;
use crate::outgoing::{self, OutgoingError};
use crate::own_tokens::OwnTokens;
use crate::places::Places;
use crate::realm;
use crate::refusal::{Observer, Refusal};
use crate::rights::Rights;
use crate::scope::Scope;
use crate::settings::{AuthSettings, ChallengeSettings, KeysSettings};
use crate::token::{Expected, TokenError};
use crate::token_key::{KeyError, TokenKey};

/// When a client that cannot be recognized now shall come again, in seconds.
const RETRY_AFTER: u64 = 5;

/// The other end of the connection that a request came by. The server puts it into the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Why there is no guard.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The users.
    #[error(transparent)]
    Logins(#[from] LoginsError),
    /// The key of own tokens.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Addresses and authorities.
    #[error("the keys of an issuer of tokens: {0}")]
    Outgoing(#[from] OutgoingError),
    /// Settings that do not fit together.
    #[error("the configuration: {0}")]
    Settings(String),
}

/// Decides on requests.
#[derive(Clone)]
pub struct Guard {
    inner: Arc<Inner>,
    observer: Option<Arc<dyn Observer>>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) settings: AuthSettings,
    rights: Rights,
    pub(super) logins: Option<Logins>,
    pub(super) own: Option<OwnTokens>,
    /// None where nothing is hidden from anybody.
    pub(super) places: Option<Places>,
    service: Option<Service>,
    issuers: Vec<Issuer>,
    /// Whether clients reach this server by TLS, as far as the server itself knows.
    tls: bool,
}

#[derive(Debug)]
struct Service {
    realm: String,
    name: String,
    expected: Expected,
    keys: Arc<KeySource>,
}

/// Why somebody is not recognized.
#[derive(Debug)]
pub(super) enum Unrecognized {
    Credentials(CredentialsError),
    Password,
    Token(TokenError),
    Gone,
    Keys(KeysError),
    Busy,
}

impl Default for Guard {
    fn default() -> Self {
        Self::open()
    }
}

impl Guard {
    /// One that lets everybody do everything.
    pub fn open() -> Self {
        Self::of(Inner {
            settings: AuthSettings::default(),
            rights: Rights::open(),
            logins: None,
            own: None,
            places: None,
            service: None,
            issuers: Vec::new(),
            tls: false,
        })
    }

    /// One by these settings. `root` is where the key of own tokens is kept, `tls` whether the server speaks TLS itself.
    ///
    /// # Errors
    /// See [`GuardError`]. An issuer whose keys are away is none: tokens of it are refused until they are there.
    pub fn new(settings: AuthSettings, root: &Path, tls: bool) -> Result<Self, GuardError> {
        if let Some(problem) = settings.problems().into_iter().next() {
            return Err(GuardError::Settings(problem));
        }
        let logins = settings.htpasswd.as_deref().map(Logins::open).transpose()?;
        let key: PathBuf = settings
            .token
            .key_file
            .clone()
            .unwrap_or_else(|| root.join("token-key.pem"));
        let key = TokenKey::open(&key)?;
        let places = Places::by(key.secret()).map_err(|_| KeyError::NoRandomness)?;
        // With the token service of somebody else, nobody is sent to the built-in endpoint; yet passwords may be used there.
        let gives_tokens = logins.is_some() || !settings.oidc.is_empty() || settings.anonymous_pull;
        let own = gives_tokens.then(|| OwnTokens::by(key));
        let service = settings
            .token_service
            .as_ref()
            .map(|service| -> Result<Service, GuardError> {
                Ok(Service {
                    realm: service.realm.clone(),
                    name: service.service.clone(),
                    expected: Expected {
                        issuer: service.issuer.clone(),
                        audiences: vec![service.service.clone()],
                        leeway: service.leeway.0.as_secs(),
                    },
                    keys: source(&service.keys, &service.issuer)?,
                })
            });
        let service = service.transpose()?;
        let mut issuers = Vec::new();
        for issuer in &settings.oidc {
            issuers.push(Issuer::new(issuer, source(&issuer.keys, &issuer.issuer)?));
        }
        Ok(Self::of(Inner {
            rights: settings.rights(),
            settings,
            logins,
            own,
            places: Some(places),
            service,
            issuers,
            tls,
        }))
    }

    fn of(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
            observer: None,
        }
    }

    /// The same, with somebody who is told of each refusal.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }

    /// The caller, if they may do all of `needs`. Without any needs, whether the caller need not log in first.
    ///
    /// # Errors
    /// The refusal to answer with.
    pub async fn check(&self, parts: &Parts, needs: &[Need]) -> Result<Caller, Refusal> {
        let checked = self.decide(parts, needs).await;
        if let (Err(refusal), Some(observer)) = (&checked, &self.observer) {
            observer.refused(parts, needs, refusal);
        }
        checked
    }

    async fn decide(&self, parts: &Parts, needs: &[Need]) -> Result<Caller, Refusal> {
        let inner = self.inner();
        let shown = parts.headers.contains_key(AUTHORIZATION);
        let caller = match inner.recognize(parts).await {
            Ok(caller) => caller,
            Err(reason) => return Err(inner.unrecognized(parts, needs, reason)),
        };
        if inner.depends_on_who_asks(needs) && !shown && inner.asks_for_a_login() {
            let challenge = inner.challenge(parts).header(needs, None);
            let detail = "log in, or ask for an anonymous token".to_owned();
            return Err(Refusal::Unauthorized { challenge, detail });
        }
        for need in needs {
            if !self.may(&caller, need) {
                return Err(inner.refusal(parts, needs, &caller, need));
            }
        }
        Ok(caller)
    }

    /// Whether the caller may do this: for what a request can do without, such as taking over a blob from another repository.
    pub fn may(&self, caller: &Caller, need: &Need) -> bool {
        let inner = self.inner();
        match need.action {
            Action::Administer => caller.granted.is_none() && inner.rights.administers(&caller.identity),
            Action::Catalog => caller.granted_catalog() && inner.allows_catalog(&caller.identity),
            Action::Pull | Action::Push | Action::Delete => {
                let allowed = inner.allowed_on(&need.repository, &caller.identity);
                allowed
                    .within(caller.granted_on(&need.repository))
                    .contain(need.action.into())
            }
        }
    }

    /// The visitor of a page, who sees what they may see. If nobody sees anything without a login, this refuses visitors who have not
    /// logged in.
    ///
    /// # Errors
    /// The refusal to answer with.
    pub async fn visitor(&self, parts: &Parts) -> Result<Caller, Refusal> {
        let inner = self.inner();
        let caller = match inner.recognize(parts).await {
            Ok(caller) => caller,
            Err(reason) => return Err(inner.unrecognized(parts, &[], reason)),
        };
        let is_closed = inner.settings.recognizes_anybody() && !inner.rights.anybody_may_read();
        if caller.identity.is_anonymous() && is_closed {
            let challenge = inner.challenge(parts).header(&[], None);
            let detail = "this registry shows nothing without a login".to_owned();
            return Err(Refusal::Unauthorized { challenge, detail });
        }
        Ok(caller)
    }

    /// How browsers are told to log in, which know no tokens: by name and password. `None` where nobody has a password.
    pub fn challenge_for_browsers(&self) -> Option<String> {
        let inner = self.inner();
        let has_passwords = inner.logins.is_some() || !inner.issuers.is_empty();
        has_passwords.then(|| realm::by_password(&inner.settings).header(&[], None))
    }

    /// How passwords turned out so far; `None` where nobody has one.
    pub fn logins(&self) -> Option<[(&'static str, u64); 3]> {
        self.inner().logins.as_ref().map(Logins::outcomes)
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }
}

/// Where the keys of an issuer come from, by its settings.
fn source(settings: &KeysSettings, issuer: &str) -> Result<Arc<KeySource>, OutgoingError> {
    let location = match (&settings.file, &settings.url) {
        (Some(file), _) => Location::File(file.clone()),
        (None, Some(url)) => Location::Address(outgoing::address(url)?),
        (None, None) => Location::Issuer(issuer.to_owned()),
    };
    let client = outgoing::client(settings.ca_file.as_deref(), outgoing::Redirects::SameHost)?;
    Ok(KeySource::new(
        location,
        client,
        settings.token_file.clone(),
        settings.keep.0,
    ))
}

impl Inner {
    /// The actions that somebody may take on a repository, whatever their token says.
    pub(super) fn allowed_on(&self, repository: &str, identity: &Identity) -> Actions {
        match identity.recognized {
            // The service decides what its tokens grant.
            Recognized::TokenService => Actions::ALL,
            _ => self.rights.on(repository, identity),
        }
    }

    fn allows_catalog(&self, identity: &Identity) -> bool {
        identity.recognized == Recognized::TokenService || self.rights.may_list(identity)
    }

    /// The part of `asked` that somebody may have.
    pub(super) fn cut_down(&self, identity: &Identity, asked: Vec<Scope>) -> Vec<Scope> {
        let granted = asked.into_iter().filter_map(|scope| match scope {
            Scope::Repository { name, actions } => {
                let actions = actions.within(self.allowed_on(&name, identity));
                (!actions.is_empty()).then_some(Scope::Repository { name, actions })
            }
            Scope::Catalog => self.allows_catalog(identity).then_some(Scope::Catalog),
            Scope::Unknown => None,
        });
        granted.collect()
    }

    /// Whether a request that needs nothing in particular is answered by a challenge: clients ask first how to log in.
    fn asks_for_a_login(&self) -> bool {
        let by_token = self.service.is_some() || self.settings.challenge == ChallengeSettings::Bearer;
        let recognizes = self.settings.recognizes_anybody();
        // Docker sends no request without a password once it was told to log in by one, so that nobody could read anonymously.
        recognizes && (by_token || !self.rights.anybody_may_read())
    }

    fn challenge(&self, parts: &Parts) -> Challenge {
        if let Some(service) = &self.service {
            return Challenge::Bearer {
                realm: service.realm.clone(),
                service: service.name.clone(),
            };
        }
        realm::own(&self.settings, self.own.is_some(), self.tls, parts)
    }

    fn unrecognized(&self, parts: &Parts, needs: &[Need], reason: Unrecognized) -> Refusal {
        let (detail, fault) = match reason {
            Unrecognized::Keys(error) => {
                tracing::error!(%error, "a token cannot be verified");
                let detail = "the keys of the token's issuer are away, so that the token cannot be verified; try again".to_owned();
                return Refusal::Unavailable {
                    detail,
                    retry_after: RETRY_AFTER,
                };
            }
            Unrecognized::Busy => {
                let detail = "too many logins wait at this moment; try again".to_owned();
                return Refusal::Unavailable {
                    detail,
                    retry_after: RETRY_AFTER,
                };
            }
            Unrecognized::Credentials(error) => (error.to_string(), None),
            Unrecognized::Password => ("the name or the password is wrong; log in again".to_owned(), None),
            Unrecognized::Token(error) => (error.to_string(), Some(TokenFault::Invalid)),
            Unrecognized::Gone => (
                "the token's user is no more; log in as another".to_owned(),
                Some(TokenFault::Invalid),
            ),
        };
        let challenge = self.challenge(parts).header(needs, fault);
        Refusal::Unauthorized { challenge, detail }
    }

    fn refusal(&self, parts: &Parts, needs: &[Need], caller: &Caller, need: &Need) -> Refusal {
        let identity = &caller.identity;
        let by_rules = match need.action {
            Action::Catalog => self.allows_catalog(identity),
            Action::Administer => false,
            action => self.allowed_on(&need.repository, identity).contain(action.into()),
        };
        let (action, repository) = (need.action.name(), &need.repository);
        let what = if repository.is_empty() {
            action.to_owned()
        } else {
            format!("{action} in {repository:?}")
        };
        if identity.is_anonymous() || by_rules {
            let fault = caller.granted.is_some().then_some(TokenFault::InsufficientScope);
            let challenge = self.challenge(parts).header(needs, fault);
            let detail = match caller.granted {
                Some(_) => format!("the token is not for {what}; log in again"),
                None => format!("{what} needs a login"),
            };
            return Refusal::Unauthorized { challenge, detail };
        }
        let name = &identity.name;
        let detail = format!(
            "{name:?} has no right to {what}; whoever administers the registry can give it by a rule"
        );
        Refusal::Denied { detail }
    }
}
