//! The room that everything takes up.

use crate::replicas::PlaceSpace;

/// The room that blobs, packs and recipes take up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Blobs.
    pub blobs: u64,
    /// Their bytes, as they were pushed.
    pub blob_bytes: u64,
    /// Intact blobs: those that have an object with their bytes.
    pub intact: u64,
    /// The bytes of these.
    pub intact_bytes: u64,
    /// Packs.
    pub packs: u64,
    /// The bytes of their objects.
    pub pack_bytes: u64,
    /// The chunks in them.
    pub chunks: u64,
    /// The plain bytes in them.
    pub chunk_bytes: u64,
    /// Blobs with a recipe.
    pub recipes: u64,
    /// The bytes of the recipes' objects.
    pub recipe_bytes: u64,
    /// The plain bytes of the blobs with a recipe. Chunks that several of them share count for each.
    pub plain_bytes: u64,
    /// Blobs that wait to be taken apart.
    pub waiting: u64,
    /// Blobs that are too small for that.
    pub small: u64,
    /// Blobs that could not be taken apart, for any reason.
    pub kept_blobs: u64,
    /// Why blobs stay intact, and how many: the most common reasons, 64 at most.
    pub kept: Vec<(String, u64)>,
    /// The bytes of all of these objects that are not on the main place.
    pub away_bytes: u64,
    /// What the other places have.
    pub places: Vec<PlaceSpace>,
    /// Blobs, packs and links to blobs whose copies are still to be looked at; 0 if there never were rules for copies.
    pub unplaced: u64,
}

/// The room of the blobs of one repository. Other repositories may have some of them, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepositorySpace {
    /// Its blobs.
    pub blobs: u64,
    /// Their bytes, as they were pushed.
    pub bytes: u64,
    /// Those of them that are kept as recipes only.
    pub recipes: u64,
    /// The bytes of these, as they were pushed.
    pub recipe_bytes: u64,
}
