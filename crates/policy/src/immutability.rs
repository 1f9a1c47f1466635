//! Tags that stay as they are: once one is there, no push moves it and no delete removes it.

use serde::Deserialize;

use xebec_settings::pattern::{RepositoryPattern, TagPattern};
use xebec_store::{IsHeld, RepositoryName};

/// `[[immutable]]`: these tags of these repositories.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImmutableRule {
    /// Which repositories.
    pub repositories: RepositoryPattern,
    /// Which tags.
    pub tags: Vec<TagPattern>,
    /// Which of these are free all the same, such as `latest`.
    #[serde(default)]
    pub except: Vec<TagPattern>,
}

/// Why a tag is not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tag {tag:?} of {repository:?} is immutable by the rule for {pattern:?}; push under another tag, or change the rule ([[immutable]])"
)]
pub struct ImmutableTag {
    /// Of which repository.
    pub repository: String,
    /// Which tag.
    pub tag: String,
    /// By the rule for which repositories.
    pub pattern: String,
}

/// All rules. A tag is immutable if one of them says so.
#[derive(Debug, Clone, Default)]
pub struct Immutability(Vec<ImmutableRule>);

impl Immutability {
    /// By these rules.
    pub fn new(rules: Vec<ImmutableRule>) -> Self {
        Self(rules)
    }

    /// Whether every tag may change.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rule that holds this tag, if there is one.
    pub fn rule_for(&self, repository: &str, tag: &str) -> Option<&ImmutableRule> {
        let covered = |patterns: &[TagPattern]| patterns.iter().any(|pattern| pattern.covers(tag));
        let mut rules = self.0.iter();
        rules.find(|rule| {
            rule.repositories.covers(repository) && covered(&rule.tags) && !covered(&rule.except)
        })
    }

    /// The tags of a repository that hold what they lead to, as the store asks; none if there is no rule.
    pub fn holding(&self, repository: &RepositoryName) -> Option<IsHeld> {
        if self.is_empty() {
            return None;
        }
        let (rules, repository) = (self.clone(), repository.to_string());
        Some(Box::new(move |tag| {
            rules.rule_for(&repository, tag.as_str()).is_some()
        }))
    }

    /// Whether a tag may come to name `new`. `now` is what it names before that: to push the same again changes nothing.
    ///
    /// # Errors
    /// If the tag names something else and is immutable.
    pub fn check_push(
        &self,
        repository: &str,
        tag: &str,
        now: Option<&str>,
        new: &str,
    ) -> Result<(), ImmutableTag> {
        match now {
            Some(now) if now != new => self.check_removal(repository, tag),
            _ => Ok(()),
        }
    }

    /// Whether a tag may go. A manifest may go only if each of its tags may.
    ///
    /// # Errors
    /// If the tag is immutable.
    pub fn check_removal(&self, repository: &str, tag: &str) -> Result<(), ImmutableTag> {
        match self.rule_for(repository, tag) {
            None => Ok(()),
            Some(rule) => Err(ImmutableTag {
                repository: repository.to_owned(),
                tag: tag.to_owned(),
                pattern: rule.repositories.to_string(),
            }),
        }
    }
}
