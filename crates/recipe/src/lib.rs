//! Cuts plain bytes into chunks that are kept once, and says how blobs are put together of them.
//!
//! * [`Splitter`] cuts plain bytes (a tar stream, or any) into what frames files, runs of zeros, and chunks: the contents of files.
//! * [`Recipe`] says how a blob is put together: its frame, its chunks in order, and the description of its compression, which this crate does not read.
//!   [`RecipeBuilder`] makes one of the pieces of a [`Splitter`].
//! * [`PackWriter`] puts many chunks into one pack, similar ones together; [`PackIndex`] finds a chunk in a pack by reading its end and one frame.
//!
//! Promise: joining the pieces of a [`Splitter`] gives the bytes that it got, whatever they are. Recipes and packs that were written are read for ever
//! (`docs/formats/recipe.md`). No panic by any input. Memory: [`MOST_CHUNK`] and about 1.5 MiB for a [`Splitter`]; what [`Limits`] say for a [`Recipe`],
//! and three times as much while it is read or written; what was added (at most [`MOST_PACK`]) and the pack for a [`PackWriter`]; some 200 bytes a chunk
//! for a [`PackIndex`].
//!
//! May use: no crate of ours. It neither reads nor writes files.

mod chunk;
mod format;
mod numbers;
mod pack;
mod recipe;
mod section;
mod split;

pub use chunk::{ChunkId, Hint, MOST_CHUNK};
pub use format::InvalidRecipe;
pub use pack::damaged::Damaged;
pub use pack::index::{FromEnd, PackIndex, Place};
pub use pack::writer::{CannotAdd, Options, Pack, PackWriter};
pub use pack::{MOST_FRAME, MOST_INDEX, MOST_PACK};
pub use recipe::{Blob, CannotBuild, Limits, Part, PartIn, Recipe, RecipeBuilder};
pub use split::{Cutter, Piece, Splitter};
