//! Values that a server's configuration file has: lengths of time, and patterns of repositories and tags.
//!
//! * [`period`]: `90s`, `12h`, `30d`. * [`pattern`]: `team/*`, `docker.io/**`.
//!
//! Each is read from its text, and its error says what to write instead. This crate uses no other of the project.

pub mod pattern;
pub mod period;
