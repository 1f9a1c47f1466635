//! A call to containerd that is about a blob.

use hyper::HeaderMap;
use hyper::body::Bytes;
use prost::Message;

use super::leased::Leased;

pub(super) const ADD_RESOURCE: &str = "/containerd.services.leases.v1.Leases/AddResource";
pub(super) const APPLY: &str = "/containerd.services.diff.v1.Diff/Apply";
/// The length of a message's head: one byte says whether the message is compressed, four give its length.
pub(super) const FRAME: usize = 5;

/// A call that is about a blob.
pub(super) struct Asked {
    pub(super) digest: String,
    pub(super) namespace: String,
    pub(super) lease: Option<String>,
    /// The blob has to be there before the call goes on.
    pub(super) is_ahead: bool,
}

impl Asked {
    pub(super) fn of(path: &str, headers: &HeaderMap, bytes: &Bytes) -> Option<Self> {
        let message = message_of(bytes)?;
        let namespace = text(headers, "containerd-namespace")?;
        let lease = text(headers, "containerd-lease");
        let (digest, lease, is_ahead) = match path {
            ADD_RESOURCE => {
                let asked = AddResourceRequest::decode(message).ok()?;
                let resource = asked.resource.filter(|resource| resource.r#type == "content")?;
                (resource.id, Some(asked.id), true)
            }
            APPLY => (ApplyRequest::decode(message).ok()?.diff?.digest, lease, true),
            _ => (DigestRequest::decode(message).ok()?.digest, lease, false),
        };
        Some(Self {
            digest,
            namespace,
            lease,
            is_ahead,
        })
    }

    /// Whether the client that puts the blob under a lease works under that lease: it says later what the blob is for.
    pub(super) fn is_put_under_own_lease(&self, headers: &HeaderMap, leased: &Leased) -> bool {
        let own = text(headers, "containerd-lease");
        let lease = self.lease.as_ref().filter(|lease| own.as_ref() == Some(lease));
        lease.is_some_and(|lease| leased.add(&self.namespace, lease, &self.digest))
    }

    /// Whether the client is about to save the blob.
    pub(super) fn is_saved(&self, leased: &Leased) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| leased.is_saved(&self.namespace, lease, &self.digest))
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct DigestRequest {
    #[prost(string, tag = "1")]
    digest: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AddResourceRequest {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    resource: Option<Resource>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    r#type: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ApplyRequest {
    #[prost(message, optional, tag = "1")]
    diff: Option<crate::containerd::images::Descriptor>,
}

pub(super) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// The message of a call, unless it is compressed.
pub(super) fn message_of(bytes: &Bytes) -> Option<&[u8]> {
    // A request that its client has compressed is passed on, and gets containerd's own answer.
    (*bytes.first()? == 0).then(|| bytes.get(FRAME..))?
}
