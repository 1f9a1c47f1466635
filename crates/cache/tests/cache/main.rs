//! The promises of this crate, checked from outside: fills, injections, full disks, and power cuts at every step.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod fill;
mod full_disk;
mod inject;
mod power;
