//! The built-in token endpoint, `/token`, as Docker's token specification describes it: `GET` with name and password in the header,
//! and `POST` with a form (OAuth 2).
//!
//! Somebody asks for scopes and gets a token for those that the rules allow them, which may be none: clients ask first and learn from
//! the registry's answer what they lack. Without a name, that is an anonymous token.

use hyper::Method;
use hyper::header::AUTHORIZATION;
use hyper::http::request::Parts;
use serde_json::{Value, json};
use xebec_kernel::clock;

use crate::credentials::Credentials;
use crate::guard::{Guard, Inner, Unrecognized};
use crate::htpasswd::OIDC_USER;
use crate::identity::{Identity, Recognized};
use crate::own_tokens::OwnTokens;
use crate::scope::Scope;

/// The largest form that is read, in bytes. A refresh token and a hundred scopes fit.
pub const MAX_FORM: usize = 64 * 1024;

/// The shortest life of a token, in seconds, that clients reckon with (Docker's token specification).
const SHORTEST: u64 = 60;

/// An answer of the endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The value of `WWW-Authenticate`, if there is one.
    pub challenge: Option<String>,
    /// The body, as JSON.
    pub body: Value,
}

/// A request to the endpoint.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TokenRequest {
    grant_type: Option<String>,
    username: Option<String>,
    password: Option<String>,
    refresh_token: Option<String>,
    scopes: Vec<String>,
    offline: bool,
}

impl TokenRequest {
    /// Reads the parameters of a query or a form. Unknown ones are passed over.
    pub fn parse(parameters: &[u8]) -> Self {
        let mut request = Self::default();
        let parameters = parameters
            .get(..MAX_FORM.min(parameters.len()))
            .unwrap_or_default();
        // The parser of URLs reads forms too; the address before it is none.
        let query = String::from_utf8_lossy(parameters);
        let mut url = reqwest::Url::parse("http://localhost/").ok();
        if let Some(url) = &mut url {
            url.set_query(Some(&query));
            for (name, value) in url.query_pairs() {
                request.take(&name, &value);
            }
        }
        request
    }

    fn take(&mut self, name: &str, value: &str) {
        let value = value.to_owned();
        match name {
            "grant_type" => self.grant_type = Some(value),
            "username" => self.username = Some(value),
            "password" => self.password = Some(value),
            "refresh_token" => self.refresh_token = Some(value),
            "scope" => self.scopes.push(value),
            "offline_token" => self.offline |= value == "true",
            "access_type" => self.offline |= value == "offline",
            _ => {}
        }
    }
}

impl Guard {
    /// Whether there is a token endpoint here.
    pub fn has_token_endpoint(&self) -> bool {
        self.inner().own.is_some()
    }

    /// The answer to a request at `/token`. `body` is the form of a `POST`, at most [`MAX_FORM`] bytes.
    pub async fn token(&self, parts: &Parts, body: &[u8]) -> TokenAnswer {
        let inner = self.inner();
        let Some(own) = &inner.own else {
            return failure(404, "unsupported", "this registry gives out no tokens");
        };
        let post = parts.method == Method::POST;
        if post && body.len() > MAX_FORM {
            return failure(413, "invalid_request", "the form is too large");
        }
        let parameters = if post {
            body
        } else {
            parts.uri.query().unwrap_or_default().as_bytes()
        };
        let request = TokenRequest::parse(parameters);
        let scopes = match Scope::parse_all(request.scopes.iter().map(String::as_str)) {
            Ok(scopes) => scopes,
            Err(error) => return failure(400, "invalid_scope", &error.to_string()),
        };
        let identity = if post {
            by_form(inner, own, parts, &request).await
        } else {
            by_header(inner, own, parts).await
        };
        match identity {
            Ok(identity) => answer(inner, own, &identity, scopes, &request, post),
            Err(reason) => unrecognized(reason, post),
        }
    }
}

async fn by_header(inner: &Inner, own: &OwnTokens, parts: &Parts) -> Result<Identity, Unrecognized> {
    let Some(value) = parts.headers.get(AUTHORIZATION) else {
        return Ok(Identity::anonymous());
    };
    match Credentials::parse(value.as_bytes()).map_err(Unrecognized::Credentials)? {
        Credentials::Password { name, password } if name == "<token>" => {
            by_refresh_token(inner, own, &password)
        }
        Credentials::Password { name, password } => inner.by_password(parts, &name, &password).await,
        Credentials::Bearer(token) => inner.by_oidc(&token).await,
    }
}

async fn by_form(
    inner: &Inner,
    own: &OwnTokens,
    parts: &Parts,
    request: &TokenRequest,
) -> Result<Identity, Unrecognized> {
    match (request.grant_type.as_deref(), &request.refresh_token) {
        (Some("refresh_token"), Some(token)) => by_refresh_token(inner, own, token),
        (Some("password"), _) => {
            let name = request.username.as_deref().unwrap_or_default();
            inner
                .by_password(parts, name, request.password.as_deref().unwrap_or_default())
                .await
        }
        _ => Err(Unrecognized::Password),
    }
}

fn by_refresh_token(inner: &Inner, own: &OwnTokens, token: &str) -> Result<Identity, Unrecognized> {
    let (user, mark) = own.read_refresh(token).map_err(Unrecognized::Token)?;
    let now = inner
        .logins
        .as_ref()
        .and_then(|logins| logins.password_mark(&user));
    if now.as_deref() != Some(mark.as_str()) {
        return Err(Unrecognized::Gone);
    }
    Ok(inner.user(&user, Recognized::Password))
}

fn answer(
    inner: &Inner,
    own: &OwnTokens,
    identity: &Identity,
    asked: Vec<Scope>,
    request: &TokenRequest,
    post: bool,
) -> TokenAnswer {
    let seconds = inner.settings.token.lifetime.0.as_secs().max(SHORTEST);
    let granted = inner.cut_down(identity, asked);
    let Some(token) = own.access(identity, &granted, seconds) else {
        return failure(
            500,
            "server_error",
            "the token could not be signed; the registry's log says why",
        );
    };
    let mut body = json!({
        "access_token": token,
        "expires_in": seconds,
        "issued_at": clock::rfc3339(clock::seconds_since_1970()),
    });
    if let Some(fields) = body.as_object_mut() {
        if post {
            let scopes: Vec<String> = granted.iter().map(Scope::to_string).collect();
            fields.insert("scope".to_owned(), scopes.join(" ").into());
            fields.insert("token_type".to_owned(), "Bearer".into());
        } else {
            // Clients of the older form look for it by this name.
            fields.insert("token".to_owned(), token.into());
        }
        if request.offline
            && identity.recognized == Recognized::Password
            && let Some(refresh) = refresh_token(inner, own, &identity.name)
        {
            fields.insert("refresh_token".to_owned(), refresh.into());
        }
    }
    TokenAnswer {
        status: 200,
        challenge: None,
        body,
    }
}

fn refresh_token(inner: &Inner, own: &OwnTokens, user: &str) -> Option<String> {
    let mark = inner.logins.as_ref()?.password_mark(user)?;
    own.refresh(user, &mark, inner.settings.token.refresh_lifetime.0.as_secs())
}

fn unrecognized(reason: Unrecognized, post: bool) -> TokenAnswer {
    let detail = match reason {
        Unrecognized::Busy => {
            return failure(
                503,
                "temporarily_unavailable",
                "too many logins wait at this moment; try again",
            );
        }
        Unrecognized::Keys(error) => {
            tracing::error!(%error, "a token cannot be verified");
            return failure(
                503,
                "temporarily_unavailable",
                "the keys of the token's issuer are away; try again",
            );
        }
        Unrecognized::Password => {
            format!(
                "the name or the password is wrong; with the token of an OIDC issuer, the name is {OIDC_USER:?}"
            )
        }
        Unrecognized::Gone => "the login counts no more; log in again".to_owned(),
        Unrecognized::Credentials(error) => error.to_string(),
        Unrecognized::Token(error) => error.to_string(),
    };
    let mut answer = failure(401, if post { "invalid_grant" } else { "unauthorized" }, &detail);
    answer.challenge = Some("Basic realm=\"xebec-registry\", charset=\"UTF-8\"".to_owned());
    answer
}

/// Both forms in which clients look for what went wrong: OAuth's, and that of registries.
fn failure(status: u16, code: &str, detail: &str) -> TokenAnswer {
    let registry = match status {
        401 => "UNAUTHORIZED",
        503 => "TOOMANYREQUESTS",
        _ => "UNSUPPORTED",
    };
    TokenAnswer {
        status,
        challenge: None,
        body: json!({
            "error": code,
            "error_description": detail,
            "errors": [{"code": registry, "message": detail}],
        }),
    }
}
