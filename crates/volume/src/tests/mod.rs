#![allow(clippy::unwrap_used, clippy::panic)]

mod files;
mod parsing;
