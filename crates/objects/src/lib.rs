//! Bytes under keys: files in a directory, or a bucket of S3. And digests of bytes.
//!
//! An object has a key that means nothing, and that no other object gets again. Which object is which blob is for others to write down; nothing here
//! lists objects to find out.
//!
//! Promise: an object is durable, its name included, when its writer has completed. A writer that goes on with an object of another one loses none of
//! the bytes that this has noted, and what a dead writer sent late overwrites nothing. A reader takes one piece of 64 KiB at a time; a writer to S3
//! a part of 5 MiB, and more only beyond 5 GB. An object that is put in one piece is in memory as a whole: its caller bounds it, the store at 64 MiB.
//!
//! May use: `kernel`, and no other crate of Xebec.

mod buffers;
mod config;
mod digest;
mod directory;
mod engine;
mod failure;
pub mod files;
mod limits;
mod note;
mod s3;

pub use self::config::ObjectsConfig;
pub use self::digest::{Algorithm, Digest, Hasher, InvalidDigest};
pub use self::directory::{Directory, make_directory};
pub use self::engine::{BlobReader, Objects, Writer};
pub use self::failure::{is_absence, worse};
pub use self::limits::{Pace, stalled, within};
pub use self::note::{Finished, Note, Released, new_key};
