//! Imports and mirrors of directories and registries that are as they should be, and of others.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod common;
mod hostile_directory;
mod import;
mod kill;
mod mirror;
mod old;
