//! The values of deduplication: chunks, packs of them, and recipes, which say how a blob's bytes are made of chunks.
//!
//! The store knows nothing of what is inside of packs and recipes. It knows which recipe needs which pack, and where a chunk is.

use std::collections::BTreeMap;

use xebec_names::PackKey;
use xebec_objects::Digest;
use xebec_placement::Form;

use crate::contents::Blob;

/// The SHA-256 of a chunk's plain bytes.
pub type ChunkDigest = [u8; 32];

/// No pack and no recipe has more bytes: both are written, and recipes are read, in one piece.
pub const LARGEST_PIECE: u64 = 64 << 20;

/// An object that was written for a pack or a recipe, and that is neither yet. It is garbage after `upload_timeout`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The object's key, for `Store::read_object`.
    pub object: String,
    /// How many bytes it has.
    pub size: u64,
}

/// A blob that is to be taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupTask {
    /// The blob, which is intact.
    pub blob: Blob,
    /// How often it was taken, this time included.
    pub tries: u64,
}

/// A pack that is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPack {
    /// Its object.
    pub draft: Draft,
    /// The SHA-256 of the object's bytes.
    pub checksum: Digest,
    /// How many plain bytes its chunks have together.
    pub plain: u64,
    /// Its chunks. One that is named twice counts once.
    pub chunks: Vec<ChunkDigest>,
}

/// A recipe that is to be recorded. Its maker has restored the blob by it, from the objects as they are stored, and compared all of it
/// with the blob's digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecipe {
    /// The blob, with the object that it was made from.
    pub blob: Blob,
    /// The recipe's object.
    pub recipe: Draft,
    /// The SHA-256 of that object's bytes.
    pub checksum: Digest,
    /// How many plain bytes the blob has.
    pub plain: u64,
    /// The packs that were made for it. It needs all of them.
    pub packs: Vec<NewPack>,
    /// The packs that were here already, and that it needs, too.
    pub uses: Vec<PackKey>,
    /// How it was cut; none if nobody may ask.
    pub form: Option<Form>,
}

/// The outcome of recording a recipe. Unless it was recorded nothing has changed, and the drafts are still their writer's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recording {
    /// The blob has the recipe. The keys of the packs that were made for it, in their order.
    Recorded(Vec<PackKey>),
    /// The blob is gone, or has another object by now.
    BlobGone,
    /// A pack that was here already is gone or damaged by now: look its chunks up again.
    PacksGone,
    /// A draft was given up since it was too old: write it again.
    DraftsGone,
}

/// A pack that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRecord {
    /// Its key in the records.
    pub key: PackKey,
    /// The key of its object. A pack's bytes never change.
    pub object: String,
    /// How many bytes the object has.
    pub size: u64,
    /// The SHA-256 of these.
    pub checksum: Digest,
    /// How many plain bytes its chunks have together.
    pub plain: u64,
    /// How many chunks it has.
    pub chunks: u64,
    /// When it was recorded, in milliseconds since 1970.
    pub created: u64,
}

/// A recipe that is here, with the packs that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecipeRecord {
    /// The digest of its blob.
    pub blob: Digest,
    /// The key of its object. Another recipe of the same blob has another object.
    pub object: String,
    /// How many bytes the object has.
    pub size: u64,
    /// The SHA-256 of these.
    pub checksum: Digest,
    /// How many plain bytes the blob has.
    pub plain: u64,
    /// Whether it or one of its packs is known to be damaged.
    pub is_damaged: bool,
    /// The packs that it needs, in the order of their keys.
    pub packs: Vec<PackRecord>,
}

/// Packs that take the place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackReplacement {
    /// The packs that go.
    pub old: Vec<PackKey>,
    /// The packs that have all that any recipe needs of them. Each of these recipes needs all of them from now on.
    pub new: Vec<NewPack>,
    /// The blobs whose recipes need one of the old packs, as `Store::pack_users` has said, each with the object
    /// of its recipe: another recipe of the same blob may need other chunks.
    pub users: BTreeMap<Digest, String>,
}
