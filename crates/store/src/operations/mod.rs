//! The operations of a store, by subject.

mod adopt;
mod backup;
mod backup_objects;
mod blobs;
mod collect;
mod copies;
mod copying;
mod dedup;
mod deletions;
mod figures;
mod forgotten;
mod holdings;
mod indexing;
mod lost;
mod manifests;
mod packs;
mod placing;
mod pulls;
mod reading;
mod reading_on;
mod recipes;
mod replicas;
mod restore;
mod room;
mod scrub;
mod scrub_pieces;
mod scrub_replicas;
mod shards;
mod tags;
mod try_place;
mod uploads;
mod verdict;

pub use self::backup_objects::{BackedUp, Lacking};
pub use self::collect::{CollectOptions, Collected};
pub use self::restore::{Damage, LeftOut, NamedBy, Restored};
pub use self::scrub::{ScrubOptions, Scrubbed};
