//! `containerd.services.content.v1.Content`: blobs that containerd has.
//!
//! Source: `api/services/content/v1/content.proto` in containerd, the same from 1.7 to 2.x.

use super::{Containerd, ContainerdError};

/// The service's name.
pub const SERVICE: &str = "containerd.services.content.v1.Content";

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ReadContentRequest {
    #[prost(string, tag = "1")]
    digest: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct ReadContentResponse {
    #[prost(bytes = "vec", tag = "2")]
    data: Vec<u8>,
}

impl Containerd {
    /// A whole blob of at most `longest` bytes; `None` if containerd has none by that digest, or a longer one. Whether it is
    /// what its digest says is for the caller to look at.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn blob(&self, digest: &str, longest: usize) -> Result<Option<Vec<u8>>, ContainerdError> {
        let asked = ReadContentRequest {
            digest: digest.to_owned(),
        };
        match self.read(asked, longest).await {
            Err(error) if error.is_not_found() => Ok(None),
            read => read,
        }
    }

    async fn read(
        &self,
        asked: ReadContentRequest,
        longest: usize,
    ) -> Result<Option<Vec<u8>>, ContainerdError> {
        let mut answers = self.answers(SERVICE, "Read", asked).await?;
        let mut bytes = Vec::new();
        while let Some(ReadContentResponse { data }) = answers.next().await? {
            if bytes.len().saturating_add(data.len()) > longest {
                return Ok(None);
            }
            bytes.extend(data);
        }
        Ok(Some(bytes))
    }
}
