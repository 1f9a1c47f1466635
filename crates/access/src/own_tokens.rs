//! The tokens that the registry gives out itself, signed by its key ([`super::token_key`]).
//!
//! An access token carries what was granted, for minutes. A refresh token carries who it is for, and a mark of the password that was
//! given for it: it counts no more once the password has changed or the user has gone.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde::Serialize;
use xebec_kernel::clock;

use crate::identity::{Identity, Recognized};
use crate::jwk::{Key, KeySet};
use crate::public_key::PublicKey;
use crate::scope::{AccessEntry, Scope};
use crate::token::{self, Claims, Expected, TokenError};
use crate::token_key::TokenKey;

/// The issuer in own tokens. No other token is taken for one: the key decides.
pub(super) const ISSUER: &str = "xebec-registry";

/// The audience of access tokens.
const FOR_ACCESS: &str = "xebec-registry";

/// The audience of refresh tokens, so that neither kind is taken for the other.
const FOR_REFRESH: &str = "xebec-registry/token";

/// How much the clocks of nodes that share a key may differ, in seconds.
const LEEWAY: u64 = 30;

/// Gives out and recognizes own tokens.
#[derive(Debug)]
pub(super) struct OwnTokens {
    signing: Ed25519KeyPair,
    name: String,
    keys: KeySet,
}

#[derive(Serialize)]
struct Written<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    iat: u64,
    nbf: u64,
    exp: u64,
    jti: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<Vec<AccessEntry>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<&'a str>,
}

impl OwnTokens {
    /// With this key.
    pub(super) fn by(key: TokenKey) -> Self {
        let public = PublicKey::Ed25519(key.signing.public_key().as_ref().to_vec());
        Self {
            name: public.thumbprint(),
            keys: KeySet::of(vec![Key::new(public, None)]),
            signing: key.signing,
        }
    }

    /// A token for what was granted.
    pub(super) fn access(&self, identity: &Identity, granted: &[Scope], seconds: u64) -> Option<String> {
        let access = granted.iter().filter_map(AccessEntry::of).collect();
        // The groups of the htpasswd file's users may change; those in an issuer's token do not.
        let groups: &[String] = if identity.recognized == Recognized::Oidc {
            &identity.groups
        } else {
            &[]
        };
        self.sign(FOR_ACCESS, &identity.name, seconds, |written| {
            written.access = Some(access);
            written.groups = groups;
        })
    }

    /// A token to get others by, without the password.
    pub(super) fn refresh(&self, user: &str, password_mark: &str, seconds: u64) -> Option<String> {
        self.sign(FOR_REFRESH, user, seconds, |written| {
            written.password = Some(password_mark)
        })
    }

    fn sign<'a>(
        &self,
        audience: &'a str,
        subject: &'a str,
        seconds: u64,
        add: impl FnOnce(&mut Written<'a>),
    ) -> Option<String> {
        let now = clock::seconds_since_1970();
        let mut written = Written {
            iss: ISSUER,
            aud: audience,
            sub: subject,
            iat: now,
            nbf: now,
            exp: now + seconds,
            jti: xebec_kernel::random::random_name(12).ok()?,
            access: None,
            groups: &[],
            password: None,
        };
        add(&mut written);
        let header = serde_json::json!({"alg": "EdDSA", "typ": "JWT", "kid": self.name});
        let claims = serde_json::to_vec(&written).ok()?;
        let message = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header.to_string()),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let signature = self.signing.sign(message.as_bytes());
        Some(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The user that an access token is for, and what it grants.
    pub(super) fn read_access(&self, token: &str) -> Result<(Identity, Vec<Scope>), TokenError> {
        let claims = self.read(token, FOR_ACCESS)?;
        let name = text(&claims, "sub")?;
        let granted = super::scope::granted(&claims).unwrap_or_default();
        if name.is_empty() {
            return Ok((Identity::anonymous(), granted));
        }
        let groups = claims
            .get("groups")
            .and_then(|groups| serde_json::from_value(groups.clone()).ok());
        let identity = Identity {
            name,
            recognized: Recognized::OwnToken,
            groups: groups.unwrap_or_default(),
        };
        Ok((identity, granted))
    }

    /// The user that a refresh token is for, and the mark of the password.
    pub(super) fn read_refresh(&self, token: &str) -> Result<(String, String), TokenError> {
        let claims = self.read(token, FOR_REFRESH)?;
        Ok((text(&claims, "sub")?, text(&claims, "password")?))
    }

    fn read(&self, token: &str, audience: &str) -> Result<Claims, TokenError> {
        let expected = Expected {
            issuer: ISSUER.to_owned(),
            audiences: vec![audience.to_owned()],
            leeway: LEEWAY,
        };
        token::verify(token, &self.keys, &expected)
    }
}

fn text(claims: &Claims, name: &str) -> Result<String, TokenError> {
    let text = claims.get(name).and_then(serde_json::Value::as_str);
    text.map(str::to_owned)
        .ok_or_else(|| TokenError::Claim(name.to_owned()))
}
