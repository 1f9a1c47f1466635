//! The action that a request takes, and sets of actions that are allowed on a repository.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// The action that a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Reads manifests, blobs, tags or referrers.
    Pull,
    /// Writes blobs, manifests or tags.
    Push,
    /// Deletes any of them.
    Delete,
    /// Lists repositories, those that the caller may pull; the repository is then empty.
    Catalog,
    /// Sees what concerns the server as a whole; the repository is then empty.
    Administer,
}

impl Action {
    /// Those on one repository, in the order in which they are printed.
    const ON_A_REPOSITORY: [Self; 3] = [Self::Pull, Self::Push, Self::Delete];

    /// The name in scopes, rules and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Push => "push",
            Self::Delete => "delete",
            Self::Catalog => "catalog",
            Self::Administer => "administer",
        }
    }

    /// The action on a repository that has this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ON_A_REPOSITORY
            .into_iter()
            .find(|action| action.name() == name)
    }
}

/// One right that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The repository's name.
    pub repository: String,
    /// The action that the request takes there.
    pub action: Action,
}

/// A set of actions on a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Actions(u8);

impl Actions {
    /// No action.
    pub const NONE: Self = Self(0);
    /// Reading.
    pub const PULL: Self = Self(1);
    /// The rights that a push needs: it also reads contents that are there already.
    pub const PULL_AND_PUSH: Self = Self(1 | 2);
    /// Removing.
    pub const DELETE: Self = Self(4);
    /// Every action.
    pub const ALL: Self = Self(1 | 2 | 4);

    /// Whether all of `other` are in this set.
    pub fn contain(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets in one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The actions that are in both sets.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether nothing is in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The actions one by one.
    pub fn iter(self) -> impl Iterator<Item = Action> {
        Action::ON_A_REPOSITORY
            .into_iter()
            .filter(move |action| self.contain((*action).into()))
    }
}

impl From<Action> for Actions {
    /// An action that concerns the whole server is no action on a repository.
    fn from(action: Action) -> Self {
        match action {
            Action::Pull => Self::PULL,
            Action::Push => Self(2),
            Action::Delete => Self::DELETE,
            Action::Catalog | Action::Administer => Self::NONE,
        }
    }
}

impl FromIterator<Action> for Actions {
    fn from_iter<T: IntoIterator<Item = Action>>(actions: T) -> Self {
        actions
            .into_iter()
            .fold(Self::NONE, |all, action| all.and(action.into()))
    }
}

impl fmt::Display for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, action) in self.iter().enumerate() {
            let comma = if nth == 0 { "" } else { "," };
            write!(f, "{comma}{}", action.name())?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Actions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        let one = |name: String| {
            Action::named(&name).ok_or_else(|| {
                D::Error::custom(format!(
                    "{name:?} is no action; write \"pull\", \"push\" or \"delete\""
                ))
            })
        };
        names.into_iter().map(one).collect()
    }
}
