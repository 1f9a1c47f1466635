//! Facts that the registry acknowledged, and that so have to be true after every kill; and observations that contradict them.
//!
//! Each tag and each manifest has one client that changes it. Between its request and the answer, and for ever if no answer comes, both
//! may be true: what was before, and what was asked for.

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;

/// A repository's number, and an image's.
pub(super) type Place = (usize, u64);
/// A repository's number, and a tag.
pub(super) type TagPlace = (usize, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Is,
    MayBe,
    IsNot,
}

/// The images that a tag may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) possible: Vec<Option<u64>>,
    /// How often that has changed.
    changes: u64,
}

impl Named {
    /// The image that it names, if that is sure.
    pub(super) fn sure(&self) -> Option<u64> {
        match self.possible.as_slice() {
            [Some(seed)] => Some(*seed),
            _ => None,
        }
    }

    fn set(&mut self, possible: Vec<Option<u64>>) {
        self.possible = possible;
        self.changes += 1;
    }

    fn or(&mut self, other: Option<u64>) {
        let mut possible = self.possible.clone();
        if possible.is_empty() {
            possible.push(None);
        }
        if !possible.contains(&other) {
            possible.push(other);
        }
        self.set(possible);
    }
}

/// How often clients did each thing that the registry acknowledged, and how often an answer was not as it had to be.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) blobs: u64,
    pub(super) manifests: u64,
    pub(super) deleted: u64,
    pub(super) pulled: u64,
    pub(super) resumed: u64,
    pub(super) collections: u64,
    pub(super) lost: u64,
    pub(super) wrong: u64,
    pub(super) odd: u64,
}

#[derive(Default)]
struct Facts {
    manifests: BTreeMap<Place, Fact>,
    tags: BTreeMap<TagPlace, Named>,
    /// Blobs that were acknowledged, and when the request was sent.
    fresh: Vec<(Place, Instant)>,
    counts: Counts,
    said: Vec<String>,
    /// The registry's disk takes nothing.
    is_without_power: bool,
}

/// The knowledge of all clients together.
#[derive(Default)]
pub(super) struct Model(Mutex<Facts>);

impl Model {
    /// The registry's disk has power from now on, or none.
    pub(super) fn power(&self, is_there: bool) {
        self.0.lock().is_without_power = !is_there;
    }

    pub(super) fn is_without_power(&self) -> bool {
        self.0.lock().is_without_power
    }

    pub(super) fn counts(&self) -> Counts {
        self.0.lock().counts.clone()
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().counts);
    }

    /// Something that must not be; the first few are told.
    pub(super) fn fault(&self, what: String, kind: impl FnOnce(&mut Counts) -> &mut u64) {
        let mut facts = self.0.lock();
        *kind(&mut facts.counts) += 1;
        if facts.said.len() < 10 {
            facts.said.push(what);
        }
    }

    pub(super) fn said(&self) -> Vec<String> {
        self.0.lock().said.clone()
    }

    pub(super) fn manifest(&self, place: Place) -> Fact {
        let facts = self.0.lock();
        facts.manifests.get(&place).copied().unwrap_or(Fact::IsNot)
    }

    pub(super) fn tag(&self, place: &TagPlace) -> Named {
        self.0.lock().tags.get(place).cloned().unwrap_or_default()
    }

    /// A blob is there.
    pub(super) fn blob(&self, place: Place, sent: Instant) {
        let mut facts = self.0.lock();
        facts.counts.blobs += 1;
        facts.fresh.push((place, sent));
    }

    /// The blobs that were acknowledged since that moment. Older ones are forgotten.
    pub(super) fn fresh(&self, since: Instant) -> Vec<(Place, Instant)> {
        let mut facts = self.0.lock();
        facts.fresh.retain(|(_, sent)| *sent >= since);
        facts.fresh.clone()
    }

    /// A manifest is being pushed under a tag.
    pub(super) fn pushing(&self, (repository, seed): Place, tag: &str) {
        let mut facts = self.0.lock();
        facts.manifests.insert((repository, seed), Fact::MayBe);
        let named = facts.tags.entry((repository, tag.to_owned())).or_default();
        named.or(Some(seed));
    }

    pub(super) fn pushed(&self, (repository, seed): Place, tag: &str) {
        let mut facts = self.0.lock();
        facts.counts.manifests += 1;
        facts.manifests.insert((repository, seed), Fact::Is);
        let named = facts.tags.entry((repository, tag.to_owned())).or_default();
        named.set(vec![Some(seed)]);
    }

    /// The registry has said that it did not take it.
    pub(super) fn refused(&self, (repository, seed): Place, tag: &str) {
        let mut facts = self.0.lock();
        facts.manifests.insert((repository, seed), Fact::IsNot);
        let named = facts.tags.entry((repository, tag.to_owned())).or_default();
        let possible = named.possible.iter().copied().filter(|one| *one != Some(seed));
        named.set(possible.collect());
    }

    /// A manifest is being deleted, with the tags that name it.
    pub(super) fn deleting(&self, (repository, seed): Place) {
        let mut facts = self.0.lock();
        facts.manifests.insert((repository, seed), Fact::MayBe);
        for named in of_image(&mut facts.tags, repository, seed) {
            named.or(None);
        }
    }

    pub(super) fn deleted(&self, (repository, seed): Place) {
        let mut facts = self.0.lock();
        facts.counts.deleted += 1;
        facts.manifests.insert((repository, seed), Fact::IsNot);
        for named in of_image(&mut facts.tags, repository, seed) {
            let others = named.possible.iter().copied().filter(|one| *one != Some(seed));
            named.set(others.collect());
        }
    }

    pub(super) fn deleting_tag(&self, place: &TagPlace) {
        let mut facts = self.0.lock();
        facts.tags.entry(place.clone()).or_default().or(None);
    }

    pub(super) fn deleted_tag(&self, place: &TagPlace) {
        let mut facts = self.0.lock();
        facts.counts.deleted += 1;
        facts.tags.entry(place.clone()).or_default().set(vec![None]);
    }

    /// All tags that surely name an image.
    pub(super) fn sure_tags(&self) -> Vec<TagPlace> {
        let facts = self.0.lock();
        let sure = facts.tags.iter().filter(|(_, named)| named.sure().is_some());
        sure.map(|(place, _)| place.clone()).collect()
    }

    /// All manifests, with the facts about them.
    pub(super) fn manifests(&self) -> Vec<(Place, Fact)> {
        let facts = self.0.lock();
        facts
            .manifests
            .iter()
            .map(|(place, fact)| (*place, *fact))
            .collect()
    }
}

/// The tags that may name an image.
fn of_image(
    tags: &mut BTreeMap<TagPlace, Named>,
    repository: usize,
    seed: u64,
) -> impl Iterator<Item = &mut Named> {
    let own = tags.iter_mut().filter(move |((own, _), _)| *own == repository);
    own.map(|(_, named)| named)
        .filter(move |named| named.possible.contains(&Some(seed)))
}
