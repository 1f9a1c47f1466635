//! Whether a token (JWT, RFC 7519) is sound: who signed it, for whom, and for how long. Pure: keys come in as values.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use xebec_kernel::clock;

use crate::jwk::{Key, KeySet};
use crate::public_key::Algorithm;

/// The longest token, in bytes. Those of CI systems have a few thousand.
pub const MAX_TOKEN: usize = 16 * 1024;

/// The most that clocks may differ, in seconds: what the configuration may ask for.
pub const MAX_LEEWAY: u64 = 300;

/// Keys that are tried for a token that names none.
const MAX_TRIES: usize = 16;

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not three parts, not JSON, too long.
    #[error("the token is damaged: {0}")]
    Malformed(&'static str),
    /// `none`, an HMAC, or another algorithm that no key here is for.
    #[error("the token says that its algorithm is {0:?}; RS256, ES256 and EdDSA are accepted")]
    Algorithm(String),
    /// The key is there and is for another algorithm.
    #[error("the token says {token}, but its key is for {key}")]
    KeyOfOtherAlgorithm {
        /// The algorithm that the token's header names.
        token: &'static str,
        /// The algorithm that the key is for.
        key: &'static str,
    },
    /// No key of the issuer has the name that the token gives.
    #[error("the token is signed with a key that its issuer does not list")]
    UnknownKey,
    /// The signature is not of the key.
    #[error("the token's signature is wrong")]
    Signature,
    /// Another issuer.
    #[error("the token is of another issuer")]
    Issuer,
    /// For another service.
    #[error("the token is for another audience; ask for one for this registry")]
    Audience,
    /// Over.
    #[error("the token has expired; log in again")]
    Expired,
    /// Too early.
    #[error("the token is not valid yet; compare the clocks of this host and its issuer")]
    NotYet,
    /// A claim is missing or has no sound value.
    #[error("the token's claim {0:?} is missing or damaged")]
    Claim(String),
}

/// The claims of a sound token.
pub type Claims = Map<String, Value>;

/// The demands on a token.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Its issuer.
    pub issuer: String,
    /// It is for one of these.
    pub audiences: Vec<String>,
    /// How much clocks may differ, in seconds; at most [`MAX_LEEWAY`] counts.
    pub leeway: u64,
}

/// The parts of a token that say with which key it wants to be verified. Nothing of it is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unverified {
    algorithm: Algorithm,
    /// The key's name.
    pub kid: Option<String>,
    /// The issuer that it claims.
    pub issuer: Option<String>,
}

impl Unverified {
    /// Reads header and issuer.
    ///
    /// # Errors
    /// If the token is damaged, or its algorithm is refused for every signer.
    pub fn read(token: &str) -> Result<Self, TokenError> {
        if token.len() > MAX_TOKEN {
            return Err(TokenError::Malformed("it has more than 16 KiB"));
        }
        let mut parts = token.split('.');
        let (Some(header), Some(claims), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(TokenError::Malformed("it does not have three parts"));
        };
        if signature.is_empty() {
            return Err(TokenError::Malformed("it has no signature"));
        }
        let header = object(header, "its header is not JSON in base64url")?;
        let claims = object(claims, "its claims are not JSON in base64url")?;
        // An extension that must be understood, and that this code does not know.
        if header.contains_key("crit") {
            return Err(TokenError::Malformed("its header asks for extensions (\"crit\")"));
        }
        let text = |map: &Claims, name: &str| map.get(name).and_then(Value::as_str).map(str::to_owned);
        let named = text(&header, "alg").unwrap_or_default();
        let refused = || TokenError::Algorithm(named.chars().take(40).collect());
        let algorithm = Algorithm::named(&named).ok_or_else(refused)?;
        Ok(Self {
            algorithm,
            kid: text(&header, "kid"),
            issuer: text(&claims, "iss"),
        })
    }
}

fn object(part: &str, otherwise: &'static str) -> Result<Claims, TokenError> {
    let bytes = URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenError::Malformed(otherwise))?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed(otherwise))
}

/// The claims of a token that one of `keys` signed, and that is what was expected.
///
/// # Errors
/// See [`TokenError`].
pub fn verify(token: &str, keys: &KeySet, expected: &Expected) -> Result<Claims, TokenError> {
    verify_at(token, keys, expected, clock::seconds_since_1970())
}

/// The same at another time, in seconds since 1970.
///
/// # Errors
/// See [`TokenError`].
pub fn verify_at(token: &str, keys: &KeySet, expected: &Expected, now: u64) -> Result<Claims, TokenError> {
    let unverified = Unverified::read(token)?;
    let damaged = || TokenError::Malformed("it does not have three parts");
    let (message, signature) = token.rsplit_once('.').ok_or_else(damaged)?;
    let (_, claims) = message.split_once('.').ok_or_else(damaged)?;
    let signature = URL_SAFE_NO_PAD.decode(signature);
    let signature = signature.map_err(|_| TokenError::Malformed("its signature is not base64url"))?;
    let candidates = candidates(keys, &unverified)?;
    let mut tried = candidates.into_iter().take(MAX_TRIES);
    if !tried.any(|key| key.verifies(message.as_bytes(), &signature)) {
        return Err(TokenError::Signature);
    }
    let claims = object(claims, "its claims are not JSON in base64url")?;
    check(&claims, expected, now)?;
    Ok(claims)
}

/// The keys that the token may be signed with: those of its name, or all if it names none, and only those of its algorithm.
fn candidates<'a>(keys: &'a KeySet, token: &Unverified) -> Result<Vec<&'a Key>, TokenError> {
    let named = |key: &&Key| token.kid.as_ref().is_none_or(|kid| key.is_called(kid));
    let named: Vec<&Key> = keys.keys().iter().filter(named).collect();
    let Some(first) = named.first() else {
        return Err(TokenError::UnknownKey);
    };
    let other = TokenError::KeyOfOtherAlgorithm {
        token: token.algorithm.name(),
        key: first.algorithm().name(),
    };
    let fitting: Vec<&Key> = named
        .into_iter()
        .filter(|key| key.algorithm() == token.algorithm)
        .collect();
    if fitting.is_empty() {
        Err(other)
    } else {
        Ok(fitting)
    }
}

/// Whether the claims are as RFC 7519, 4.1, wants them: issuer, audience and expiry are there and fit, and the token is valid by now.
fn check(claims: &Claims, expected: &Expected, now: u64) -> Result<(), TokenError> {
    let leeway = expected.leeway.min(MAX_LEEWAY);
    match claims.get("iss") {
        None | Some(Value::Null) => return Err(TokenError::Claim("iss".to_owned())),
        Some(issuer) if issuer.as_str() == Some(&expected.issuer) => {}
        Some(_) => return Err(TokenError::Issuer),
    }
    let is_ours = |audience: &Value| {
        audience
            .as_str()
            .is_some_and(|audience| expected.audiences.iter().any(|our| our == audience))
    };
    match claims.get("aud") {
        Some(audience @ Value::String(_)) if is_ours(audience) => {}
        Some(Value::Array(audiences)) if audiences.iter().any(is_ours) => {}
        Some(Value::String(_) | Value::Array(_)) => return Err(TokenError::Audience),
        _ => return Err(TokenError::Claim("aud".to_owned())),
    }
    let expiry = time(claims, "exp")?.ok_or_else(|| TokenError::Claim("exp".to_owned()))?;
    if expiry.saturating_add(leeway) < now {
        return Err(TokenError::Expired);
    }
    match time(claims, "nbf")? {
        Some(begin) if begin > now.saturating_add(leeway) => Err(TokenError::NotYet),
        _ => Ok(()),
    }
}

/// A time in a claim, in seconds since 1970, of which some issuers write parts.
fn time(claims: &Claims, name: &str) -> Result<Option<u64>, TokenError> {
    let damaged = || TokenError::Claim(name.to_owned());
    match claims.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => {
            // The conversion ends at the largest number, and is of none below zero.
            let parts = number.as_f64().filter(|seconds| *seconds >= 0.0);
            let seconds = number.as_u64().or_else(|| parts.map(|seconds| seconds as u64));
            seconds.map(Some).ok_or_else(damaged)
        }
        Some(_) => Err(damaged()),
    }
}
