//! The kernel as this crate uses it: mounts, events, processes. Whatever mounts or kills runs in a world of its own (`isolation`).

#[path = "../isolation/mod.rs"]
mod isolation;

mod automount;
mod features;
mod guarded;
mod lease;
mod mounts;
mod remove;
mod spawn;
mod strays;
mod succession;
