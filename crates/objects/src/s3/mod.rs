//! Objects in a bucket of an S3-compatible store.
//!
//! [`PartWriter`] writes one, in parts, and can be continued by any node from what it wrote down; [`Bucket`] is the client.

mod bucket;
mod progress;
mod writer;

pub(super) use self::bucket::Bucket;
pub(super) use self::progress::delete;
pub(super) use self::writer::{PartWriter, take_over};
