//! The promises of this crate, checked from outside: the formats, and the merged tree of an image.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod erofs;
mod layer_index;
mod merge;
mod runtime_image;
mod runtime_plan;
mod support;
