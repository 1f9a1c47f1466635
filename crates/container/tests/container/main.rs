//! Containers for real: busybox on a runtime, as root.
//!
//! Each case runs its container in a process of its own (this same test binary), because signals and the
//! death of the supervisor are tested. A watchdog ends each.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a test that cannot go on should stop"
)]

mod cleanup;
mod confinement;
mod copy;
mod early_create;
mod exec;
mod lifecycle;
mod namespaces;
mod prediction;
mod probes;
mod run;
mod support;
mod usage;
mod volumes;
