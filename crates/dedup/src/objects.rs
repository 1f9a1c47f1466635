//! The objects of which a blob is made that is not intact.

use xebec_store::{Digest, Draft, PackKey, PackRecord, RecipeRecord};

/// The object of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackObject {
    pub(crate) object: String,
    pub(crate) size: u64,
    /// None while it is a draft.
    pub(crate) key: Option<PackKey>,
}

impl From<&PackRecord> for PackObject {
    fn from(pack: &PackRecord) -> Self {
        Self {
            object: pack.object.clone(),
            size: pack.size,
            key: Some(pack.key),
        }
    }
}

/// The objects of a recipe, and of the packs that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Objects {
    pub(crate) recipe: Draft,
    /// The SHA-256 of the recipe's object.
    pub(crate) checksum: Digest,
    pub(crate) packs: Vec<PackObject>,
}

impl From<&RecipeRecord> for Objects {
    fn from(record: &RecipeRecord) -> Self {
        Self {
            recipe: Draft {
                object: record.object.clone(),
                size: record.size,
            },
            checksum: record.checksum.clone(),
            packs: record.packs.iter().map(PackObject::from).collect(),
        }
    }
}
