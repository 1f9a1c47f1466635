//! CNI plugins: programs that get a description on standard input, and do one part of a container's network.

mod chain;
mod input;
mod process;
mod programs;

pub(crate) use chain::{Chain, LIMIT};
pub(crate) use input::wait_until_free;
pub(crate) use programs::Programs;
pub use programs::missing_programs;
