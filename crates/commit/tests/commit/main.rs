//! Layers of upper directories, from outside: compared with what another program unpacks, and with trees that mean no good.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod hostile;
mod overlay;
mod refused;
mod tree;
