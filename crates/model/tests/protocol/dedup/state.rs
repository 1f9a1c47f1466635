//! The records and objects of two blobs with a chunk in common, their recipes, and packs that have the chunk.

pub(super) use super::super::state::Object;
use super::Variant;
use super::clients::Client;

/// Clients have numbers below it, and each may make a pack of that number.
const CLIENTS: usize = 3;
/// The pack that was here before, and the keys of it and of the recipe that needs it.
pub(super) const OLD_PACK: usize = CLIENTS;
pub(super) const OLD_RECIPE: usize = 10;
const PACKS: usize = CLIENTS + 1;
/// Keys of objects: two of blobs, one of a push, two of each client, and the old pack's and recipe's.
const KEYS: usize = 11;
/// The key of the object that a push brings.
pub(super) const PUSHED: usize = 2;

/// The key of a pack's object.
pub(super) fn pack_key(pack: usize) -> usize {
    3 + 2 * pack
}

/// The key of the recipe that a client writes.
pub(super) fn recipe_key(client: usize) -> usize {
    4 + 2 * client
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Blob {
    /// The key of its object; none if it is not intact.
    pub(super) object: Option<usize>,
    pub(super) is_linked: bool,
    pub(super) condemned: bool,
    pub(super) damaged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recipe {
    pub(super) key: usize,
    pub(super) pack: usize,
    pub(super) damaged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pack {
    pub(super) condemned: bool,
    pub(super) damaged: bool,
    pub(super) unchecked: bool,
}

impl Pack {
    pub(super) fn needed() -> Self {
        Self {
            condemned: false,
            damaged: false,
            unchecked: false,
        }
    }

    pub(super) fn is_sound(self) -> bool {
        !self.condemned && !self.damaged
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) blobs: [Option<Blob>; 2],
    pub(super) recipes: [Option<Recipe>; 2],
    pub(super) packs: [Option<Pack>; PACKS],
    /// The pack in which the chunk is looked for.
    pub(super) chunk: Option<usize>,
    pub(super) drafts: [bool; KEYS],
    pub(super) being_written: [bool; KEYS],
    pub(super) garbage: [bool; KEYS],
    pub(super) objects: [Object; KEYS],
    /// The upload of a push.
    pub(super) has_upload: bool,
    pub(super) clients: Vec<Client>,
    /// The pack that a collection has seen to be needed by nothing, if it notes that in a transaction of its own.
    pub(super) seen: Option<usize>,
    /// The object that a disk has lost, while nobody has noticed.
    pub(super) lost: Option<usize>,
    /// The fault that a client found.
    pub(super) complaint: Option<&'static str>,
}

impl State {
    pub(super) fn intact() -> Self {
        let mut state = Self::default();
        for blob in 0..2 {
            state.objects[blob] = Object::Whole;
            state.blobs[blob] = Some(Blob {
                object: Some(blob),
                is_linked: true,
                condemned: false,
                damaged: false,
            });
        }
        state
    }

    /// The first blob has a recipe over the old pack.
    pub(super) fn add_old_recipe(&mut self) {
        self.packs[OLD_PACK] = Some(Pack::needed());
        self.recipes[0] = Some(Recipe {
            key: OLD_RECIPE,
            pack: OLD_PACK,
            damaged: false,
        });
        self.chunk = Some(OLD_PACK);
        self.objects[pack_key(OLD_PACK)] = Object::Whole;
        self.objects[OLD_RECIPE] = Object::Whole;
    }

    pub(super) fn is_needed(&self, pack: usize) -> bool {
        self.recipes.iter().flatten().any(|recipe| recipe.pack == pack)
    }

    pub(super) fn is_sound(&self, pack: usize) -> bool {
        self.packs[pack].is_some_and(Pack::is_sound)
    }

    /// The part of a transaction by which a recipe goes.
    pub(super) fn forget_recipe(&mut self, blob: usize, is_noted: bool) {
        if let Some(recipe) = self.recipes[blob].take() {
            self.garbage[recipe.key] = true;
            let pack = self.packs[recipe.pack].as_mut();
            pack.into_iter().for_each(|pack| pack.unchecked |= is_noted);
        }
    }

    /// The transaction that notes that a pack is damaged.
    pub(super) fn note_damage(&mut self, pack: usize, variant: Variant) {
        self.packs[pack].iter_mut().for_each(|pack| pack.damaged = true);
        if variant == Variant::DamageUnspread {
            return;
        }
        for (recipe, blob) in self.recipes.iter_mut().zip(&mut self.blobs) {
            if let Some(recipe) = recipe.as_mut().filter(|recipe| recipe.pack == pack) {
                recipe.damaged = true;
                let absent = blob.as_mut().filter(|blob| blob.object.is_none());
                absent.into_iter().for_each(|blob| blob.damaged = true);
            }
        }
    }

    /// Whether all is there of a blob that is here.
    pub(super) fn is_whole(&self, blob: usize) -> bool {
        let is_there = |key: usize| self.objects[key] == Object::Whole;
        let Some(found) = self.blobs[blob] else {
            return false;
        };
        match (found.object, self.recipes[blob]) {
            (Some(object), _) => is_there(object),
            (None, Some(recipe)) => {
                let has_pack = self.packs[recipe.pack].is_some() && is_there(pack_key(recipe.pack));
                !recipe.damaged && is_there(recipe.key) && has_pack
            }
            (None, None) => false,
        }
    }

    fn needs_lost(&self, blob: usize) -> bool {
        let recipe =
            self.recipes[blob].filter(|_| self.blobs[blob].is_some_and(|blob| blob.object.is_none()));
        recipe.is_some_and(|recipe| self.lost == Some(pack_key(recipe.pack)))
    }

    /// How many records an object has.
    fn records(&self, key: usize) -> usize {
        let of_blobs = self
            .blobs
            .iter()
            .flatten()
            .filter(|blob| blob.object == Some(key));
        let of_recipes = self.recipes.iter().flatten().filter(|recipe| recipe.key == key);
        let is_pack = (0..PACKS).any(|pack| self.packs[pack].is_some() && pack_key(pack) == key);
        let others = [
            self.drafts[key],
            self.garbage[key],
            self.has_upload && key == PUSHED,
            is_pack,
        ];
        of_blobs.count() + of_recipes.count() + others.into_iter().filter(|is_so| *is_so).count()
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.complaint.is_some() {
            return self.complaint;
        }
        for blob in 0..2 {
            let is_shown = self.blobs[blob].is_some_and(|blob| !blob.damaged);
            if is_shown && !self.is_whole(blob) && !self.needs_lost(blob) {
                return Some("a blob has neither its object nor a recipe with all packs");
            }
            if self.recipes[blob].is_some() && self.blobs[blob].is_none() {
                return Some("a recipe is of no blob");
            }
        }
        for pack in 0..PACKS {
            let is_needed = self.is_needed(pack);
            match self.packs[pack] {
                None if is_needed => return Some("a recipe needs a pack that is gone"),
                Some(found) if is_needed && found.condemned => {
                    return Some("a recipe needs a pack that goes");
                }
                Some(found) if !is_needed && !found.unchecked => {
                    return Some("no collection looks at a pack that nothing needs");
                }
                _ => {}
            }
        }
        (0..KEYS).find_map(|key| match (self.records(key), self.objects[key]) {
            (0, Object::Part | Object::Whole) => Some("an object has no record"),
            (0 | 1, _) => None,
            _ => Some("an object has two records"),
        })
    }

    /// The fault in what all collections have left.
    pub(super) fn left(&self) -> Option<&'static str> {
        if self.fault().is_some() {
            return self.fault();
        }
        if self.blobs.iter().flatten().any(|blob| !blob.is_linked) {
            return Some("a blob that no repository has stays");
        }
        if (0..PACKS).any(|pack| self.packs[pack].is_some() && !self.is_needed(pack)) {
            return Some("a pack that nothing needs stays");
        }
        let is_loose =
            |key: usize| self.garbage[key] || self.drafts[key] || (self.has_upload && key == PUSHED);
        (0..KEYS)
            .any(is_loose)
            .then_some("an object that nothing needs stays")
    }
}
