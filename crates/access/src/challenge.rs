//! The header `WWW-Authenticate`, as Docker's clients, containerd, skopeo and crane read it.

use std::collections::BTreeMap;

use crate::action::{Action, Actions, Need};
use crate::scope::Scope;

/// How clients are told to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Challenge {
    /// With name and password at each request.
    Basic {
        /// The name of the service, which browsers show.
        realm: String,
    },
    /// With a token, which a token endpoint issues.
    Bearer {
        /// The address of the token endpoint.
        realm: String,
        /// The name of this registry there.
        service: String,
    },
}

/// A fault of the token that the client showed (RFC 6750, 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFault {
    /// Forged, expired, for somebody else.
    Invalid,
    /// Sound, but for less than is asked for.
    InsufficientScope,
}

impl Challenge {
    /// The header's value for a request that needs all of `needs`.
    pub fn header(&self, needs: &[Need], fault: Option<TokenFault>) -> String {
        match self {
            Self::Basic { realm } => format!("Basic realm=\"{}\", charset=\"UTF-8\"", quotable(realm)),
            Self::Bearer { realm, service } => {
                let mut header = format!(
                    "Bearer realm=\"{}\",service=\"{}\"",
                    quotable(realm),
                    quotable(service)
                );
                let scopes = scopes(needs);
                if !scopes.is_empty() {
                    header.push_str(&format!(",scope=\"{}\"", quotable(&scopes)));
                }
                match fault {
                    Some(TokenFault::Invalid) => header.push_str(",error=\"invalid_token\""),
                    Some(TokenFault::InsufficientScope) => header.push_str(",error=\"insufficient_scope\""),
                    None => {}
                }
                header
            }
        }
    }
}

/// The scopes to ask for, one for each repository. A push reads too, and clients keep one token for both.
fn scopes(needs: &[Need]) -> String {
    let mut by_repository: BTreeMap<&str, Actions> = BTreeMap::new();
    let mut catalog = false;
    for need in needs {
        let actions = match need.action {
            Action::Push => Actions::PULL_AND_PUSH,
            Action::Catalog => {
                catalog = true;
                continue;
            }
            other => other.into(),
        };
        if !actions.is_empty() {
            let all = by_repository.entry(&need.repository).or_default();
            *all = all.and(actions);
        }
    }
    let repositories = by_repository.into_iter().map(|(name, actions)| {
        let name = name.to_owned();
        Scope::Repository { name, actions }
    });
    let all = repositories.chain(catalog.then_some(Scope::Catalog));
    all.map(|scope| scope.to_string()).collect::<Vec<_>>().join(" ")
}

/// The characters of the text that may stand between quotation marks of a header. Names of repositories and hosts have no others.
fn quotable(text: &str) -> String {
    text.chars()
        .filter(|c| (' '..='~').contains(c) && !matches!(c, '"' | '\\'))
        .collect()
}
