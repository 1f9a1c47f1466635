//! The values of replicas: copies of an object on other places than the main one, whole or in shards of an erasure code.

use xebec_names::{PackKey, RepositoryName};
use xebec_objects::Digest;
use xebec_placement::{Code, Form, PlaceName, Wanted};

use crate::contents::Blob;
use crate::recipes::{PackRecord, RecipeRecord};

/// What an object is to the store: which record has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The bytes of an intact blob.
    Blob(Digest),
    /// A recipe of that blob.
    Recipe(Digest),
    /// A pack.
    Pack(PackKey),
}

/// An object of a blob, a recipe or a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which record has it.
    pub owner: Owner,
    /// Its name there. An object that leaves the main place, or comes back, gets another one.
    pub name: String,
    /// How many bytes it has.
    pub size: u64,
    /// The digest of these.
    pub checksum: Digest,
}

impl Held {
    /// The bytes of a blob, if it is intact.
    pub fn of_blob(blob: &Blob) -> Option<Self> {
        Some(Self {
            owner: Owner::Blob(blob.digest.clone()),
            name: blob.object.clone()?,
            size: blob.size,
            checksum: blob.digest.clone(),
        })
    }

    /// The object of a recipe.
    pub fn of_recipe(recipe: &RecipeRecord) -> Self {
        Self {
            owner: Owner::Recipe(recipe.blob.clone()),
            name: recipe.object.clone(),
            size: recipe.size,
            checksum: recipe.checksum.clone(),
        }
    }

    /// The object of a pack.
    pub fn of_pack(pack: &PackRecord) -> Self {
        Self {
            owner: Owner::Pack(pack.key),
            name: pack.object.clone(),
            size: pack.size,
            checksum: pack.checksum.clone(),
        }
    }
}

/// Which part of an object a replica has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// All of it.
    Whole,
    /// A shard of this code.
    Shard {
        /// The code.
        code: Code,
        /// Which shard, from 0.
        index: u8,
    },
}

/// A replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its key on its place.
    pub key: String,
    /// Where it is.
    pub place: PlaceName,
    /// The name of the object that it is of.
    pub object: String,
    /// Which part of it.
    pub part: Part,
    /// How many bytes the replica has.
    pub size: u64,
    /// The digest of these.
    pub checksum: Digest,
    /// How many bytes the object has.
    pub whole: u64,
    /// Whether it is known to have wrong bytes, or to be gone.
    pub is_damaged: bool,
}

/// A blob whose copies are to be looked at, and all that decides where they are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The blob.
    pub blob: Blob,
    /// As of which change this is: `Store::placed` wants to know.
    pub seen: i64,
    /// The repositories that have it, 10,000 at most.
    pub repositories: Vec<RepositoryName>,
    /// Whether there are no more.
    pub has_all_repositories: bool,
    /// When its recipe was proven, in milliseconds since 1970; 0: it has none.
    pub proven: u64,
    /// What was wanted of it when it was looked at last.
    pub wanted: Wanted,
    /// Its recipe, if it has a sound one, and in which form that is.
    pub recipe: Option<(RecipeRecord, Option<Form>)>,
    /// Whether it waits to be taken apart.
    pub waits: bool,
    /// Why it stays intact; empty if that is not so.
    pub problem: String,
    /// Until when it counts as popular, in milliseconds since 1970; 0: it does not.
    pub popular_until: u64,
}

/// A pack whose copies are to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackStanding {
    /// The pack.
    pub pack: PackRecord,
    /// As of which change this is.
    pub seen: i64,
    /// What is wanted of the blobs whose recipes need it, all together.
    pub wanted: Wanted,
}

/// A blob or pack whose copies are looked at later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Postponed {
    /// A blob.
    Blob(Digest),
    /// A pack.
    Pack(PackKey),
}

/// What was changed so that an object is where it is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// Replicas, or objects on the main place, that were made.
    pub made: u64,
    /// Their bytes.
    pub made_bytes: u64,
    /// Those that are garbage now.
    pub dropped: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
}

impl std::ops::AddAssign for Placed {
    fn add_assign(&mut self, other: Self) {
        self.made += other.made;
        self.made_bytes += other.made_bytes;
        self.dropped += other.dropped;
        self.dropped_bytes += other.dropped_bytes;
    }
}

/// What a place has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceSpace {
    /// Its name.
    pub place: PlaceName,
    /// Replicas, shards included.
    pub replicas: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that are known to be damaged or gone.
    pub damaged: u64,
}
