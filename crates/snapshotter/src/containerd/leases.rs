//! `containerd.services.leases.v1.Leases`: what keeps things from garbage collection while they are put together.
//!
//! Source: `api/services/leases/v1/leases.proto` in containerd, the same from 1.7 to 2.x; the header and the label are in
//! `pkg/leases/grpc.go` and `docs/garbage-collection.md`.

use std::collections::HashMap;
pub use xebec_kernel::clock::rfc3339;

use tonic::metadata::{Ascii, MetadataValue};

use super::{Containerd, ContainerdError};
use crate::api::Empty;

/// The service's name.
pub const SERVICE: &str = "containerd.services.leases.v1.Leases";
/// Says until when a lease counts, in RFC 3339, should nobody delete it.
pub const EXPIRES: &str = "containerd.io/gc.expire";

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct CreateRequest {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(map = "string, string", tag = "3")]
    labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct CreateResponse {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct DeleteRequest {
    #[prost(string, tag = "1")]
    id: String,
    /// Answers when what the lease alone held is gone.
    #[prost(bool, tag = "2")]
    sync: bool,
}

impl Containerd {
    /// Makes a lease, and gives a client whose blobs and snapshots it keeps.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached; a name that cannot be a lease's.
    pub async fn leased(
        &self,
        id: &str,
        labels: HashMap<String, String>,
    ) -> Result<Containerd, ContainerdError> {
        let lease = header(id)?;
        let asked = CreateRequest {
            id: id.to_owned(),
            labels,
        };
        self.call::<_, CreateResponse>(SERVICE, "Create", asked).await?;
        Ok(Containerd {
            lease: Some(lease),
            ..self.clone()
        })
    }

    /// A client whose blobs and snapshots are kept by a lease that somebody else has made.
    ///
    /// # Errors
    /// A name that cannot be a lease's.
    pub fn under(&self, id: &str) -> Result<Containerd, ContainerdError> {
        let lease = header(id)?;
        Ok(Containerd {
            lease: Some(lease),
            ..self.clone()
        })
    }

    /// Deletes a lease, and with `sync` waits until what nothing else refers to is gone.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn unlease(&self, id: &str, sync: bool) -> Result<(), ContainerdError> {
        let asked = DeleteRequest {
            id: id.to_owned(),
            sync,
        };
        self.call::<_, Empty>(SERVICE, "Delete", asked).await.map(|_| ())
    }
}

/// A lease's name as calls carry it.
fn header(id: &str) -> Result<MetadataValue<Ascii>, ContainerdError> {
    id.parse()
        .map_err(|_| ContainerdError::Lease { lease: id.to_owned() })
}
