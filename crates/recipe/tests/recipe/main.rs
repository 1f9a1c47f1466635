//! Bytes are split and joined, recipes and packs are written and read again, and damaged ones are refused.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod golden;
mod made;
mod packs;
mod recipes;
mod splitting;
