//! Where the bytes of blobs are kept: files in a directory, or a bucket of S3.
//!
//! An object has a key that means nothing, and that no other object gets again. Which object is which blob stands in the records;
//! nothing here lists objects to find out.

mod buffers;
mod directory;
mod engine;
mod note;
mod s3;

pub(crate) use self::directory::{Directory, make_directory};
pub use self::engine::BlobReader;
pub(crate) use self::engine::{Objects, Writer};
pub(crate) use self::note::{Finished, Note, Released, new_key};
