//! Streams of real encoders are taken apart and made again; damaged ones are refused.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod golden;
mod memory;
mod round_trips;
mod zstd_streams;
