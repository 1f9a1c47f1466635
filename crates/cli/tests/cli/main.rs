//! Runs the program and looks at what it prints. No test here starts a daemon.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod doctor;
mod explain;
mod failures;
mod names;
mod login;
mod output;
mod program;
mod progress;
mod recordings;
mod volume;
mod registry;
mod terminal;
