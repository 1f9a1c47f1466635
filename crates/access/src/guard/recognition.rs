//! Recognizes a caller by a password, a token of this registry, or one of another issuer.

use std::sync::Arc;

use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use serde_json::Value;

use super::{Inner, Peer, Unrecognized};
use crate::credentials::{Credentials, CredentialsError};
use crate::htpasswd::OIDC_USER;
use crate::identity::{Caller, Identity, Recognized};
use crate::jwks::KeySource;
use crate::login::Verdict;
use crate::oidc::Issuer;
use crate::own_tokens::{self, OwnTokens};
use crate::scope;
use crate::token::{self, Claims, Expected, TokenError, Unverified};

impl Inner {
    pub(super) async fn recognize(&self, parts: &Parts) -> Result<Caller, Unrecognized> {
        let mut values = parts.headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else {
            return Ok(Caller::default());
        };
        if values.next().is_some() {
            return Err(Unrecognized::Credentials(CredentialsError::Damaged));
        }
        // A registry that recognizes nobody lets everybody do everything. Clients may send what they have for others.
        if self.logins.is_none() && self.own.is_none() && self.service.is_none() {
            return Ok(Caller::default());
        }
        match Credentials::parse(value.as_bytes()).map_err(Unrecognized::Credentials)? {
            Credentials::Password { name, password } => {
                let identity = self.by_password(parts, &name, &password).await?;
                Ok(Caller::new(identity, None))
            }
            Credentials::Bearer(token) => self.by_token(&token).await,
        }
    }

    /// The user that a name and a password belong to, or a name that says that the password is a token.
    pub(crate) async fn by_password(
        &self,
        parts: &Parts,
        name: &str,
        password: &str,
    ) -> Result<Identity, Unrecognized> {
        if name == OIDC_USER {
            return self.by_oidc(password).await;
        }
        let Some(logins) = &self.logins else {
            return Err(Unrecognized::Password);
        };
        let from = parts.extensions.get::<Peer>().map(|peer| peer.0.ip());
        match logins.verify(from, name, password).await {
            Verdict::Right => Ok(self.user(name, Recognized::Password)),
            Verdict::Wrong => Err(Unrecognized::Password),
            Verdict::Busy => Err(Unrecognized::Busy),
        }
    }

    /// A user of the htpasswd file.
    pub(crate) fn user(&self, name: &str, recognized: Recognized) -> Identity {
        Identity {
            name: name.to_owned(),
            recognized,
            groups: self.settings.groups_of(name),
        }
    }

    async fn by_token(&self, token: &str) -> Result<Caller, Unrecognized> {
        let unverified = Unverified::read(token).map_err(Unrecognized::Token)?;
        match (&self.own, &self.service, unverified.issuer.as_deref()) {
            (Some(own), _, Some(own_tokens::ISSUER)) => self.by_own_token(own, token),
            (_, Some(service), Some(issuer)) if issuer == service.expected.issuer => {
                let claims = verified(token, &unverified, &service.keys, &service.expected).await?;
                let name = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
                let identity = Identity {
                    name: if name.is_empty() {
                        String::new()
                    } else {
                        format!("token:{name}")
                    },
                    recognized: Recognized::TokenService,
                    groups: Vec::new(),
                };
                Ok(Caller::new(
                    identity,
                    Some(scope::granted(&claims).unwrap_or_default()),
                ))
            }
            _ => Ok(Caller::new(self.by_oidc(token).await?, None)),
        }
    }

    fn by_own_token(&self, own: &OwnTokens, token: &str) -> Result<Caller, Unrecognized> {
        let (mut identity, granted) = own.read_access(token).map_err(Unrecognized::Token)?;
        // Only a user of the file has no colon in the name. A user who was removed from it has no rights, and groups are those of now.
        if !identity.is_anonymous() && !identity.name.contains(':') {
            if !self
                .logins
                .as_ref()
                .is_some_and(|logins| logins.knows(&identity.name))
            {
                return Err(Unrecognized::Gone);
            }
            identity.groups = self.settings.groups_of(&identity.name);
        }
        Ok(Caller::new(identity, Some(granted)))
    }

    /// The user that a token of an OIDC issuer belongs to.
    pub(crate) async fn by_oidc(&self, token: &str) -> Result<Identity, Unrecognized> {
        let unverified = Unverified::read(token).map_err(Unrecognized::Token)?;
        let of_it = |issuer: &&Issuer| unverified.issuer.as_deref() == Some(&issuer.expected.issuer);
        let Some(issuer) = self.issuers.iter().find(of_it) else {
            return Err(Unrecognized::Token(TokenError::Issuer));
        };
        let claims = verified(token, &unverified, &issuer.keys, &issuer.expected).await?;
        issuer.identity(&claims).map_err(Unrecognized::Token)
    }
}

/// The claims of a token, by the keys of its issuer.
async fn verified(
    token: &str,
    unverified: &Unverified,
    keys: &Arc<KeySource>,
    expected: &Expected,
) -> Result<Claims, Unrecognized> {
    let keys = keys
        .keys(unverified.kid.as_deref())
        .await
        .map_err(Unrecognized::Keys)?;
    token::verify(token, &keys, expected).map_err(Unrecognized::Token)
}
