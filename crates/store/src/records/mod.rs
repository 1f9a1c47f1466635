//! The records, a file for each table: functions over a transaction, written once for both engines.

pub(crate) mod blobs;
pub(crate) mod copies;
pub(crate) mod dedup;
pub(crate) mod drafts;
pub(crate) mod figures;
pub(crate) mod forgotten;
pub(crate) mod garbage;
pub(crate) mod holdings;
pub(crate) mod indexing;
pub(crate) mod intact;
pub(crate) mod manifests;
pub(crate) mod objects;
pub(crate) mod packs;
pub(crate) mod placing;
pub(crate) mod recipes;
pub(crate) mod referrers;
pub(crate) mod replicas;
pub(crate) mod repositories;
pub(crate) mod tags;
pub(crate) mod uploads;
