//! The project as a whole: its layers, files, documents and test programs, and the calls that could harm other users of a host.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod dependency_direction;
mod documents;
mod file_circles;
mod file_lengths;
mod nothing_of_others;
mod project;
mod test_programs;
