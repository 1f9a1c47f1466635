//! Scopes as Docker's token specification writes them: `repository:team/app:pull,push registry:catalog:*`.
//!
//! A client asks the token endpoint for scopes, the registry names them in its challenge, and a token carries what was granted
//! as its claim `access`. An unknown kind or action grants nothing, and is no error: clients ask for what other registries know.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::action::{Action, Actions};

/// How many scopes one request may ask for. A push that mounts from several repositories asks for one each.
pub const MAX_SCOPES: usize = 100;

/// The longest text of scopes that is read, in bytes: [`MAX_SCOPES`] of the longest names.
pub const MAX_SCOPE_TEXT: usize = 32 * 1024;

/// Why a text is no list of scopes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// Not `kind:name:actions`.
    #[error("the scope {0:?} is not KIND:NAME:ACTIONS; write it like \"repository:team/app:pull,push\"")]
    Malformed(String),
    /// More than the limits above.
    #[error(
        "too many scopes: one request may ask for {MAX_SCOPES} of them, in at most {MAX_SCOPE_TEXT} bytes"
    )]
    TooMany,
}

/// The rights that a token is asked for, or grants, on one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Actions on a repository.
    Repository {
        /// Its name. It need not be a valid one: then nothing is granted on it.
        name: String,
        /// The known ones of those that were named; `*` is all.
        actions: Actions,
    },
    /// The list of all repositories.
    Catalog,
    /// Something that this registry does not have, such as Docker's plugins.
    Unknown,
}

impl Scope {
    /// Reads one scope.
    ///
    /// # Errors
    /// [`ScopeError::Malformed`].
    pub fn parse(text: &str) -> Result<Self, ScopeError> {
        let malformed = || ScopeError::Malformed(text.chars().take(300).collect());
        // A name may hold a colon (a host with a port), a kind and actions may not.
        let (kind, rest) = text.split_once(':').ok_or_else(malformed)?;
        let (name, actions) = rest.rsplit_once(':').ok_or_else(malformed)?;
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\');
        if kind.is_empty() || name.is_empty() || !text.chars().all(plain) {
            return Err(malformed());
        }
        Ok(Self::of(kind, name, actions.split(',')))
    }

    /// Reads scopes that blanks part, over all the parameters of one request.
    ///
    /// # Errors
    /// See [`ScopeError`].
    pub fn parse_all<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Vec<Self>, ScopeError> {
        let mut scopes = Vec::new();
        let mut length = 0;
        for text in texts {
            length += text.len();
            if length > MAX_SCOPE_TEXT {
                return Err(ScopeError::TooMany);
            }
            for scope in text.split(' ').filter(|scope| !scope.is_empty()) {
                if scopes.len() == MAX_SCOPES {
                    return Err(ScopeError::TooMany);
                }
                scopes.push(Self::parse(scope)?);
            }
        }
        Ok(scopes)
    }

    fn of<'a>(kind: &str, name: &str, actions: impl Iterator<Item = &'a str>) -> Self {
        let mut all = false;
        let known: Actions = actions
            .inspect(|action| all |= *action == "*")
            .filter_map(Action::named)
            .collect();
        match kind {
            "repository" => Self::Repository {
                name: name.to_owned(),
                actions: if all { Actions::ALL } else { known },
            },
            "registry" if name == "catalog" && all => Self::Catalog,
            _ => Self::Unknown,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repository { name, actions } => write!(f, "repository:{name}:{actions}"),
            Self::Catalog => f.write_str("registry:catalog:*"),
            Self::Unknown => Ok(()),
        }
    }
}

/// An entry of the claim `access` of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessEntry {
    /// `repository` or `registry`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The repository, or `catalog`.
    pub name: String,
    /// The actions that the token grants.
    #[serde(default)]
    pub actions: Vec<String>,
}

impl AccessEntry {
    /// The entry that says what a scope grants; nothing for what grants nothing.
    pub fn of(scope: &Scope) -> Option<Self> {
        let (kind, name, actions) = match scope {
            Scope::Repository { name, actions } if !actions.is_empty() => {
                let actions = actions.iter().map(|action| action.name().to_owned()).collect();
                ("repository", name.as_str(), actions)
            }
            Scope::Catalog => ("registry", "catalog", vec!["*".to_owned()]),
            Scope::Repository { .. } | Scope::Unknown => return None,
        };
        Some(Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
            actions,
        })
    }

    /// The rights that the entry grants.
    pub fn scope(&self) -> Scope {
        Scope::of(&self.kind, &self.name, self.actions.iter().map(String::as_str))
    }
}

/// The rights that the claim `access` of a token grants; `None` if the claim is missing or damaged.
pub(super) fn granted(claims: &serde_json::Map<String, serde_json::Value>) -> Option<Vec<Scope>> {
    let entries: Vec<AccessEntry> = serde_json::from_value(claims.get("access")?.clone()).ok()?;
    Some(entries.iter().map(AccessEntry::scope).collect())
}
