//! Blobs are taken apart and restored, over a real store. Streams are those of real encoders; what is stored is damaged on purpose.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod ahead;
mod common;
mod damage;
mod full;
mod kill;
mod lives;
mod repacking;
mod restoring;
mod scrub;
mod staying;
