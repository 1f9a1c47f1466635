//! The registry from outside: a server on loopback, and clients of several kinds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod auth;
mod catalogue;
mod changes;
mod commands;
mod connections;
mod copies;
mod deduplication;
mod doctor;
mod hostile;
mod images;
mod indexing;
mod listings;
mod lost;
mod manifests;
mod memory;
mod modes;
mod moving;
mod pages;
mod protected;
mod pushing;
mod redirects;
#[path = "../../../indexing/tests/indexing/referring.rs"]
mod referring;
mod running;
mod small_disk;
mod starts;
mod telling;
mod upkeep;
mod uploads;
mod upstream;
mod upstream_bounds;
mod upstream_health;
mod upstream_tags;
mod watching;
mod webhooks;
