//! `containerd.services.diff.v1.Diff`: containerd unpacks a layer.
//!
//! Source: `api/services/diff/v1/diff.proto` in containerd, the same from 1.7 to 2.x.

use super::images::Descriptor;
use super::{Containerd, ContainerdError};
use crate::api::Mount;

/// The service's name.
pub const SERVICE: &str = "containerd.services.diff.v1.Diff";

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ApplyRequest {
    #[prost(message, optional, tag = "1")]
    diff: Option<Descriptor>,
    #[prost(message, repeated, tag = "2")]
    mounts: Vec<Mount>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ApplyResponse {
    #[prost(message, optional, tag = "1")]
    applied: Option<Descriptor>,
}

impl Containerd {
    /// Has containerd unpack a layer, which is among its blobs, into what these mounts show. Gives the digest of the plain
    /// tar that was in it.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn unpack(&self, layer: Descriptor, mounts: Vec<Mount>) -> Result<String, ContainerdError> {
        let asked = ApplyRequest {
            diff: Some(layer),
            mounts,
        };
        let answer: ApplyResponse = self.call(SERVICE, "Apply", asked).await?;
        Ok(answer.applied.unwrap_or_default().digest)
    }
}
