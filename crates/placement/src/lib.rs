//! Where copies of a registry's blobs are kept, and in which form.
//!
//! * [`PlaceName`] is the name of an object store. [`Placement`] is where one copy is: on one place, or spread over several by a [`Code`].
//! * [`Kept`] is one copy that an operator asks for: a [`Form`] on a placement. [`Wanted`] is all that is kept of a blob.
//! * [`erasure`] cuts an object into shards for a [`Code`], and puts it together of some of them (`docs/formats/erasure.md`).
//!
//! Promises: the text of each of these types is read back to the same value. Shards of version 1 are read for ever. No panic by any input.
//!
//! May use: no crate of ours. It neither reads nor writes files.

pub mod erasure;
mod kept;
mod name;
mod placement;
mod wanted;

pub use kept::{Form, Kept, KeptError};
pub use name::{MAX_NAME, NameError, PlaceName};
pub use placement::{Code, CodeError, MAX_SHARDS, Placement, PlacementError};
pub use wanted::{TwoForms, Wanted, WantedError};

/// An error holds no more of a text than a person reads.
fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}
