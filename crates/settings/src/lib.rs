//! Values that a server's configuration file has.
//!
//! * [`period`]: lengths of time, as `90s`, `12h`, `30d`.
//! * [`size`]: numbers of bytes, as `4m`.
//! * [`pattern`]: names of repositories and tags, as `team/*`, `docker.io/**`.
//!
//! Promises: each value is read from its text ([`text`]), and its error tells the right form. Nothing here reads a file.
//!
//! May use: `kernel`, and no other crate of Xebec.

pub mod pattern;
pub mod period;
pub mod size;
pub mod text;
