//! A snapshot as the store keeps it.
//!
//! Records are protocol buffer messages, so that later versions can add fields and earlier ones pass over them.

use std::collections::HashMap;

use xebec_kernel::clock::since_1970;

use crate::api::{Info, Kind, Timestamp};
use crate::id_mapping::IdMapping;
use crate::usage::Usage;

/// Labels that this snapshotter sets itself. Clients cannot change them.
pub const OWN_LABELS: &str = "containerd.io/snapshot/xebec.";
/// Says why a layer that could have been lazy was unpacked.
pub const UNPACKED_BECAUSE: &str = "containerd.io/snapshot/xebec.unpacked-because";
/// Says that the snapshot has no files: its layer is read where it is.
pub const LAZY: &str = "containerd.io/snapshot/xebec.lazy";

/// The record of one snapshot.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Record {
    /// Names its directories. Never used twice.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The kind of the snapshot.
    #[prost(enumeration = "Kind", tag = "2")]
    pub kind: i32,
    /// The name of what it is made on; empty for none.
    #[prost(string, tag = "3")]
    pub parent: String,
    /// Clients' labels, and [`OWN_LABELS`].
    #[prost(map = "string, string", tag = "4")]
    pub labels: HashMap<String, String>,
    /// When it was made, or committed.
    #[prost(message, required, tag = "5")]
    pub created: Timestamp,
    /// When it was updated last.
    #[prost(message, required, tag = "6")]
    pub updated: Timestamp,
    /// The room that it took when it was committed.
    #[prost(message, optional, tag = "7")]
    pub usage: Option<Usage>,
    /// The layer of an image that it stands for, if it has no files of its own.
    #[prost(message, optional, tag = "8")]
    pub lazy: Option<LazyLayer>,
    /// If it was unpacked on lazy layers: the uppermost of these in its own image. The snapshot below may stand for the
    /// same chain of another image.
    #[prost(message, optional, tag = "9")]
    pub base: Option<LazyLayer>,
    /// How ids of what is below are mapped. Later labels change nothing: files were written by it.
    #[prost(message, optional, tag = "10")]
    pub id_mapping: Option<IdMapping>,
    /// It is containerd's copy of an image with mapped owners; see `id_mapping`.
    #[prost(bool, tag = "11")]
    pub is_copy: bool,
}

/// The fields by which snapshots are counted. Read from the same bytes as a [`Record`], in a fraction of the time.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Outline {
    /// See [`Record::id`].
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// See [`Record::kind`].
    #[prost(enumeration = "Kind", tag = "2")]
    pub kind: i32,
    /// [`Record::lazy`], unread.
    #[prost(bytes = "vec", optional, tag = "8")]
    pub lazy: Option<Vec<u8>>,
}

/// The layers of lazy images that a snapshot shows. Read from the same bytes as a [`Record`], in a fraction of the time.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LazyParts {
    /// See [`Record::lazy`].
    #[prost(message, optional, tag = "8")]
    pub lazy: Option<LazyLayer>,
    /// See [`Record::base`].
    #[prost(message, optional, tag = "9")]
    pub base: Option<LazyLayer>,
}

/// A layer that is read where it is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LazyLayer {
    /// The image's name, as containerd was given it.
    #[prost(string, tag = "1")]
    pub reference: String,
    /// The digest of the image's manifest for this platform.
    #[prost(string, tag = "2")]
    pub manifest: String,
    /// The layer's digest.
    #[prost(string, tag = "3")]
    pub layer: String,
    /// How many layers the image has up to and with this one.
    #[prost(uint32, tag = "4")]
    pub depth: u32,
}

impl Record {
    /// The lazy layers that it shows, itself among them, as its own image has them; `None` if it does not know of any.
    pub fn lazy_part(&self) -> Option<&LazyLayer> {
        self.lazy.as_ref().or(self.base.as_ref())
    }

    /// The facts that clients are told.
    pub fn info(self, name: String) -> Info {
        Info {
            name,
            parent: self.parent,
            kind: self.kind,
            created_at: Some(self.created),
            updated_at: Some(self.updated),
            labels: self.labels,
        }
    }

    /// Replaces clients' labels. Those without a value are not kept, as containerd's own snapshotters do it.
    pub fn set_labels(&mut self, labels: HashMap<String, String>) {
        self.labels.retain(|name, _| name.starts_with(OWN_LABELS));
        let theirs = labels.into_iter();
        self.labels
            .extend(theirs.filter(|(name, value)| !name.starts_with(OWN_LABELS) && !value.is_empty()));
    }
}

/// The time, to the nanosecond.
pub fn now() -> Timestamp {
    // A clock before 1970 is told as 1970.
    let since = since_1970();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or_default(),
    }
}
