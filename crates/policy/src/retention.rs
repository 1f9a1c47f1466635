//! Decisions about tags and manifests that stay or go: a plan made of records, without changing anything.
//!
//! A tag is judged by every rule that covers it, and **keeping wins**: it goes only if a rule covers it and none keeps it. Tags that no
//! rule covers stay, and so do immutable ones. A manifest goes only if no tag leads to it, by itself, by an index that has it, or
//! as what refers to a manifest that stays, and a rule lets manifests without a tag go at its age. A pull by digest counts as
//! use of each tag that names the digest.
//!
//! Signatures and indexes that older clients tag by the digest they belong to (`sha256-….sig`) go with what they belong to.
//!
//! The caller that carries the plan out compares each tag's digest with the plan's once more, in the transaction that removes the tag.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::Deserialize;
use xebec_settings::pattern::{RepositoryPattern, TagPattern};
use xebec_settings::period::Period;

use crate::immutability::Immutability;

/// `[[retention]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionRule {
    /// Which repositories.
    pub repositories: RepositoryPattern,
    /// Which tags. Without it, all.
    #[serde(default)]
    pub tags: Vec<TagPattern>,
    /// Keeps these tags, whatever other rules say.
    #[serde(default)]
    pub keep: bool,
    /// Keeps so many of these tags in each repository, those that were pushed last.
    pub keep_newest: Option<usize>,
    /// Keeps those that were pushed within this time.
    pub keep_pushed_within: Option<Period>,
    /// Keeps those that were pulled within this time.
    pub keep_pulled_within: Option<Period>,
    /// Lets manifests without a tag go that were neither pushed nor pulled within this time.
    pub delete_untagged_after: Option<Period>,
}

/// A tag, as the record has it. Times are milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagRecord {
    /// Its name.
    pub name: String,
    /// The digest of the manifest that the tag names.
    pub digest: String,
    /// When it was last pushed.
    pub updated: u64,
    /// When it was last pulled by its name.
    pub pulled: Option<u64>,
}

/// A manifest, as the record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestRecord {
    /// Its digest.
    pub digest: String,
    /// When it was pushed.
    pub created: u64,
    /// When it was last pulled.
    pub pulled: Option<u64>,
    /// The digest of the manifest that it refers to.
    pub subject: Option<String>,
    /// The manifests of an index.
    pub children: Vec<String>,
}

/// Why something stays or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No rule covers it.
    NotCovered,
    /// Its tag is immutable.
    Immutable,
    /// A rule keeps it always.
    Kept,
    /// It is among the newest.
    Newest,
    /// It was pushed lately.
    PushedLately,
    /// It was pulled lately.
    PulledLately,
    /// It belongs to a manifest that stays.
    BelongsToKept,
    /// A tag or an index that stays leads to it.
    Reachable,
    /// A rule covers it, and none keeps it.
    NoRuleKeeps,
    /// Nothing leads to it, and it is old enough.
    Untagged,
}

/// The decision about a tag or a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The tag's name, or the manifest's digest.
    pub name: String,
    /// The digest that the decision is about. A tag that names another by now is left alone.
    pub digest: String,
    /// Whether it stays.
    pub keep: bool,
    /// Why.
    pub reason: Reason,
}

/// The decisions for one repository. None of them has been carried out yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Of each tag, in the order of the record.
    pub tags: Vec<Decision>,
    /// Of each manifest. Indexes come before what they have.
    pub manifests: Vec<Decision>,
}

/// A fault of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RetentionError {
    /// Nothing is asked of it.
    #[error(
        "the retention rule for {0:?} says nothing; give keep_newest, keep_pushed_within, keep_pulled_within, keep or delete_untagged_after"
    )]
    Empty(String),
    /// All tags would go.
    #[error(
        "the retention rule for {0:?} has keep_newest = 0 and keeps nothing else, so that all its tags would go; give at least 1"
    )]
    KeepsNothing(String),
}

impl RetentionRule {
    /// Whether the rule makes sense.
    ///
    /// # Errors
    /// [`RetentionError`].
    pub fn check(&self) -> Result<(), RetentionError> {
        if !self.judges_tags() && self.delete_untagged_after.is_none() {
            return Err(RetentionError::Empty(self.repositories.to_string()));
        }
        if self.keep_newest == Some(0) && !self.keeps_by_time() && !self.keep {
            return Err(RetentionError::KeepsNothing(self.repositories.to_string()));
        }
        Ok(())
    }

    fn keeps_by_time(&self) -> bool {
        self.keep_pushed_within.is_some() || self.keep_pulled_within.is_some()
    }

    fn judges_tags(&self) -> bool {
        self.keep || self.keep_newest.is_some() || self.keeps_by_time()
    }

    fn covers_tag(&self, tag: &str) -> bool {
        self.judges_tags() && (self.tags.is_empty() || self.tags.iter().any(|pattern| pattern.covers(tag)))
    }
}

/// The places of the rules that cover a tag, or manifests without a tag.
pub fn covering(rules: &[RetentionRule], repository: &str, tag: Option<&str>) -> Vec<usize> {
    let covers = |rule: &RetentionRule| match tag {
        Some(tag) => rule.covers_tag(tag),
        None => rule.delete_untagged_after.is_some(),
    };
    let covering = rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| rule.repositories.covers(repository) && covers(rule));
    covering.map(|(place, _)| place).collect()
}

type ByDigest<'a> = BTreeMap<&'a str, &'a ManifestRecord>;

/// The decisions for a repository by these rules at the time `now`.
pub fn plan(
    repository: &str,
    tags: &[TagRecord],
    manifests: &[ManifestRecord],
    rules: &[RetentionRule],
    immutable: &Immutability,
    now: u64,
) -> Plan {
    let rules: Vec<&RetentionRule> = rules
        .iter()
        .filter(|rule| rule.repositories.covers(repository))
        .collect();
    let by_digest: ByDigest<'_> = manifests
        .iter()
        .map(|manifest| (manifest.digest.as_str(), manifest))
        .collect();
    let judge = Judge {
        newest: rules.iter().map(|rule| newest(rule, tags)).collect(),
        rules: &rules,
        by_digest: &by_digest,
        now,
    };
    let mut decided: Vec<Decided<'_>> = Vec::with_capacity(tags.len());
    for tag in tags {
        let belongs_to = companion_of(&tag.name).and_then(|prefix| with_prefix(&by_digest, &prefix));
        decided.push(match belongs_to {
            _ if immutable.rule_for(repository, &tag.name).is_some() => Decided::Now(true, Reason::Immutable),
            Some(digest) if judge.is_covered(tag) => Decided::With(digest),
            _ => {
                let (keep, reason) = judge.tag(tag);
                Decided::Now(keep, reason)
            }
        });
    }
    let kept = kept_manifests(tags, &decided, manifests, &judge);
    let tags = tags.iter().zip(&decided).map(|(tag, decided)| {
        let (keep, reason) = match decided {
            Decided::Now(keep, reason) => (*keep, *reason),
            Decided::With(digest) if kept.contains_key(digest) => (true, Reason::BelongsToKept),
            Decided::With(_) => (false, Reason::NoRuleKeeps),
        };
        decide(&tag.name, &tag.digest, keep, reason)
    });
    Plan {
        tags: tags.collect(),
        manifests: in_order(manifests, &kept, &judge),
    }
}

fn decide(name: &str, digest: &str, keep: bool, reason: Reason) -> Decision {
    Decision {
        name: name.to_owned(),
        digest: digest.to_owned(),
        keep,
        reason,
    }
}

/// The decision about a tag, or the manifest that it waits for.
enum Decided<'a> {
    /// It stays or goes by itself.
    Now(bool, Reason),
    /// It goes with this manifest.
    With(&'a str),
}

/// The judge of one tag or manifest by itself.
struct Judge<'a> {
    rules: &'a [&'a RetentionRule],
    /// For each rule, the tags that are among its newest.
    newest: Vec<BTreeSet<&'a str>>,
    by_digest: &'a ByDigest<'a>,
    now: u64,
}

impl Judge<'_> {
    fn is_covered(&self, tag: &TagRecord) -> bool {
        self.rules.iter().any(|rule| rule.covers_tag(&tag.name))
    }

    fn tag(&self, tag: &TagRecord) -> (bool, Reason) {
        if !self.is_covered(tag) {
            return (true, Reason::NotCovered);
        }
        let by_digest = self
            .by_digest
            .get(tag.digest.as_str())
            .and_then(|manifest| manifest.pulled);
        let pulled = tag.pulled.max(by_digest);
        for (rule, newest) in self.rules.iter().zip(&self.newest) {
            if !rule.covers_tag(&tag.name) {
                continue;
            }
            if rule.keep {
                return (true, Reason::Kept);
            }
            if newest.contains(tag.name.as_str()) {
                return (true, Reason::Newest);
            }
            if self.within(Some(tag.updated), rule.keep_pushed_within) {
                return (true, Reason::PushedLately);
            }
            if self.within(pulled, rule.keep_pulled_within) {
                return (true, Reason::PulledLately);
            }
        }
        (false, Reason::NoRuleKeeps)
    }

    /// Why a manifest stays although nothing leads to it; nothing if it may go.
    fn untagged(&self, manifest: &ManifestRecord) -> Option<Reason> {
        // Keeping wins: the longest time counts.
        let Some(time) = self
            .rules
            .iter()
            .filter_map(|rule| rule.delete_untagged_after)
            .max()
        else {
            return Some(Reason::NotCovered);
        };
        if self.within(Some(manifest.created), Some(time)) {
            return Some(Reason::PushedLately);
        }
        self.within(manifest.pulled, Some(time))
            .then_some(Reason::PulledLately)
    }

    /// A time in the future is within any period: clocks differ.
    fn within(&self, time: Option<u64>, period: Option<Period>) -> bool {
        let (Some(time), Some(Period(period))) = (time, period) else {
            return false;
        };
        let period = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        self.now.saturating_sub(time) < period
    }
}

/// The tags that a rule keeps by number. Those that belong to other manifests take nobody's place.
fn newest<'a>(rule: &RetentionRule, tags: &'a [TagRecord]) -> BTreeSet<&'a str> {
    let Some(count) = rule.keep_newest else {
        return BTreeSet::new();
    };
    let counts = |tag: &&TagRecord| rule.covers_tag(&tag.name) && companion_of(&tag.name).is_none();
    let mut covered: Vec<&TagRecord> = tags.iter().filter(counts).collect();
    covered.sort_by(|one, other| {
        other
            .updated
            .cmp(&one.updated)
            .then_with(|| one.name.cmp(&other.name))
    });
    covered
        .into_iter()
        .take(count)
        .map(|tag| tag.name.as_str())
        .collect()
}

/// Whether a tag is one by which older clients attach something to what has the digest in its name.
pub fn is_companion(tag: &str) -> bool {
    companion_of(tag).is_some()
}

/// The beginning of the digest to which a tag like `sha256-<hex>` or `sha256-<hex>.sig` belongs: the referrers tag of the distribution
/// specification, which has 64 digits of any digest, and cosign's names.
pub(crate) fn companion_of(tag: &str) -> Option<String> {
    let (algorithm, rest) = tag.split_once('-')?;
    let hex = rest.split('.').next()?;
    let sound = matches!(algorithm, "sha256" | "sha512")
        && hex.len() >= 64
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    sound.then(|| format!("{algorithm}:{hex}"))
}

fn with_prefix<'a>(by_digest: &ByDigest<'a>, prefix: &str) -> Option<&'a str> {
    let from = (Bound::Included(prefix), Bound::Unbounded);
    let (digest, _) = by_digest.range::<str, _>(from).next()?;
    digest.starts_with(prefix).then_some(*digest)
}

/// The manifests that stay, with the reason.
fn kept_manifests<'a>(
    tags: &'a [TagRecord],
    decided: &[Decided<'a>],
    manifests: &'a [ManifestRecord],
    judge: &Judge<'_>,
) -> BTreeMap<&'a str, Reason> {
    let by_digest: ByDigest<'a> = manifests
        .iter()
        .map(|manifest| (manifest.digest.as_str(), manifest))
        .collect();
    // The manifests that stay because of another one: those that refer to it, and those that tags that belong to it name.
    let mut following: BTreeMap<&str, Vec<&'a str>> = BTreeMap::new();
    for manifest in manifests {
        if let Some(subject) = &manifest.subject {
            following.entry(subject).or_default().push(&manifest.digest);
        }
    }
    let aged = manifests
        .iter()
        .filter_map(|manifest| Some((manifest.digest.as_str(), judge.untagged(manifest)?)));
    let mut open: Vec<(&'a str, Reason)> = aged.collect();
    for (tag, decided) in tags.iter().zip(decided) {
        match decided {
            Decided::Now(true, _) => open.push((&tag.digest, Reason::Reachable)),
            Decided::Now(false, _) => {}
            Decided::With(digest) => following.entry(digest).or_default().push(&tag.digest),
        }
    }
    let mut kept: BTreeMap<&'a str, Reason> = BTreeMap::new();
    while let Some((digest, reason)) = open.pop() {
        let Some(manifest) = by_digest.get(digest) else {
            continue;
        };
        // Shown is what leads to it, rather than its age.
        let known = kept.get(digest).copied();
        if known == Some(Reason::Reachable) || (known.is_some() && reason != Reason::Reachable) {
            continue;
        }
        kept.insert(&manifest.digest, reason);
        open.extend(
            manifest
                .children
                .iter()
                .map(|child| (child.as_str(), Reason::Reachable)),
        );
        open.extend(
            following
                .get(digest)
                .into_iter()
                .flatten()
                .map(|digest| (*digest, Reason::Reachable)),
        );
    }
    kept
}

/// The decisions on manifests, indexes before what they have, so that nothing that is removed half-way leaves an index with a hole.
fn in_order(manifests: &[ManifestRecord], kept: &BTreeMap<&str, Reason>, judge: &Judge<'_>) -> Vec<Decision> {
    let mut parents: BTreeMap<&str, usize> = BTreeMap::new();
    for child in manifests.iter().flat_map(|manifest| &manifest.children) {
        *parents.entry(child).or_default() += 1;
    }
    let is_root = |manifest: &&ManifestRecord| !parents.contains_key(manifest.digest.as_str());
    let mut ready: Vec<&ManifestRecord> = manifests.iter().rev().filter(is_root).collect();
    let mut ordered = Vec::with_capacity(manifests.len());
    while let Some(manifest) = ready.pop() {
        let digest = manifest.digest.as_str();
        ordered.push(match kept.get(digest) {
            Some(reason) => decide(digest, digest, true, *reason),
            None => decide(digest, digest, false, Reason::Untagged),
        });
        for child in &manifest.children {
            if let (Some(left), Some(child)) = (
                parents.get_mut(child.as_str()),
                judge.by_digest.get(child.as_str()),
            ) {
                *left -= 1;
                if *left == 0 {
                    ready.push(child);
                }
            }
        }
    }
    ordered
}
