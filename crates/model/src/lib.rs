//! The values that go into a registry's store and come out of it.
//!
//! * Blobs, manifests, tags, and what is listed of them, are here at the top.
//! * [`figures`]: sums for those who watch a store.
//! * [`recipes`]: of deduplication: chunks, packs and recipes.
//! * [`replicas`]: of copies on several places.
//! * [`space`]: the room that everything takes up.
//!
//! Promise: a value says what the records say. Nothing here reads or writes anything.
//!
//! May use: `names`, `objects` for digests, and `placement`; no other crate of Xebec.

mod contents;
pub mod figures;
pub mod recipes;
pub mod replicas;
pub mod space;

pub use self::contents::*;
