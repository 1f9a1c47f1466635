//! Attachments for real: with plugins that are scripts, and with those of the distribution.
//!
//! Each test runs in network, mount and process namespaces of its own, which end with it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a test that cannot go on should stop"
)]

mod isolation;
mod real_plugins;
mod script_plugins;
