//! `containerd.services.containers.v1.Containers`: what containerd has noted of its containers.
//!
//! Source: `api/services/containers/v1/containers.proto` in containerd, the same from 1.2 to 2.x.

use std::collections::HashMap;

use super::{Answers, Containerd, ContainerdError};

/// The service's name.
pub const SERVICE: &str = "containerd.services.containers.v1.Containers";

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Any {
    /// The type of the value.
    #[prost(string, tag = "1")]
    pub type_url: String,
    /// Encoded as that.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// A container, as far as it matters here.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Container {
    /// Its name, unique in its namespace.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Labels that clients have set.
    #[prost(map = "string, string", tag = "2")]
    pub labels: HashMap<String, String>,
    /// The name of the image that it was made of, as the client had it; may be empty.
    #[prost(string, tag = "3")]
    pub image: String,
    /// An OCI runtime specification, in JSON.
    #[prost(message, optional, tag = "5")]
    pub spec: Option<Any>,
    /// The snapshotter that has its files; may be empty.
    #[prost(string, tag = "6")]
    pub snapshotter: String,
    /// The key of the snapshot with its files, as clients know it.
    #[prost(string, tag = "7")]
    pub snapshot_key: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ListContainersRequest {
    #[prost(string, repeated, tag = "1")]
    filters: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ListContainerMessage {
    #[prost(message, optional, tag = "1")]
    container: Option<Container>,
}

/// Containers that come one by one.
pub struct Containers(Answers<ListContainerMessage>);

impl Containerd {
    /// The containers that fit one of the filters (`id==NAME`, `image==NAME`, `labels."NAME"==VALUE`); all if there are none.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn containers(&self, filters: &[String]) -> Result<Containers, ContainerdError> {
        let filters = filters.to_vec();
        let asked = ListContainersRequest { filters };
        let answers = self.answers(SERVICE, "ListStream", asked).await?;
        Ok(Containers(answers))
    }
}

impl Containers {
    /// The next one; `None` after the last.
    ///
    /// # Errors
    /// When containerd cannot go on, or has gone.
    pub async fn next(&mut self) -> Result<Option<Container>, ContainerdError> {
        while let Some(message) = self.0.next().await? {
            if message.container.is_some() {
                return Ok(message.container);
            }
        }
        Ok(None)
    }
}
