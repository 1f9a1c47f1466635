//! The store from outside, over each engine that is here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod blobs;
mod common;
mod listings;
mod manifests;
mod model;
mod uploads;
