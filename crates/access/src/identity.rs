//! The caller of a request.

use crate::action::Actions;
use crate::scope::Scope;

/// How somebody was recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recognized {
    /// Not at all.
    Anonymous,
    /// By a password of the htpasswd file.
    Password,
    /// By a token of this registry's own token endpoint.
    OwnToken,
    /// By a token of the configured token service.
    TokenService,
    /// By a token of an OIDC issuer.
    Oidc,
}

impl Recognized {
    /// The name in audit logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Password => "password",
            Self::OwnToken => "own-token",
            Self::TokenService => "token-service",
            Self::Oidc => "oidc",
        }
    }
}

/// The identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's name in the htpasswd file, or `ISSUER:SUBJECT` by the issuer's name in the configuration. Only the latter
    /// has a colon, so that no issuer can give out somebody else's name. Empty if anonymous.
    pub name: String,
    /// How this is known.
    pub recognized: Recognized,
    /// The groups that the configuration puts them in.
    pub groups: Vec<String>,
}

impl Identity {
    /// Nobody in particular.
    pub fn anonymous() -> Self {
        Self {
            name: String::new(),
            recognized: Recognized::Anonymous,
            groups: Vec::new(),
        }
    }

    /// Whether nobody in particular asks.
    pub fn is_anonymous(&self) -> bool {
        self.recognized == Recognized::Anonymous
    }
}

/// The caller of a request, and what the token of the request allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name; none for somebody who did not log in.
    pub name: Option<String>,
    /// The caller's identity.
    pub identity: Identity,
    /// The rights that the token grants. Without a token that names rights, the rules alone decide.
    pub granted: Option<Vec<Scope>>,
}

impl Default for Caller {
    fn default() -> Self {
        Self::new(Identity::anonymous(), None)
    }
}

impl Caller {
    /// Somebody, with what a token grants them.
    pub fn new(identity: Identity, granted: Option<Vec<Scope>>) -> Self {
        Self {
            name: (!identity.is_anonymous()).then(|| identity.name.clone()),
            identity,
            granted,
        }
    }

    /// The actions that the token grants on a repository.
    pub(super) fn granted_on(&self, repository: &str) -> Actions {
        let Some(scopes) = &self.granted else {
            return Actions::ALL;
        };
        let mut all = Actions::NONE;
        for scope in scopes {
            if let Scope::Repository { name, actions } = scope
                && name == repository
            {
                all = all.and(*actions);
            }
        }
        all
    }

    /// Whether the token grants the list of all repositories.
    pub(super) fn granted_catalog(&self) -> bool {
        self.granted
            .as_ref()
            .is_none_or(|scopes| scopes.contains(&Scope::Catalog))
    }
}
