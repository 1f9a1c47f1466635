//! The promises of this crate, checked from outside. [`model`] checks the whole against plain rules.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bindings;
mod cosign;
mod keys;
mod model;
mod policy;
mod records;
mod signatures;
mod support;
