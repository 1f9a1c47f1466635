//! Checks what a client may do: basic authentication, or tokens from a token server under `/token`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::json;

/// The login that the registry asks of its clients.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Access {
    /// Nothing.
    #[default]
    Open,
    /// This name and password with each request.
    Basic {
        /// The name.
        username: String,
        /// The password.
        password: String,
    },
    /// A token of limited life.
    Token {
        /// How long it is good.
        life: Duration,
        /// Name and password for which tokens are given; `None`: for everyone.
        login: Option<(String, String)>,
        /// A refresh token for which tokens are given too.
        refresh_token: Option<String>,
    },
}

impl Access {
    /// Tokens for everyone.
    pub fn anonymous_tokens(life: Duration) -> Self {
        Self::Token {
            life,
            login: None,
            refresh_token: None,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Tokens {
    given: HashMap<String, (Instant, Vec<String>)>,
    count: u64,
}

impl Tokens {
    pub(super) fn expire(&mut self) {
        self.given.clear();
    }

    /// How many were given out.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Gives out a token for these scopes, as the body of an answer.
    pub(super) fn give(&mut self, scopes: Vec<String>, life: Duration) -> String {
        self.count += 1;
        let token = format!("token-{}", self.count);
        self.given.insert(token.clone(), (Instant::now() + life, scopes));
        // Whole seconds only, so a life below one is announced as one: a token that ends early.
        json!({"token": token, "expires_in": life.as_secs().max(1)}).to_string()
    }

    fn allows(&self, token: &str, repository: &str, action: &str) -> bool {
        self.given.get(token).is_some_and(|(end, scopes)| {
            *end > Instant::now()
                && (repository.is_empty()
                    || scopes.iter().any(|scope| scope_allows(scope, repository, action)))
        })
    }
}

fn scope_allows(scope: &str, repository: &str, action: &str) -> bool {
    let parts: Vec<&str> = scope.splitn(3, ':').collect();
    matches!(parts.as_slice(), ["repository", name, actions]
        if *name == repository && actions.split(',').any(|one| one == action))
}

/// Whether an `Authorization` header is this name and password.
pub(super) fn is_login(authorization: Option<&str>, username: &str, password: &str) -> bool {
    let wanted = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
    authorization == Some(&format!("Basic {wanted}"))
}

/// Whether a request may do `action` on `repository`; if not, the `WWW-Authenticate` to answer with.
pub(super) fn check(
    access: &Access,
    tokens: &Tokens,
    authorization: Option<&str>,
    repository: &str,
    action: &str,
    base: &str,
) -> Result<(), String> {
    match access {
        Access::Open => Ok(()),
        Access::Basic { username, password } if is_login(authorization, username, password) => Ok(()),
        Access::Basic { .. } => Err("Basic realm=\"faulty registry\"".to_owned()),
        Access::Token { .. } => {
            let token = authorization.and_then(|text| text.strip_prefix("Bearer "));
            if token.is_some_and(|token| tokens.allows(token, repository, action)) {
                return Ok(());
            }
            let scope = if repository.is_empty() {
                String::new()
            } else {
                format!(",scope=\"repository:{repository}:{action}\"")
            };
            Err(format!("Bearer realm=\"{base}/token\",service=\"faulty\"{scope}"))
        }
    }
}
