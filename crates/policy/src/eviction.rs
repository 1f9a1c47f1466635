//! Which copies of upstreams' images go: those that nobody used for a time, and the longest unused while copies take too much room.
//! Pure.
//!
//! Manifests that belong together go together: an index, those that it lists, and those that refer to them. They stay if a client has
//! pushed any of them, if an immutable tag names any of them, and if any of them was used within the grace time. Blobs that something
//! else names take no room of a copy's, since they do not go with it.

use std::collections::{BTreeMap, HashMap};

use xebec_store::{Digest, Holding, TagRecord};

use crate::immutability::Immutability;
use crate::retention::companion_of;

/// An image of an upstream's with all that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Where it is.
    pub repository: String,
    /// Its manifests.
    pub manifests: Vec<Digest>,
    /// The tags that name them.
    pub tags: Vec<String>,
    /// When any of it came, was pulled, or was asked for by a tag last, in milliseconds since 1970.
    pub used: u64,
    /// The blobs that it names, with their sizes.
    pub blobs: BTreeMap<Digest, u64>,
    /// The bytes of its manifests.
    pub own: u64,
    /// Somebody pushed some of it, or it is not to change.
    pub stays: bool,
}

/// How long copies stay, in milliseconds, and how much room they may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// So many bytes.
    pub keep: Option<u64>,
    /// So long after the last use.
    pub keep_for: Option<u64>,
    /// A copy that was used within this time stays.
    pub grace: u64,
}

/// Why a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nobody used it for `keep_for`.
    Unused,
    /// Copies take more room than `keep`, and the others were used later.
    TooMuch,
}

/// The copies in a repository.
pub fn copies(
    repository: &str,
    held: &[Holding],
    tags: &[TagRecord],
    immutable: &Immutability,
) -> Vec<Copied> {
    let places: HashMap<&Digest, usize> = held.iter().map(|holding| &holding.digest).zip(0..).collect();
    let mut groups = Groups::new(held.len());
    for (place, holding) in held.iter().enumerate() {
        for other in holding.children.iter().chain(&holding.subject) {
            if let Some(other) = places.get(other) {
                groups.join(place, *other);
            }
        }
    }
    for tag in tags {
        let belongs_to = companion_of(tag.name.as_str()).and_then(|digest| digest.parse::<Digest>().ok());
        if let (Some(place), Some(other)) = (
            places.get(&tag.digest),
            belongs_to.and_then(|digest| places.get(&digest).copied()),
        ) {
            groups.join(*place, other);
        }
    }
    let mut found: BTreeMap<usize, Copied> = BTreeMap::new();
    for (place, holding) in held.iter().enumerate() {
        let copy = found.entry(groups.of(place)).or_insert_with(|| empty(repository));
        copy.manifests.push(holding.digest.clone());
        copy.used = copy.used.max(holding.created).max(holding.pulled);
        copy.own += holding.size;
        copy.stays |= holding.pushed > 0;
        copy.blobs.extend(holding.blobs.iter().cloned());
    }
    for tag in tags {
        let group = places.get(&tag.digest).map(|place| groups.of(*place));
        if let Some(copy) = group.and_then(|group| found.get_mut(&group)) {
            copy.used = copy.used.max(tag.updated).max(tag.pulled);
            copy.stays |= immutable.rule_for(repository, tag.name.as_str()).is_some();
            copy.tags.push(tag.name.to_string());
        }
    }
    found.into_values().collect()
}

fn empty(repository: &str) -> Copied {
    Copied {
        repository: repository.to_owned(),
        manifests: Vec::new(),
        tags: Vec::new(),
        used: 0,
        blobs: BTreeMap::new(),
        own: 0,
        stays: false,
    }
}

/// Which of `copies` go at the time `now`, the longest unused first.
pub fn plan<'a>(copies: &'a [Copied], limits: &Limits, now: u64) -> Vec<(&'a Copied, Why)> {
    let mut room = Room::of(copies);
    let mut oldest: Vec<&Copied> = copies.iter().filter(|copy| !copy.stays).collect();
    oldest.sort_by(|one, other| (one.used, &one.manifests).cmp(&(other.used, &other.manifests)));
    let mut going = Vec::new();
    for copy in oldest {
        let unused = now.saturating_sub(copy.used);
        if unused < limits.grace.max(1) {
            break;
        }
        let why = match (limits.keep_for, limits.keep) {
            (Some(time), _) if unused >= time => Why::Unused,
            (_, Some(keep)) if room.taken > keep => Why::TooMuch,
            _ => break,
        };
        room.give_back(copy);
        going.push((copy, why));
    }
    going
}

/// The room that copies take.
struct Room<'a> {
    taken: u64,
    /// How many name each blob.
    named: HashMap<&'a Digest, usize>,
}

impl<'a> Room<'a> {
    fn of(copies: &'a [Copied]) -> Self {
        let mut room = Self {
            taken: 0,
            named: HashMap::new(),
        };
        for (digest, _) in copies
            .iter()
            .filter(|copy| copy.stays)
            .flat_map(|copy| &copy.blobs)
        {
            *room.named.entry(digest).or_default() += 1;
        }
        for copy in copies.iter().filter(|copy| !copy.stays) {
            room.taken += copy.own;
            for (digest, size) in &copy.blobs {
                let named = room.named.entry(digest).or_default();
                if *named == 0 {
                    room.taken += size;
                }
                *named += 1;
            }
        }
        room
    }

    fn give_back(&mut self, copy: &Copied) {
        self.taken = self.taken.saturating_sub(copy.own);
        for (digest, size) in &copy.blobs {
            if let Some(named) = self.named.get_mut(digest) {
                *named -= 1;
                if *named == 0 {
                    self.taken = self.taken.saturating_sub(*size);
                }
            }
        }
    }
}

/// Which places belong together.
struct Groups(Vec<usize>);

impl Groups {
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    fn of(&mut self, place: usize) -> usize {
        let mut at = place;
        while let Some(next) = self.0.get(at).copied().filter(|next| *next != at) {
            // Each step halves the way for the next one who asks.
            let further = self.0.get(next).copied().unwrap_or(next);
            if let Some(here) = self.0.get_mut(at) {
                *here = further;
            }
            at = further;
        }
        at
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.of(one), self.of(other));
        if let Some(parent) = self.0.get_mut(other) {
            *parent = one;
        }
    }
}
