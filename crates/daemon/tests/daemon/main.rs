//! The daemon's parts from outside.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "a test that cannot go on should stop"
)]

#[path = "../../../kernel/tests/isolation/mod.rs"]
mod isolation;
mod removed;
