//! Rights of callers: rules by repository pattern, evaluated without any input or output.
//!
//! Of the rules whose pattern covers a repository, those with the **most specific** pattern count and no others ([`Specificity`] says
//! which that is). A caller has all the rights that these rules allow together. So `team/secret` with one user in its rule is closed to
//! all that `team/**` lets in, and a rule can only be widened in its own place. A repository that no rule covers is closed.
//! Administrators may do everything.

use serde::Deserialize;
use xebec_settings::pattern::{RepositoryPattern, Specificity};

use crate::action::Actions;
use crate::identity::Identity;

/// The callers that a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Who {
    /// Everybody, with or without a name.
    Anyone,
    /// Those without a name only.
    Anonymous,
    /// Everybody with a name.
    Authenticated,
    /// The one with this name.
    User(String),
    /// Those in this group.
    Group(String),
}

/// A text that is none of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is nobody; write \"anyone\", \"anonymous\", \"authenticated\", \"user:NAME\" or \"group:NAME\""
)]
pub struct WhoError(String);

impl TryFrom<String> for Who {
    type Error = WhoError;

    fn try_from(text: String) -> Result<Self, WhoError> {
        match text.as_str() {
            "anyone" => Ok(Self::Anyone),
            "anonymous" => Ok(Self::Anonymous),
            "authenticated" => Ok(Self::Authenticated),
            _ => match text.split_once(':') {
                Some(("user", name)) if !name.is_empty() => Ok(Self::User(name.to_owned())),
                Some(("group", name)) if !name.is_empty() => Ok(Self::Group(name.to_owned())),
                _ => Err(WhoError(text)),
            },
        }
    }
}

impl Who {
    /// Whether the caller is meant.
    pub fn means(&self, identity: &Identity) -> bool {
        match self {
            Self::Anyone => true,
            Self::Anonymous => identity.is_anonymous(),
            Self::Authenticated => !identity.is_anonymous(),
            Self::User(name) => !identity.is_anonymous() && identity.name == *name,
            Self::Group(name) => !identity.is_anonymous() && identity.groups.contains(name),
        }
    }
}

/// One rule: what some may do with the repositories that a pattern covers.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Which repositories.
    pub repositories: RepositoryPattern,
    /// The callers.
    pub who: Vec<Who>,
    /// The actions that they may take. Nothing takes rights away that a wider pattern gives.
    pub actions: Actions,
}

/// All rules.
#[derive(Debug, Clone, Default)]
pub struct Rights {
    rules: Vec<(Specificity, Rule)>,
    catalog: Option<Vec<Who>>,
    administrators: Vec<Who>,
}

impl Rights {
    /// The rights that these rules give. `catalog`: see [`Rights::may_list`].
    pub fn new(rules: Vec<Rule>, catalog: Option<Vec<Who>>, administrators: Vec<Who>) -> Self {
        let ranked = rules
            .into_iter()
            .map(|rule| (rule.repositories.specificity(), rule));
        Self {
            rules: ranked.collect(),
            catalog,
            administrators,
        }
    }

    /// Everything, for everybody: a registry without `[auth]`.
    pub fn open() -> Self {
        Self::new(Vec::new(), None, vec![Who::Anyone])
    }

    /// The actions that the caller may take on a repository.
    pub fn on(&self, repository: &str, identity: &Identity) -> Actions {
        if self.administers(identity) {
            return Actions::ALL;
        }
        let covering = || {
            self.rules
                .iter()
                .filter(|(_, rule)| rule.repositories.covers(repository))
        };
        let Some(most) = covering().map(|(specificity, _)| specificity).max() else {
            return Actions::NONE;
        };
        covering()
            .filter(|(specificity, rule)| {
                specificity == most && rule.who.iter().any(|who| who.means(identity))
            })
            .fold(Actions::NONE, |all, (_, rule)| all.and(rule.actions))
    }

    /// Whether somebody without a name may read anything at all.
    pub fn anybody_may_read(&self) -> bool {
        let nobody = Identity::anonymous();
        let reads = |(_, rule): &(Specificity, Rule)| {
            rule.actions.contain(Actions::PULL) && rule.who.iter().any(|who| who.means(&nobody))
        };
        self.administers(&nobody) || self.rules.iter().any(reads)
    }

    /// Whether the caller may ask for the list of repositories, of which they are shown what they may pull. Where nothing says who may,
    /// everybody with a name may, and everybody else if there is anything that they may read.
    pub fn may_list(&self, identity: &Identity) -> bool {
        let is_meant = match &self.catalog {
            Some(catalog) => catalog.iter().any(|who| who.means(identity)),
            None => !identity.is_anonymous() || self.anybody_may_read(),
        };
        is_meant || self.administers(identity)
    }

    /// Whether the caller may do everything, and see what concerns the server as a whole.
    pub fn administers(&self, identity: &Identity) -> bool {
        self.administrators.iter().any(|who| who.means(identity))
    }
}
