//! All that is kept of a blob: `intact@main files@cold`.
//!
//! The text is stored. A set has one text: its words are in the order of [`Kept`], each once, with one space between them. So two texts
//! are equal if the sets are.
//!
//! How many places may be lost is found by trying: of each set of places it is known whether a blob survives its loss. The number of sets
//! doubles with each place, so beyond [`MOST_TRIED`] places a bound from below is given.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::kept::{Form, Kept, KeptError};
use crate::name::PlaceName;
use crate::placement::Placement;

/// With so many places that have only shards, each set of them is tried: 65,536 sets.
const MOST_TRIED: usize = 16;

/// What is kept of a blob. The empty set is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wanted {
    intact: BTreeSet<Placement>,
    apart: BTreeSet<Placement>,
    /// Some if and only if `apart` has something, and never [`Form::Intact`].
    form: Option<Form>,
}

/// One list asks for two recipes of a blob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{files} and {chunks} ask for two recipes, and a blob has one recipe; write files or chunks for all of them"
)]
pub struct TwoForms {
    /// A copy in files.
    pub files: Kept,
    /// A copy in chunks.
    pub chunks: Kept,
}

/// A text that is no set of copies. Each names the word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WantedError {
    /// A word is no copy.
    #[error(transparent)]
    Word(#[from] KeptError),
    /// Words are sorted, and each is there once.
    #[error("the word {0:?} is not behind the words that come before it in order")]
    Order(String),
    /// Two forms that exclude each other.
    #[error(transparent)]
    TwoForms(#[from] TwoForms),
}

impl Wanted {
    /// The set of the copies of a list. A copy that is listed twice is kept once.
    ///
    /// # Errors
    /// [`TwoForms`], if the list has both files and chunks.
    pub fn of(kept: &[Kept]) -> Result<Self, TwoForms> {
        let first = |form| kept.iter().find(|kept| kept.form == form);
        if let (Some(files), Some(chunks)) = (first(Form::Files), first(Form::Chunks)) {
            return Err(TwoForms {
                files: files.clone(),
                chunks: chunks.clone(),
            });
        }
        let mut wanted = Self::default();
        for Kept { form, on } in kept {
            if *form == Form::Intact {
                wanted.intact.insert(on.clone());
            } else {
                wanted.apart.insert(on.clone());
                wanted.form = Some(*form);
            }
        }
        Ok(wanted)
    }

    /// Where the bytes are kept as they were pushed.
    pub fn intact(&self) -> &BTreeSet<Placement> {
        &self.intact
    }

    /// Where the recipe and its packs are kept.
    pub fn apart(&self) -> &BTreeSet<Placement> {
        &self.apart
    }

    /// The form of the recipe: [`Form::Files`] or [`Form::Chunks`], and `None` if none is kept.
    pub fn form(&self) -> Option<Form> {
        self.form
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.intact.is_empty() && self.apart.is_empty()
    }

    /// The copies, in order.
    pub fn kept(&self) -> impl Iterator<Item = Kept> {
        let copy = |form| move |on: &Placement| Kept { form, on: on.clone() };
        let intact = self.intact.iter().map(copy(Form::Intact));
        let apart = self.form.map(|form| self.apart.iter().map(copy(form)));
        intact.chain(apart.into_iter().flatten())
    }

    /// All places that have a part of a copy.
    pub fn places(&self) -> BTreeSet<PlaceName> {
        self.placements().flat_map(Placement::places).cloned().collect()
    }

    fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.intact.iter().chain(&self.apart)
    }

    /// What either of both keeps, for a blob of two repositories. If one asks for files and the other for chunks, the recipe is in chunks:
    /// chunks have all that files save.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            intact: &self.intact | &other.intact,
            apart: &self.apart | &other.apart,
            form: self.form.max(other.form),
        }
    }

    /// How many places may be lost, whichever they are, so that a blob is still whole somewhere. If more than 16 places have only shards,
    /// it may be more than the answer.
    pub fn survives(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        // A blob is gone only when each place with a whole copy is lost. Those lost, what is left of the spread ones?
        let single = |placement: &&Placement| matches!(placement, Placement::At(_));
        let whole: BTreeSet<&PlaceName> = self
            .placements()
            .filter(single)
            .flat_map(Placement::places)
            .collect();
        let spread: Vec<Shards<'_>> = self
            .placements()
            .filter(|placement| !single(placement))
            .filter_map(|placement| Shards::without(placement, &whole))
            .collect();
        let fewest = fewest_to_lose(&spread);
        (whole.len() + fewest).saturating_sub(1)
    }
}

/// The places that have shards of a copy, and nothing else.
struct Shards<'a> {
    places: BTreeSet<&'a PlaceName>,
    /// So many of them must be lost before the copy is.
    resists: usize,
}

impl<'a> Shards<'a> {
    /// What is left of a placement when other places are lost; `None` if that is not enough to read the copy.
    fn without(placement: &'a Placement, lost: &BTreeSet<&'a PlaceName>) -> Option<Self> {
        let places: BTreeSet<&PlaceName> = placement.places().iter().collect();
        let places: BTreeSet<&PlaceName> = places.difference(lost).copied().collect();
        let beyond = places.len().checked_sub(placement.needs())?;
        Some(Self {
            places,
            resists: beyond + 1,
        })
    }
}

/// The size of the smallest set of places whose loss makes each of the copies unreadable.
fn fewest_to_lose(spread: &[Shards<'_>]) -> usize {
    let places: BTreeSet<&PlaceName> = spread.iter().flat_map(|shards| &shards.places).copied().collect();
    if places.len() > MOST_TRIED {
        return disjoint(spread);
    }
    let places: Vec<&PlaceName> = places.into_iter().collect();
    let copies: Vec<(u32, u32)> = spread
        .iter()
        .map(|shards| {
            let bit =
                |(index, place): (usize, &&PlaceName)| u32::from(shards.places.contains(*place)) << index;
            let mask = places.iter().enumerate().map(bit).sum();
            (mask, u32::try_from(shards.resists).unwrap_or(u32::MAX))
        })
        .collect();
    let kills = |lost: u32| {
        copies
            .iter()
            .all(|(mask, resists)| (mask & lost).count_ones() >= *resists)
    };
    let all = 1_u32 << places.len();
    let fewest = (0..all).filter(|lost| kills(*lost)).map(u32::count_ones).min();
    fewest.map_or(places.len(), |fewest| fewest as usize)
}

/// At least so many places must be lost: copies that have no place in common are lost by different places.
fn disjoint(spread: &[Shards<'_>]) -> usize {
    let mut used: BTreeSet<&PlaceName> = BTreeSet::new();
    let mut sum = 0;
    let mut by_resistance: Vec<&Shards<'_>> = spread.iter().collect();
    by_resistance.sort_by_key(|shards| std::cmp::Reverse(shards.resists));
    for shards in by_resistance {
        if used.is_disjoint(&shards.places) {
            used.extend(&shards.places);
            sum += shards.resists;
        }
    }
    sum
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, kept) in self.kept().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{kept}")?;
        }
        Ok(())
    }
}

impl FromStr for Wanted {
    type Err = WantedError;

    fn from_str(text: &str) -> Result<Self, WantedError> {
        let mut all: Vec<Kept> = Vec::new();
        let words = text.split(' ').filter(|_| !text.is_empty());
        for word in words {
            let kept: Kept = word.parse()?;
            if all.last().is_some_and(|last| *last >= kept) {
                return Err(WantedError::Order(crate::shortened(word)));
            }
            all.push(kept);
        }
        Ok(Self::of(&all)?)
    }
}
