//! Writing blobs into containerd, by the same service as [`super::content`].
//!
//! A blob is written under a name of the writer's own, and becomes one when its digest was found right. Labels say what it
//! refers to, which is what garbage collection follows.
//!
//! Source: `api/services/content/v1/content.proto` in containerd; which answer belongs to which action is in
//! `plugins/services/content/contentserver`.

use std::collections::HashMap;

use tokio::sync::mpsc;
use tonic::Code;

use super::content::SERVICE;
use super::{Answers, Containerd, ContainerdError};
use crate::api::{Empty, FieldMask};

/// Longest piece in one message, in bytes. containerd takes 16 MiB at most.
const PIECE: usize = 1 << 20;
/// Begins labels that name what a blob refers to.
pub const REFERS: &str = "containerd.io/gc.ref.";

/// The action on a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum Action {
    /// Say how far it is.
    Stat = 0,
    /// Write.
    Write = 1,
    /// Compare the digest, and make it a blob.
    Commit = 2,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct WriteRequest {
    #[prost(enumeration = "Action", tag = "1")]
    action: i32,
    #[prost(string, tag = "2")]
    r#ref: String,
    #[prost(int64, tag = "3")]
    total: i64,
    #[prost(string, tag = "4")]
    expected: String,
    #[prost(int64, tag = "5")]
    offset: i64,
    #[prost(bytes = "vec", tag = "6")]
    data: Vec<u8>,
    #[prost(map = "string, string", tag = "7")]
    labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct WriteResponse {
    #[prost(int64, tag = "4")]
    offset: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct AbortRequest {
    #[prost(string, tag = "1")]
    r#ref: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Info {
    #[prost(string, tag = "1")]
    digest: String,
    #[prost(map = "string, string", tag = "5")]
    labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct UpdateRequest {
    #[prost(message, optional, tag = "1")]
    info: Option<Info>,
    #[prost(message, optional, tag = "2")]
    update_mask: Option<FieldMask>,
}

/// A blob that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBlob {
    /// The writer's name for it until it is there. Two writers of one name are refused.
    pub name: String,
    /// Its digest.
    pub digest: String,
    /// Its length in bytes.
    pub size: u64,
    /// Its labels.
    pub labels: HashMap<String, String>,
}

/// A blob that is being written.
pub struct Ingest {
    blob: NewBlob,
    requests: mpsc::Sender<WriteRequest>,
    answers: Answers<WriteResponse>,
    offset: i64,
}

impl Containerd {
    /// Begins to write a blob; `None` if containerd has it, now with these labels and kept by this client's lease.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn ingest(&self, blob: NewBlob) -> Result<Option<Ingest>, ContainerdError> {
        let (requests, stream) = mpsc::channel(1);
        let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
        let first = WriteRequest {
            action: Action::Stat.into(),
            r#ref: blob.name.clone(),
            total: i64::try_from(blob.size).unwrap_or(i64::MAX),
            expected: blob.digest.clone(),
            ..WriteRequest::default()
        };
        // There is room for one.
        let _ = requests.try_send(first);
        let begun = async {
            let mut answers = self.exchange(SERVICE, "Write", stream).await?;
            let answer: WriteResponse = answers.next().await?.unwrap_or_default();
            Ok((answers, answer.offset))
        };
        match begun.await {
            Ok((answers, offset)) => Ok(Some(Ingest {
                blob,
                requests,
                answers,
                offset,
            })),
            Err(error) if is_there(&error) => {
                self.label_blob(&blob.digest, references(blob.labels)).await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a blob labels, beside those that it has.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn label_blob(
        &self,
        digest: &str,
        labels: HashMap<String, String>,
    ) -> Result<(), ContainerdError> {
        if labels.is_empty() {
            return Ok(());
        }
        let paths = labels.keys().map(|name| format!("labels.{name}")).collect();
        let info = Info {
            digest: digest.to_owned(),
            labels,
        };
        let asked = UpdateRequest {
            info: Some(info),
            update_mask: Some(FieldMask { paths }),
        };
        self.call::<_, Empty>(SERVICE, "Update", asked).await.map(|_| ())
    }

    /// Gives up a blob that was begun by that name.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached; not that there is no such blob.
    pub async fn give_up(&self, name: &str) -> Result<(), ContainerdError> {
        let asked = AbortRequest {
            r#ref: name.to_owned(),
        };
        match self.call::<_, Empty>(SERVICE, "Abort", asked).await {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(|_| ()),
        }
    }
}

impl Ingest {
    /// How much of the blob is there, from its beginning. That much is not to be written.
    pub fn offset(&self) -> u64 {
        u64::try_from(self.offset).unwrap_or_default()
    }

    /// Writes what follows.
    ///
    /// # Errors
    /// The refusal of containerd, or why it cannot be reached.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ContainerdError> {
        for piece in bytes.chunks(PIECE) {
            let request = WriteRequest {
                action: Action::Write.into(),
                offset: self.offset,
                data: piece.to_vec(),
                ..WriteRequest::default()
            };
            self.offset = self.ask(request).await?.offset;
        }
        Ok(())
    }

    /// Has containerd compare the digest, and makes it a blob.
    ///
    /// # Errors
    /// The refusal of containerd, as of bytes that the digest is not of, or why it cannot be reached.
    pub async fn commit(mut self, containerd: &Containerd) -> Result<(), ContainerdError> {
        let request = WriteRequest {
            action: Action::Commit.into(),
            total: i64::try_from(self.blob.size).unwrap_or(i64::MAX),
            expected: self.blob.digest.clone(),
            offset: self.offset,
            labels: self.blob.labels.clone(),
            ..WriteRequest::default()
        };
        match self.ask(request).await {
            // Somebody else was faster.
            Err(error) if is_there(&error) => {
                containerd
                    .label_blob(&self.blob.digest, references(self.blob.labels))
                    .await
            }
            answer => answer.map(|_| ()),
        }
    }

    async fn ask(&mut self, request: WriteRequest) -> Result<WriteResponse, ContainerdError> {
        // If nobody takes it any more, the answer says why.
        let _ = self.requests.send(request).await;
        let answer = self.answers.next().await?;
        answer.ok_or_else(|| self.answers.ended())
    }
}

/// The labels that name what a blob refers to. Its writer has set the others of a blob that is there.
fn references(mut labels: HashMap<String, String>) -> HashMap<String, String> {
    labels.retain(|name, _| name.starts_with(REFERS));
    labels
}

fn is_there(error: &ContainerdError) -> bool {
    error.code() == Some(Code::AlreadyExists)
}
