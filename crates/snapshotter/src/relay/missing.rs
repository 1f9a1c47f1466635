//! Blobs that containerd lacks because a layer is lazy: which those are, where they are from, and how they come.
//!
//! The notes of containerd itself in the namespace decide, so that a digest gives nobody a blob of another namespace. The snapshot that
//! stands for the layer was made for a pull, and carries the name that was pulled. The manifest, which says the blob's length, refers
//! to the blob by a label.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Semaphore;
use tonic::Status;
use tracing::{info, warn};
use xebec_kernel::clock::since_1970;
use xebec_kernel::keyed_lock::KeyedLock;

use super::blob_call::Asked;
use super::known::{Known, Origins};
use crate::api::{self, Timestamp};
use crate::containerd::content::SERVICE as CONTENT;
use crate::containerd::ingest::REFERS;
use crate::containerd::leases::{EXPIRES, rfc3339};
use crate::containerd::{Containerd, ContainerdError};

/// Says for which image a snapshot was made.
const IMAGE: &str = "containerd.io/snapshot/cri.image-ref";
/// Says of which layer it is.
const LAYER: &str = "containerd.io/snapshot/cri.layer-digest";
/// Longest manifest that is read, in bytes, as registries and containerd limit it.
const LONGEST_MANIFEST: usize = 8 << 20;
/// How many blobs are fetched at once: more would only divide the way to the registry.
const FETCHES: usize = 4;
/// Most names of one layer's images that are tried.
const ORIGINS: usize = 8;
/// How long a blob is kept that is asked for without a lease, should this process die before the lease is deleted.
const LEASE: Duration = Duration::from_secs(60 * 60);

/// A blob that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingBlob {
    /// Its digest.
    pub digest: String,
    /// Its length in bytes.
    pub size: u64,
    /// Names of images of which it is a layer, as they were pulled.
    pub references: Vec<String>,
}

/// Brings blobs that containerd lacks.
pub trait Blobs: Send + Sync + 'static {
    /// Puts this blob into containerd's store by this client, whose lease keeps it.
    ///
    /// # Errors
    /// Why the blob cannot be brought, for the user.
    fn bring(
        &self,
        containerd: &Containerd,
        blob: &MissingBlob,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// Finds and brings the blobs that a containerd lacks.
pub(super) struct Missing<B> {
    socket: PathBuf,
    snapshotter: String,
    blobs: B,
    fetches: Semaphore,
    /// By namespace and digest. Held while a blob is fetched.
    turns: KeyedLock<(String, String)>,
    known: Known,
}

#[derive(Clone, PartialEq, prost::Message)]
struct InfoRequest {
    #[prost(string, tag = "1")]
    digest: String,
}

/// `InfoResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct InfoResponse {
    #[prost(message, optional, tag = "1")]
    info: Option<Info>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Info {
    #[prost(string, tag = "1")]
    digest: String,
    #[prost(int64, tag = "2")]
    size: i64,
    #[prost(message, optional, tag = "3")]
    created_at: Option<Timestamp>,
    #[prost(message, optional, tag = "4")]
    updated_at: Option<Timestamp>,
    #[prost(map = "string, string", tag = "5")]
    labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ListContentRequest {
    #[prost(string, repeated, tag = "1")]
    filters: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ListContentResponse {
    #[prost(message, repeated, tag = "1")]
    info: Vec<Info>,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
struct Layer {
    digest: String,
    size: u64,
}

impl<B: Blobs> Missing<B> {
    pub(super) fn new(socket: PathBuf, snapshotter: &str, blobs: B) -> Self {
        Self {
            socket,
            snapshotter: snapshotter.to_owned(),
            blobs,
            fetches: Semaphore::new(FETCHES),
            turns: KeyedLock::default(),
            known: Known::default(),
        }
    }

    /// The notes on which layers are lazy, which hear of changes.
    pub(super) fn known(&self) -> &Known {
        &self.known
    }

    /// The answer that containerd would give about the blob, if it is that of a lazy layer.
    pub(super) async fn info(&self, asked: &Asked) -> Result<Option<InfoResponse>, Status> {
        let Some(blob) = self.find_known(asked).await? else {
            return Ok(None);
        };
        let labels = blob
            .references
            .iter()
            .filter_map(|reference| came_from(reference));
        let now = since_1970();
        let now = Timestamp {
            seconds: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
            nanos: 0,
        };
        let info = Info {
            digest: blob.digest.clone(),
            size: i64::try_from(blob.size).unwrap_or(i64::MAX),
            created_at: Some(now),
            updated_at: Some(now),
            labels: labels.collect(),
        };
        Ok(Some(InfoResponse { info: Some(info) }))
    }

    /// Has containerd have it, if it is that of a lazy layer; whether it has it now. With `is_asked` it may have been there.
    pub(super) async fn bring(&self, asked: &Asked, is_asked: bool) -> Result<bool, Status> {
        let containerd = self.containerd(asked).await?;
        if is_asked && is_there(&containerd, &asked.digest).await? {
            return Ok(true);
        }
        let Some(blob) = self.find(&containerd, asked).await? else {
            return Ok(false);
        };
        let key = (asked.namespace.clone(), asked.digest.clone());
        let _turn = self.turns.take(key).await;
        // The call that was waited for has brought it.
        if is_there(&containerd, &asked.digest).await? {
            return Ok(true);
        }
        self.fetch(&containerd, asked, &blob).await
    }

    async fn fetch(
        &self,
        containerd: &Containerd,
        asked: &Asked,
        blob: &MissingBlob,
    ) -> Result<bool, Status> {
        let _room = self.fetches.acquire().await;
        let digest = &blob.digest;
        let name = format!("xebec-relay-{}-{}", since_1970().as_nanos(), std::process::id());
        let leased = match &asked.lease {
            Some(lease) => containerd.under(lease),
            None => {
                let until = rfc3339((since_1970() + LEASE).as_secs());
                let labels = HashMap::from([(EXPIRES.to_owned(), until)]);
                containerd.leased(&name, labels).await
            }
        };
        let leased = leased.map_err(|error| refused(&error))?;
        info!(
            "fetching the blob {digest} of {:?} for containerd",
            blob.references
        );
        let brought = self.blobs.bring(&leased, blob).await;
        if asked.lease.is_none()
            && let Err(error) = containerd.unlease(&name, false).await
        {
            warn!("the lease {name} may stay until it expires: {error}");
        }
        brought.map(|()| true).map_err(|problem| {
            let image = blob.references.first().map_or("?", String::as_str);
            warn!("the blob {digest} of {image} cannot be brought: {problem}");
            Status::unavailable(format!(
                "Xebec: layer {digest} of {image} was pulled lazily, and its blob cannot be fetched now: {problem}; \
                 try again when the registry can be reached and root is logged in there"
            ))
        })
    }

    /// The notes on a blob that containerd lacks, as they are now.
    async fn find(&self, containerd: &Containerd, asked: &Asked) -> Result<Option<MissingBlob>, Status> {
        let of_it = format!("labels.{LAYER:?}=={:?}", asked.digest);
        let mut origins = self.origins(containerd, of_it).await?;
        let references = origins.remove(&asked.digest).unwrap_or_default();
        self.described(containerd, asked, references).await
    }

    /// The same, as it was a moment ago: lists of images ask for every layer of every image, one by one.
    async fn find_known(&self, asked: &Asked) -> Result<Option<MissingBlob>, Status> {
        let namespace = &asked.namespace;
        let mut listed = self.known.of(namespace).await;
        let origins = match listed.still_right() {
            Some(origins) => origins,
            None => {
                let begun = listed.begin();
                let containerd = self.containerd(asked).await?;
                let origins = self.origins(&containerd, format!("labels.{LAYER:?}")).await?;
                listed.is(begun, origins)
            }
        };
        let references = origins.get(&asked.digest).cloned().unwrap_or_default();
        drop(listed);
        if references.is_empty() {
            return Ok(None);
        }
        if let Some(size) = self.known.size(namespace, &asked.digest) {
            return Ok(Some(MissingBlob {
                digest: asked.digest.clone(),
                size,
                references,
            }));
        }
        let containerd = self.containerd(asked).await?;
        self.described(&containerd, asked, references).await
    }

    async fn described(
        &self,
        containerd: &Containerd,
        asked: &Asked,
        references: Vec<String>,
    ) -> Result<Option<MissingBlob>, Status> {
        if references.is_empty() {
            return Ok(None);
        }
        for layer in layers_beside(containerd, &asked.digest).await? {
            self.known.has_size(&asked.namespace, layer.digest, layer.size);
        }
        let size = self.known.size(&asked.namespace, &asked.digest);
        Ok(size.map(|size| MissingBlob {
            digest: asked.digest.clone(),
            size,
            references,
        }))
    }

    /// For which images lazy snapshots were made in this namespace, by the layers' digests.
    async fn origins(&self, containerd: &Containerd, filter: String) -> Result<Origins, Status> {
        let asked = api::ListRequest {
            snapshotter: self.snapshotter.clone(),
            filters: vec![filter],
        };
        let mut origins = Origins::new();
        let mut answers = match containerd.answers(api::SERVICE, "List", asked).await {
            Ok(answers) => answers,
            Err(error) => return none_or_refused(&error),
        };
        loop {
            let answer: api::ListResponse = match answers.next().await {
                Ok(Some(answer)) => answer,
                Ok(None) => return Ok(origins),
                Err(error) => return none_or_refused(&error),
            };
            for snapshot in answer.info {
                let mut labels = snapshot.labels;
                let (Some(layer), Some(reference)) = (labels.remove(LAYER), labels.remove(IMAGE)) else {
                    continue;
                };
                let references = origins.entry(layer).or_default();
                if references.len() < ORIGINS && !references.contains(&reference) {
                    references.push(reference);
                }
            }
        }
    }

    async fn containerd(&self, asked: &Asked) -> Result<Containerd, Status> {
        let containerd = Containerd::connect(&self.socket, &asked.namespace).await;
        containerd.map_err(|error| refused(&error))
    }
}

/// A containerd whose snapshotter is not there, or does not answer, has no lazy layers that can be named; its own answer about the blob
/// counts.
fn none_or_refused(error: &ContainerdError) -> Result<Origins, Status> {
    match error.code() {
        Some(tonic::Code::NotFound | tonic::Code::InvalidArgument) => Ok(Origins::new()),
        _ => Err(Status::unavailable(format!(
            "Xebec: which layers are lazy cannot be told: {error}"
        ))),
    }
}

/// The layers of a manifest that has this one, with the lengths that it says; none if there is no such manifest.
async fn layers_beside(containerd: &Containerd, digest: &str) -> Result<Vec<Layer>, Status> {
    let asked = ListContentRequest { filters: Vec::new() };
    let mut answers = containerd
        .answers(CONTENT, "List", asked)
        .await
        .map_err(|error| refused(&error))?;
    let mut manifests = Vec::new();
    while let Some(answer) = answers.next().await.map_err(|error| refused(&error))? {
        let ListContentResponse { info } = answer;
        let refers = |info: &Info| {
            let mut labels = info.labels.iter();
            labels.any(|(name, value)| value == digest && name.starts_with(REFERS))
        };
        manifests.extend(info.into_iter().filter(refers).map(|info| info.digest));
    }
    for manifest in manifests {
        let bytes = containerd.blob(&manifest, LONGEST_MANIFEST).await;
        let Some(bytes) = bytes.map_err(|error| refused(&error))? else {
            continue;
        };
        let Ok(manifest) = serde_json::from_slice::<Manifest>(&bytes) else {
            continue;
        };
        if manifest.layers.iter().any(|layer| layer.digest == digest) {
            return Ok(manifest.layers);
        }
    }
    Ok(Vec::new())
}

async fn is_there(containerd: &Containerd, digest: &str) -> Result<bool, Status> {
    let asked = InfoRequest {
        digest: digest.to_owned(),
    };
    match containerd.call::<_, InfoResponse>(CONTENT, "Info", asked).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(refused(&error)),
    }
}

/// The label that says from which repository of which registry a blob is, without the port, as containerd has it.
fn came_from(reference: &str) -> Option<(String, String)> {
    let (registry, rest) = reference.split_once('/')?;
    let host = registry.split_once(':').map_or(registry, |(host, _)| host);
    let repository = rest.split_once('@').map_or(rest, |(repository, _)| repository);
    let repository = repository
        .split_once(':')
        .map_or(repository, |(repository, _)| repository);
    Some((
        format!("containerd.io/distribution.source.{host}"),
        repository.to_owned(),
    ))
}

fn refused(error: &ContainerdError) -> Status {
    Status::unavailable(format!("Xebec: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_name_the_repository_without_port_tag_and_digest() {
        for reference in [
            "registry.example.com/team/app:1.4",
            "registry.example.com:5000/team/app:1.4",
            "registry.example.com:5000/team/app@sha256:00",
            "registry.example.com/team/app:1.4@sha256:00",
        ] {
            let label = "containerd.io/distribution.source.registry.example.com".to_owned();
            assert_eq!(came_from(reference), Some((label, "team/app".to_owned())));
        }
    }
}
