//! Keeps each file of a registry's layers once, and answers with the same compressed bytes.
//!
//! * [`Deduplicator`] takes blobs apart in the background, one after the other: into chunks, which are in packs, and a recipe. It proves the recipe
//!   by restoring the blob from what is stored, and records it. Then the intact bytes may go.
//! * [`Restorer`] reads blobs that are not intact, whole or in part: the store asks it ([`xebec_store::Restore`]).
//!
//! | module | what it has |
//! | --- | --- |
//! | `worker`, `take_apart`, `packing`, `proof` | from an intact blob to a proven recipe |
//! | `restorer`, `sending`, `units`, `plain`, `opened` | from a recipe to the bytes of a blob |
//! | `expected`, `preconstructed`, `policy` | blobs that are restored before somebody asks |
//! | `cache` | what is made once for all who ask, and kept while there is room |
//! | `settings`, `error` | what goes in, and what may go wrong |
//!
//! Promise: no blob loses its intact bytes before its recipe has given the same digest from the objects as stored. Bytes of a pack or a recipe are
//! compared with their digests before anything is made of them, so wrong ones are never sent. Memory is bounded for all requests together
//! ([`Settings`]). A blob that cannot be taken apart in bounded time and memory stays intact.
//!
//! May use: `recipe`, `recompress`, `store`, `kernel`. It knows no HTTP.

mod cache;
mod error;
mod expected;
mod opened;
mod packing;
mod plain;
mod policy;
mod preconstructed;
mod proof;
mod restorer;
mod sending;
mod settings;
mod take_apart;
mod units;
mod worker;

pub use cache::Hits;
pub use restorer::{Figures, Restorer};
pub use settings::{Cutting, Settings};
pub use worker::{Deduplicator, Done, Spent};
