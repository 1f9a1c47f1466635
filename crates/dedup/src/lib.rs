//! Keeps each file of a registry's layers once, and answers with the same compressed bytes.
//!
//! * [`Deduplicator`] takes blobs apart in the background, one after the other: into chunks, which are in packs, and a recipe. It proves the recipe
//!   by restoring the blob from what is stored, and records it. Then the intact bytes may go. It also puts packs together anew of which little is
//!   needed any more.
//! * [`Restorer`] reads blobs that are not intact, whole or in part: the store asks it ([`xebec_store::Restore`]). It also reads single
//!   contents of a layer ([`Source`]), of which another one may be put together.
//!
//! | module | what it has |
//! | --- | --- |
//! | `worker`, `take_apart`, `packing`, `pack_files`, `proof` | from an intact blob to a proven recipe |
//! | `repack`, `needed`, `joining`, `pack_files` | which packs have much that is not needed, and packs in the place of these |
//! | `restorer`, `sending`, `making`, `units`, `plain`, `opened`, `objects` | from a recipe to the bytes of a blob |
//! | `source` | single contents of a layer |
//! | `damage` | what is noted when stored bytes are wrong |
//! | `expected`, `preconstructed`, `policy`, `busy` | blobs that are restored before somebody asks |
//! | `cache` | what is made once for all who ask, and kept while there is room |
//! | `aside`, `threads`, `stage` | threads of a low priority, which threads restore, and points at which tests end the process |
//! | `settings`, `forms`, `error` | what goes in, who has a say in it, and what may go wrong |
//!
//! Promise: no blob loses its intact bytes before its recipe has given the same digest from the objects as stored. Bytes of a pack or a recipe are
//! compared with their digests before anything is made of them, so wrong ones are never sent. No pack is replaced before all that any recipe needs of
//! it was read again from the new one. Memory is bounded for all requests together
//! ([`Settings`]). A blob that cannot be taken apart in bounded time and memory stays intact.
//!
//! May use: `placement`, `recipe`, `recompress`, `store`, `kernel`. It knows no HTTP.

mod aside;
mod busy;
mod cache;
mod damage;
mod error;
mod expected;
mod forms;
mod joining;
mod making;
mod needed;
mod objects;
mod opened;
mod pack_files;
mod packing;
mod plain;
mod policy;
mod preconstructed;
mod proof;
mod repack;
mod restorer;
mod sending;
mod settings;
mod source;
mod stage;
mod take_apart;
mod threads;
mod units;
mod worker;

pub use cache::Hits;
pub use forms::{Forms, How};
pub use repack::Repacked;
pub use restorer::{Figures, Restorer};
pub use settings::{Cutting, Settings};
pub use source::Source;
pub use stage::{Stage, observe_stages};
pub use worker::{Deduplicator, Done, Spent};
