//! Identities by OIDC: tokens that Kubernetes gives its service accounts and CI systems give their jobs. An issuer's token says who
//! somebody is; which groups that makes them a member of, the configuration decides by claims, and the rules do the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use xebec_settings::pattern::text_fits;

use crate::identity::{Identity, Recognized};
use crate::jwks::KeySource;
use crate::settings::{GrantSettings, OidcSettings, Values};
use crate::token::{Claims, Expected, TokenError};

/// The longest subject that is taken, in bytes. It stands in logs.
const MAX_SUBJECT: usize = 512;

/// An issuer whose tokens are accepted.
#[derive(Debug)]
pub(super) struct Issuer {
    name: String,
    pub(super) expected: Expected,
    pub(super) keys: Arc<KeySource>,
    grants: Vec<GrantSettings>,
}

impl Issuer {
    pub(super) fn new(settings: &OidcSettings, keys: Arc<KeySource>) -> Self {
        Self {
            name: settings.name.clone(),
            expected: Expected {
                issuer: settings.issuer.clone(),
                audiences: settings.audiences.clone(),
                leeway: settings.leeway.0.as_secs(),
            },
            keys,
            grants: settings.grants.clone(),
        }
    }

    /// The identity that these claims give.
    pub(super) fn identity(&self, claims: &Claims) -> Result<Identity, TokenError> {
        let subject = claims
            .get("sub")
            .and_then(Value::as_str)
            .filter(|subject| is_sound(subject));
        let subject = subject.ok_or_else(|| TokenError::Claim("sub".to_owned()))?;
        let mut groups = Vec::new();
        let mut granted = false;
        for grant in self.grants.iter().filter(|grant| all_fit(&grant.claims, claims)) {
            granted = true;
            for group in &grant.groups {
                if !groups.contains(group) {
                    groups.push(group.clone());
                }
            }
        }
        // The whole world may have tokens of this issuer.
        if !granted {
            return Err(TokenError::Claim(
                "no grant of the configuration fits its claims".to_owned(),
            ));
        }
        Ok(Identity {
            name: format!("{}:{subject}", self.name),
            recognized: Recognized::Oidc,
            groups,
        })
    }
}

fn is_sound(subject: &str) -> bool {
    !subject.is_empty() && subject.len() <= MAX_SUBJECT && !subject.chars().any(char::is_control)
}

/// Whether the claims are as a grant wants them.
pub fn all_fit(wanted: &BTreeMap<String, Values>, claims: &Claims) -> bool {
    !wanted.is_empty() && wanted.iter().all(|(name, values)| fits(name, values, claims))
}

fn fits(name: &str, values: &Values, claims: &Claims) -> bool {
    let claim = match name.strip_prefix('/') {
        None => claims.get(name),
        Some(path) => {
            let (first, rest) = path
                .split_once('/')
                .map_or((path, None), |(first, rest)| (first, Some(rest)));
            let unescaped = first.replace("~1", "/").replace("~0", "~");
            match (claims.get(&unescaped), rest) {
                (Some(value), Some(rest)) => value.pointer(&format!("/{rest}")),
                (value, _) => value,
            }
        }
    };
    match claim {
        Some(Value::Array(items)) => items.iter().any(|item| one_fits(values, item)),
        Some(value) => one_fits(values, value),
        None => false,
    }
}

fn one_fits(values: &Values, claim: &Value) -> bool {
    let text = match claim {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return false,
    };
    values.all().iter().any(|value| text_fits(value, &text))
}
