//! A layer is taken apart where it is pushed, and put together again at the registry, which has most of its contents already.
//!
//! * [`take_apart`]: a layer blob becomes a recipe: what frames files, the ids of contents, and how they were compressed.
//! * [`write_contents`]: the contents that the registry lacks, in the order in which it needs them.
//! * [`pack`], [`unpack`]: how contents are compressed on their way.
//! * [`Incoming`], [`Parcel`]: how both come to the registry, and the thread that works there.
//! * [`assemble`]: the recipe, these contents, and those that the registry has, become the same blob again.
//!
//! A content that is there several times in a layer and that the registry lacks is written each time: so the registry reads the stream once,
//! and keeps nothing of it.
//!
//! Promise: [`assemble`] gives the bytes of the blob that was taken apart, if it gets the contents that the recipe names; whoever relies on it
//! compares the digest. It never gives more bytes than the recipe says, and no stream of contents makes it take more than some MiB of memory
//! beside the recipe, its description (both of the caller's limits) and one content. No panic by any input.
//!
//! May use: `native` for what both sides say, `recipe`, `recompress`. It neither opens files nor knows registries: it reads and writes what it is given.

mod apart;
mod assemble;
mod incoming;
mod parcel;
mod plain;

pub use apart::{CannotTakeApart, Written, take_apart, write_contents};
pub use assemble::{AssemblyError, Materials, assemble};
pub use incoming::{Incoming, Order, OrderError, RECIPE};
pub use parcel::Parcel;
pub use plain::{pack, unpack};
