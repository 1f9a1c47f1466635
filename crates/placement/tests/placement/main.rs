//! Texts are read back, sets of copies are added up, and objects survive the loss of shards.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod erasure;
mod made;
mod texts;
mod wanted;
