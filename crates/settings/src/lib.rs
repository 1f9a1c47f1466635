//! Values that a server's configuration file has.
//!
//! * [`period`]: lengths of time, as `90s`, `12h`, `30d`.
//! * [`size`]: numbers of bytes, as `4m`.
//! * [`pattern`]: names of repositories and tags, as `team/*`, `docker.io/**`.
//!
//! Each is read from its text ([`text`]), and its error says what to write instead. This crate uses `kernel`, and no other of the project.

pub mod pattern;
pub mod period;
pub mod size;
pub mod text;
