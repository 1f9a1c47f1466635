//! One pull, and its result for a layer.

use std::path::PathBuf;

use serde::Serialize;
use xebec_format::digest::Digest;
use xebec_images::images::Report;
use xebec_oci::{Client, ResolvedImage};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_snapshotter::containerd::{Containerd, ContainerdError};

/// The target of a pull, and its options.
#[derive(Clone, Debug)]
pub struct Target {
    /// containerd's socket.
    pub socket: PathBuf,
    /// The namespace of containerd.
    pub namespace: String,
    /// The name of our snapshotter in containerd.
    pub snapshotter: String,
    /// Fetch the blobs of lazy layers, too, for commands that need them.
    pub blobs: bool,
    /// Fail rather than unpack.
    pub require_lazy: bool,
}

/// One layer.
#[derive(Clone, Debug, Serialize)]
pub struct PulledLayer {
    /// Its blob.
    pub layer: Digest,
    /// The blob's size in bytes.
    pub size: u64,
    /// The name of its snapshot.
    pub chain: Digest,
    /// Whether it is read where it is.
    pub is_lazy: bool,
    /// Why not, if it was unpacked now.
    pub unpacked_because: Option<String>,
    /// The part of the blob that was fetched, in bytes.
    pub fetched: u64,
}

/// One pull.
pub(super) struct Pull<'a> {
    pub(super) client: Client,
    pub(super) containerd: Containerd,
    pub(super) image: ResolvedImage,
    pub(super) target: &'a Target,
    /// Nobody else's: names of blobs and snapshots on their way begin with it.
    pub(super) id: String,
    pub(super) report: &'a Report,
}

pub(super) fn refused(error: &ContainerdError) -> Failure {
    Failure::new(FailureKind::Host, error)
}
