//! Values that a server's configuration file has.
//!
//! * [`period`]: lengths of time, as `90s`, `12h`, `30d`.
//! * [`pattern`]: names of repositories and tags, as `team/*`, `docker.io/**`.
//!
//! Each is read from its text, and its error says what to write instead. This crate uses no other of the project.

pub mod pattern;
pub mod period;
