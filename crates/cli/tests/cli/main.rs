//! Runs the program and looks at its output. No test here needs a daemon.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod circumstances;
mod containers;
mod doctor;
mod explain;
mod failures;
mod login;
mod names;
mod output;
mod program;
mod progress;
mod recordings;
mod registry;
mod terminal;
mod usage;
mod volume;
