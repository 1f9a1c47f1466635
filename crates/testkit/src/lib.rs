//! Image generators, a registry that misbehaves on purpose, and other tools of the tests.
//!
//! * [`tar`]: tar files of any shape, also hostile ones.
//! * [`compression`]: layer blobs from them.
//! * [`image`]: whole images, in memory or as OCI layout directories.
//! * [`odd`]: a catalogue of odd but valid images.
//! * [`registry`]: a registry that misbehaves on purpose.

pub mod compression;
pub mod image;
pub mod odd;
pub mod registry;
pub mod tar;
