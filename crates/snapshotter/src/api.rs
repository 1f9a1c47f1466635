//! The messages of `containerd.services.snapshots.v1.Snapshots`.
//!
//! Names, field numbers and types are those of `api/services/snapshots/v1/snapshots.proto` and `api/types/mount.proto`
//! in containerd (the module `github.com/containerd/containerd/api`, the same from 1.7 to 2.x), and of
//! `google/protobuf/{timestamp,field_mask,empty}.proto`. They are written out here so that building needs no compiler of
//! `.proto` files. Every request begins with field 1, the name by which containerd knows the snapshotter; this service is
//! one snapshotter, so it does not look at it.

use std::collections::HashMap;

/// The service's name, the first part of each call's path.
pub const SERVICE: &str = "containerd.services.snapshots.v1.Snapshots";
/// Longest message, in bytes: what containerd, its clients and a kubelet send and take at most (`defaults` of containerd).
pub const LONGEST_MESSAGE: usize = 16 << 20;

/// `containerd.types.Mount`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Mount {
    /// The file system's type: `bind` or `overlay`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// The device, or the directory that is bound.
    #[prost(string, tag = "2")]
    pub source: String,
    /// Where in the container; never used here.
    #[prost(string, tag = "3")]
    pub target: String,
    /// Options as in fstab.
    #[prost(string, repeated, tag = "4")]
    pub options: Vec<String>,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, prost::Message)]
pub struct Timestamp {
    /// Seconds since 1970, UTC.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds beyond them, never negative.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// `google.protobuf.FieldMask`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FieldMask {
    /// Fields by name.
    #[prost(string, repeated, tag = "1")]
    pub paths: Vec<String>,
}

/// `google.protobuf.Empty`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// The enum `Kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    /// Never sent.
    Unknown = 0,
    /// To be read only, and never committed.
    View = 1,
    /// To be written.
    Active = 2,
    /// Finished; others may be made on it.
    Committed = 3,
}

/// The message `Info`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Info {
    /// Its key, or its name once committed.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The name of what it is made on; empty for none.
    #[prost(string, tag = "2")]
    pub parent: String,
    /// The kind of the snapshot.
    #[prost(enumeration = "Kind", tag = "3")]
    pub kind: i32,
    /// When it was made, or committed.
    #[prost(message, optional, tag = "4")]
    pub created_at: Option<Timestamp>,
    /// When it was updated last.
    #[prost(message, optional, tag = "5")]
    pub updated_at: Option<Timestamp>,
    /// Labels that clients have set.
    #[prost(map = "string, string", tag = "6")]
    pub labels: HashMap<String, String>,
}

/// `PrepareSnapshotRequest`, and `ViewSnapshotRequest`, which has the same fields.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PrepareRequest {
    /// Unused.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
    /// The new snapshot's key.
    #[prost(string, tag = "2")]
    pub key: String,
    /// The committed snapshot that it is made on; empty for none.
    #[prost(string, tag = "3")]
    pub parent: String,
    /// Its labels.
    #[prost(map = "string, string", tag = "4")]
    pub labels: HashMap<String, String>,
}

/// `PrepareSnapshotResponse`, `ViewSnapshotResponse` and `MountsResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MountsResponse {
    /// The mounts to make, in this order.
    #[prost(message, repeated, tag = "1")]
    pub mounts: Vec<Mount>,
}

/// `MountsRequest`, `RemoveSnapshotRequest`, `StatSnapshotRequest` and `UsageRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeyRequest {
    /// Unused.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
    /// The snapshot's key or name.
    #[prost(string, tag = "2")]
    pub key: String,
}

/// `CommitSnapshotRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommitRequest {
    /// Unused.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
    /// The name of the snapshot from now on.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The active snapshot.
    #[prost(string, tag = "3")]
    pub key: String,
    /// Labels, instead of those that it had.
    #[prost(map = "string, string", tag = "4")]
    pub labels: HashMap<String, String>,
    /// The snapshot that it comes to lie on, if it was made on nothing.
    #[prost(string, tag = "5")]
    pub parent: String,
}

/// `StatSnapshotResponse` and `UpdateSnapshotResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct InfoResponse {
    /// The facts about the snapshot.
    #[prost(message, optional, tag = "1")]
    pub info: Option<Info>,
}

/// `UpdateSnapshotRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UpdateRequest {
    /// Unused.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
    /// New values; only labels can change.
    #[prost(message, optional, tag = "2")]
    pub info: Option<Info>,
    /// The values that change: `labels`, `labels.NAME`; all that can change if there are none.
    #[prost(message, optional, tag = "3")]
    pub update_mask: Option<FieldMask>,
}

/// `ListSnapshotsRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListRequest {
    /// Unused.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
    /// See [`crate::filters`]; a snapshot that fits one of them is listed.
    #[prost(string, repeated, tag = "2")]
    pub filters: Vec<String>,
}

/// `ListSnapshotsResponse`, one of several.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListResponse {
    /// Some of the snapshots.
    #[prost(message, repeated, tag = "1")]
    pub info: Vec<Info>,
}

/// `UsageResponse`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct UsageResponse {
    /// Bytes on disk.
    #[prost(int64, tag = "1")]
    pub size: i64,
    /// Inodes.
    #[prost(int64, tag = "2")]
    pub inodes: i64,
}

/// `CleanupRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CleanupRequest {
    /// Unused.
    #[prost(string, tag = "1")]
    pub snapshotter: String,
}
