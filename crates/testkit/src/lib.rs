//! Image generators, a registry and a disk that misbehave on purpose, and other tools of the tests.
//!
//! * [`tar`]: tar files of any shape, also hostile ones.
//! * [`compression`]: layer blobs from them.
//! * [`disk`]: a disk whose power can be cut.
//! * [`image`]: whole images, in memory or as OCI layout directories.
//! * [`large`]: images of any size that need not be stored.
//! * [`odd`]: a catalogue of odd but valid images.
//! * [`registry`]: a registry that misbehaves on purpose.
//! * [`servers`]: real servers for the store of a registry.
//! * [`service_manager`]: one that keeps descriptors for a service.
//!
//! Promises: only tests use this crate; a fault happens when a test asks for it, and at no other time.
//!
//! May use: `format`, `kernel`, and `cache` for the trait of its disk.

pub mod compression;
pub mod corpus;
pub mod disk;
pub mod image;
pub mod large;
pub mod odd;
pub mod registry;
pub mod servers;
pub mod service_manager;
pub mod tar;
