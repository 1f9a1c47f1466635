//! What an indexer makes of what comes into a store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod predicting;
mod referring;
mod repository;
