//! What a store does, by subject.

mod blobs;
mod collect;
mod indexing;
mod manifests;
mod tags;
mod uploads;

pub use self::collect::{CollectOptions, Collected};
