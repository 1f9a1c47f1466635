//! The store from outside, over each engine that is here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]

mod adopt;
mod backup;
mod backup_broken_off;
mod backup_places;
mod blobs;
mod collection;
mod common;
mod copies;
mod dedup;
mod disagree;
mod encrypted;
mod engines;
mod gate;
mod kill;
mod listings;
mod manifests;
mod packs;
mod parts;
mod property;
mod race;
mod recipes;
mod replicas;
mod replicas_at_random;
mod replicas_away;
mod replicas_faults;
mod replicas_hanging;
mod replicas_placing;
mod room;
mod scrub;
mod slow_bucket;
mod toy;
mod unused;
mod upgrade;
mod uploads;
mod work;
