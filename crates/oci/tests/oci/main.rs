//! The promises of the registry client, checked from outside against registries that misbehave on purpose.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod cncf_registry;
mod connections;
mod credential_providers;
mod elsewhere;
mod faults;
mod in_advance;
mod login;
mod manifests;
mod platforms;
mod pull;
mod push;
mod range_streams;
mod settings;
mod support;
mod waiting;
mod ways;
mod wrong_host;
