//! The promises of this crate, checked from outside: indexes of layers as many tools write them, and spans of them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

mod decode_span;
mod golden;
mod index_layer;
mod inflate;
mod support;
mod tar_hostile;
mod tar_model;
mod tar_support;
mod tar_tools;
mod toc_hostile;
mod toc_tables;
