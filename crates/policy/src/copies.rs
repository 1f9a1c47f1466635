//! How many copies of each blob are kept, in which form, and where.
//!
//! The first rule whose pattern covers a repository counts for it, and no other. A blob of several repositories is kept as each of them asks;
//! the caller adds that up with [`Wanted::union`]. What is popular is kept as its rule asks for all, and beyond that as it asks for what is
//! popular.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Deserialize;
use xebec_placement::{Kept, PlaceName, TwoForms, Wanted};
use xebec_settings::pattern::RepositoryPattern;
use xebec_settings::period::Period;
use xebec_settings::text::Text;

/// `[[copies]]`: what is kept of the blobs of some repositories.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyRule {
    /// Which repositories.
    pub repositories: RepositoryPattern,
    /// What is kept: `intact@main`, `files@cold`.
    pub keep: Vec<Text<Kept>>,
    /// What is kept beyond that of blobs that are pulled often.
    pub popular: Option<PopularRule>,
}

/// `popular` of `[[copies]]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PopularRule {
    /// A blob that was pulled so many times is popular.
    pub pulls: u64,
    /// The time within which these pulls count.
    pub within: Period,
    /// What is kept of it beyond `keep` of the rule.
    pub keep: Vec<Text<Kept>>,
}

/// A fault of a rule. Each names the rule by its pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyRuleError {
    /// Blobs would be kept nowhere.
    #[error(
        "the rule of copies for {0:?} keeps nothing, so that blobs would be lost; name a copy in keep, as \"intact@main\""
    )]
    KeepsNothing(String),
    /// No such place is configured.
    #[error(
        "the rule of copies for {rule:?} names the place {place} in {kept}, and there is no such place; add a [[place]] with this name, \
         or name one of these: {known}"
    )]
    UnknownPlace {
        /// The rule's pattern.
        rule: String,
        /// The place.
        place: PlaceName,
        /// The copy that names it.
        kept: Kept,
        /// The places that there are.
        known: String,
    },
    /// Files and chunks.
    #[error("the rule of copies for {rule:?}: {forms}")]
    TwoForms {
        /// The rule's pattern.
        rule: String,
        /// The two copies.
        forms: TwoForms,
    },
    /// One list has a copy twice.
    #[error("the rule of copies for {rule:?} lists {kept} twice; a second copy needs another place")]
    Twice {
        /// The rule's pattern.
        rule: String,
        /// The copy.
        kept: Kept,
    },
    /// Everything, or nothing ever, would be popular.
    #[error(
        "the rule of copies for {0:?} says when a blob is popular by no pulls or no time; give pulls = 1 or more, and within = \"1d\" or the like"
    )]
    PopularAtOnce(String),
    /// Nothing more is kept of what is popular.
    #[error(
        "the rule of copies for {0:?} keeps nothing more of what is popular than of all; name a copy in popular that keep does not have, or \
         remove popular"
    )]
    PopularIsNoMore(String),
    /// An earlier rule counts for all of its repositories.
    #[error(
        "the rule of copies for {rule:?} never counts, since the rule for {earlier:?} stands before it and covers the same repositories; \
         move it before that one, or remove it"
    )]
    NeverCounts {
        /// The rule's pattern.
        rule: String,
        /// The earlier rule's pattern.
        earlier: String,
    },
}

/// What is kept of a blob that is pulled often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Popular {
    /// A blob that was pulled so many times is popular.
    pub pulls: u64,
    /// The time within which these pulls count.
    pub within: Duration,
    /// All that is kept of it, the copies that the rule asks for anyway among them.
    pub wanted: Wanted,
}

/// All rules, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyRules {
    rules: Vec<Checked>,
    otherwise: Wanted,
}

/// A rule without faults.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Checked {
    repositories: RepositoryPattern,
    wanted: Wanted,
    popular: Option<Popular>,
}

impl CopyRules {
    /// No rules yet. `wanted` is kept of the blobs of repositories without a rule.
    pub fn default_for(wanted: Wanted) -> Self {
        Self {
            rules: Vec::new(),
            otherwise: wanted,
        }
    }

    /// Adds a rule behind the others. `places` are those that there are.
    ///
    /// # Errors
    /// [`CopyRuleError`]; the rules are as before.
    pub fn add(&mut self, rule: CopyRule, places: &BTreeSet<PlaceName>) -> Result<(), CopyRuleError> {
        let name = rule.repositories.to_string();
        let earlier = self.rules.iter().map(|earlier| earlier.repositories.to_string());
        // Other patterns may cover all that a later one covers, too; these two are seen without an argument.
        if let Some(earlier) = earlier
            .into_iter()
            .find(|earlier| *earlier == name || earlier == "**")
        {
            return Err(CopyRuleError::NeverCounts { rule: name, earlier });
        }
        let keep = listed(&name, rule.keep, places)?;
        if keep.is_empty() {
            return Err(CopyRuleError::KeepsNothing(name));
        }
        let wanted = together(&name, &keep)?;
        let popular = rule.popular.map(|popular| {
            let mut all = listed(&name, popular.keep, places)?;
            all.extend(keep);
            Popular::new(
                &name,
                popular.pulls,
                popular.within,
                together(&name, &all)?,
                &wanted,
            )
        });
        self.rules.push(Checked {
            popular: popular.transpose()?,
            repositories: rule.repositories,
            wanted,
        });
        Ok(())
    }

    /// What is kept of the blobs of a repository.
    pub fn of(&self, repository: &str) -> &Wanted {
        self.rule(repository).map_or(&self.otherwise, |rule| &rule.wanted)
    }

    /// What is kept of those of its blobs that are pulled often, if its rule says so.
    pub fn popular(&self, repository: &str) -> Option<&Popular> {
        self.rule(repository)?.popular.as_ref()
    }

    fn rule(&self, repository: &str) -> Option<&Checked> {
        self.rules
            .iter()
            .find(|rule| rule.repositories.covers(repository))
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// A text that is another one if what is kept of any blob may be another: the rules, a line each, as they count.
    pub fn fingerprint(&self) -> String {
        let mut text = String::new();
        for rule in &self.rules {
            let _ = write!(text, "{}: {}", rule.repositories, rule.wanted);
            if let Some(popular) = &rule.popular {
                let seconds = popular.within.as_secs();
                let _ = write!(text, "; {} in {seconds} s: {}", popular.pulls, popular.wanted);
            }
            text.push('\n');
        }
        let _ = writeln!(text, "otherwise: {}", self.otherwise);
        text
    }
}

impl Popular {
    fn new(
        rule: &str,
        pulls: u64,
        within: Period,
        wanted: Wanted,
        than: &Wanted,
    ) -> Result<Self, CopyRuleError> {
        if pulls == 0 || within.0.is_zero() {
            return Err(CopyRuleError::PopularAtOnce(rule.to_owned()));
        }
        if wanted == *than {
            return Err(CopyRuleError::PopularIsNoMore(rule.to_owned()));
        }
        let within = within.0;
        Ok(Self {
            pulls,
            within,
            wanted,
        })
    }
}

/// The copies of a list, each of which is there once and on places that there are.
fn listed(
    rule: &str,
    keep: Vec<Text<Kept>>,
    places: &BTreeSet<PlaceName>,
) -> Result<Vec<Kept>, CopyRuleError> {
    let keep: Vec<Kept> = keep.into_iter().map(|kept| kept.0).collect();
    let mut seen = BTreeSet::new();
    for kept in &keep {
        let rule = rule.to_owned();
        if !seen.insert(kept) {
            let kept = kept.clone();
            return Err(CopyRuleError::Twice { rule, kept });
        }
        if let Some(place) = kept.on.places().iter().find(|place| !places.contains(*place)) {
            let known: Vec<&str> = places.iter().map(PlaceName::as_str).collect();
            return Err(CopyRuleError::UnknownPlace {
                rule,
                place: place.clone(),
                kept: kept.clone(),
                known: known.join(", "),
            });
        }
    }
    Ok(keep)
}

fn together(rule: &str, keep: &[Kept]) -> Result<Wanted, CopyRuleError> {
    Wanted::of(keep).map_err(|forms| CopyRuleError::TwoForms {
        rule: rule.to_owned(),
        forms,
    })
}
