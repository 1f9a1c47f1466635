//! `xebec push`: an image that was committed here goes to a registry, with the indexes of its layers.
//!
//! Blobs that the repository has are not sent. A layer of the base is mounted where base and target are in one registry, and is otherwise
//! fetched from the base's registry while it is sent. The manifest goes last, so a tag never names an image of which something is missing,
//! and a push that was stopped goes on with what is not there yet, in the middle of a large layer, too. The index artifact follows the manifest that it refers to.
//!
//! The new layer's index is made of the blob that is kept here. Of the base's layers the indexes go along by which this host uses the
//! base: those that it has proven, or that the policy admitted for the base. Their sections come from here, or else from the base's
//! repository. A layer without such an index is read whole.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use xebec_artifact::artifact::BlobRef;
use xebec_artifact::made::blobs_of;
use xebec_cache::store::LayerKey;
use xebec_commit::{CommittedImages, KeptUploads};
use xebec_format::digest::Digest;
use xebec_format::layer::LayerIndex;
use xebec_kernel::size::for_people;
use xebec_oci::media_type::is_nondistributable;
use xebec_oci::{BlobSource, BlobUpload, Client, Descriptor, Reference, Repository, Uploads};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::Reply;

use crate::commit::{failure, named};
use crate::facts;
use crate::found_image::FoundImage;
use crate::images::{Images, Report};
use crate::native_push::{Instead, Push};
use crate::publish::needs_index;
use crate::registry_failure::registry_failure;

/// An image that was pushed.
#[derive(Clone, Debug, Serialize)]
pub struct PushedImage {
    /// Its name there.
    pub reference: String,
    /// Its manifest.
    pub manifest: Digest,
    /// The artifact with its layers' indexes.
    pub artifact: Digest,
    /// Its layers, bottom to top.
    pub layers: Vec<PushedLayer>,
}

/// A layer of an image that was pushed.
#[derive(Clone, Debug, Serialize)]
pub struct PushedLayer {
    /// The layer blob.
    pub layer: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// How it came to be in the repository.
    pub how: Brought,
    /// The bytes that were sent for it.
    pub sent: u64,
}

impl fmt::Display for PushedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.how {
            Brought::Assembled => write!(
                f,
                "pushed, {} sent; the registry had the rest",
                for_people(self.sent)
            ),
            how => how.fmt(f),
        }
    }
}

/// How a blob came to be in a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Brought {
    /// It was there.
    Existed,
    /// Another repository of the registry had it.
    Mounted,
    /// It was sent.
    Sent,
    /// The registry put it together of what it had and what was sent.
    Assembled,
    /// Registries may not have it: the image says from where to fetch it.
    Elsewhere,
}

impl fmt::Display for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Existed => "was there",
            Self::Mounted => "mounted",
            Self::Sent | Self::Assembled => "pushed",
            Self::Elsewhere => "left where the image says it is",
        })
    }
}

/// The two ends of a push.
struct Ends<'a> {
    committed: &'a CommittedImages,
    /// The image as one of its base's repository.
    found: &'a FoundImage,
    base: Client,
    target: Client,
    to: &'a Reference,
}

impl Images {
    /// Pushes an image that was committed here to `target`, or by its own name. `logins` has the file with the login for a repository.
    ///
    /// # Errors
    /// A name that no committed image has; registries that refuse, or cannot be reached; a layer that is not what its digest says.
    pub async fn push(
        &self,
        name: &str,
        target: Option<&str>,
        logins: &(dyn Fn(&Repository) -> Option<PathBuf> + Sync),
        report: &Report,
    ) -> Result<PushedImage, Failure> {
        let committed = self.committed();
        let image = self.find_committed(name)?.ok_or_else(|| not_committed(name))?;
        let own = image.reference.clone();
        let to = target.map(str::to_owned).or(own).ok_or_else(|| {
            let message = format!(
                "the image {name} has no name any more; say where to push it: xebec push {name} TARGET"
            );
            Failure::new(FailureKind::Usage, message)
        })?;
        let to = named(&to)?;
        let found = self.found_committed(&committed, &image)?;
        let ends = Ends {
            base: self
                .clients
                .get(logins(found.reference.repository()).as_deref())?,
            target: self.clients.get(logins(to.repository()).as_deref())?,
            committed: &committed,
            to: &to,
            found: &found,
        };
        let layers = ends.push_layers(report).await?;
        let config = BlobSource::Bytes(found.config_bytes.clone());
        ends.send(config, None).await?;
        let (tag, manifest) = (to.manifest_name(), found.manifest_bytes.clone());
        let pushed = ends
            .target
            .push_manifest(ends.to.repository(), &tag, &found.media_type, manifest);
        pushed.await.map_err(|error| registry_failure(&error))?;
        // The registry has the image from here on, whatever becomes of its indexes.
        let note = committed.note_pushed(image.manifest, &to.to_string());
        note.map_err(failure)?;
        let artifact = self.push_indexes(&ends, &to, report).await?;
        Ok(PushedImage {
            reference: to.to_string(),
            manifest: image.manifest,
            artifact,
            layers,
        })
    }

    async fn push_indexes(
        &self,
        ends: &Ends<'_>,
        to: &Reference,
        report: &Report,
    ) -> Result<Digest, Failure> {
        let mut keys = HashMap::new();
        let there = FoundImage {
            reference: to.clone(),
            ..ends.found.clone()
        };
        for (number, layer) in ends.found.layers.iter().enumerate() {
            if needs_index(layer)
                && !is_nondistributable(&layer.media_type)
                && !keys.contains_key(&layer.digest)
            {
                let key = self.index_to_push(ends, &there, number, report).await?;
                keys.insert(layer.digest, key);
            }
        }
        self.publish_known(&ends.target, &there, &keys, report).await
    }

    /// An index of a layer of an image that is in its repository, with all its sections there or here.
    async fn index_to_push(
        &self,
        ends: &Ends<'_>,
        there: &FoundImage,
        number: usize,
        report: &Report,
    ) -> Result<LayerKey, Failure> {
        let (Some(layer), Some(diff_id)) = (there.layers.get(number), there.diff_ids.get(number)) else {
            return Err(Failure::new(
                FailureKind::Integrity,
                "the image has more layers than diff IDs",
            ));
        };
        let (base, reader) = (
            facts::repository_name(ends.found.reference.repository())?,
            facts::repository_name(ends.to.repository())?,
        );
        // The repository has the layer: it took the manifest.
        let open = |key: LayerKey| {
            facts::update(&self.store, key, |record| {
                facts::open(&self.store, key, record, &reader)
            })
            .map(|_| key)
        };
        if let Some(key) = self
            .own_index(layer.digest, &base)
            .or_else(|| self.own_index(layer.digest, &reader))
        {
            return open(key);
        }
        let blob = ends.committed.blob(layer.digest);
        if blob.is_file() {
            return self.index_file(blob, layer, *diff_id, &reader, None).await;
        }
        for key in self.used_indexes(layer.digest, &base) {
            match self.bring_sections(ends, key).await {
                Ok(()) => return open(key),
                Err(failure) => {
                    tracing::debug!(%failure, layer = %layer.digest, "an index does not go along")
                }
            }
        }
        self.index_layer(&ends.target, there, number, None, report).await
    }

    /// Indexes by which images of the base's repository use a layer here: the policy admitted them, and none was disproved since.
    fn used_indexes(&self, layer: Digest, base: &xebec_trust::RepositoryName) -> Vec<LayerKey> {
        let records = self.records.list();
        let used = records.iter().flat_map(|record| &record.layers);
        let mut keys: Vec<LayerKey> = used
            .filter(|used| used.layer == layer)
            .map(|used| used.key())
            .filter(|key| self.store.contains(*key) && facts::is_open_to(&self.store, *key, base))
            .filter(|key| facts::load(&self.store, *key).why_disproved().is_none())
            .collect();
        keys.sort_by_key(|key| key.index);
        keys.dedup();
        keys
    }

    /// Brings those sections of an index to the target that are not whole here; pushing the artifact then finds them there.
    async fn bring_sections(&self, ends: &Ends<'_>, key: LayerKey) -> Result<(), Failure> {
        let bytes = self.store.index_bytes(key)?;
        let index =
            LayerIndex::decode(&bytes).map_err(|error| Failure::new(FailureKind::Integrity, error))?;
        let stored = BlobRef {
            digest: key.index,
            size: bytes.len() as u64,
        };
        let folder = self.store.directory().join(key.folder());
        for (name, blob) in blobs_of(stored, &index).parts() {
            let is_here =
                std::fs::read(folder.join(name)).is_ok_and(|bytes| Digest::of(&bytes) == blob.digest);
            if !is_here {
                ends.send_from_base(blob.digest, blob.size).await?;
            }
        }
        Ok(())
    }
}

impl Ends<'_> {
    async fn push_layers(&self, report: &Report) -> Result<Vec<PushedLayer>, Failure> {
        let total = self.found.layers.iter().map(|layer| layer.size).sum();
        let (mut done, mut pushed) = (0, Vec::new());
        for (number, layer) in self.found.layers.iter().enumerate() {
            let what = format!(
                "push layer {}/{} {}",
                number + 1,
                self.found.layers.len(),
                layer.digest.short()
            );
            report(Reply::bytes(what, done, total));
            let (how, sent) = self.push_layer(layer, report).await?;
            pushed.push(PushedLayer {
                layer: layer.digest,
                size: layer.size,
                how,
                sent,
            });
            done += layer.size;
        }
        Ok(pushed)
    }

    /// Brings a layer to the target. Gives how it came there, and how many bytes were sent.
    async fn push_layer(&self, layer: &Descriptor, report: &Report) -> Result<(Brought, u64), Failure> {
        if is_nondistributable(&layer.media_type) {
            return Ok((Brought::Elsewhere, 0));
        }
        let sent = |how| (how, if how == Brought::Sent { layer.size } else { 0 });
        let blob = self.committed.blob(layer.digest);
        if !blob.is_file() {
            return self.send_from_base(layer.digest, layer.size).await.map(sent);
        }
        if let Some(length) = self.push_what_lacks(layer, report).await {
            return Ok((Brought::Assembled, length));
        }
        let kept = KeptHere(self.committed.uploads());
        let pushed = self
            .send_keeping(BlobSource::File(blob.clone()), None, Some(&kept))
            .await?;
        match pushed.0 == layer.digest {
            true => Ok(sent(pushed.1)),
            false => {
                let message = format!(
                    "{} is damaged: it is not what its name says; commit the container again",
                    blob.display()
                );
                Err(Failure::new(FailureKind::Integrity, message))
            }
        }
    }

    /// Pushes a layer without what the registry has of it, if it is one that can do so. Gives how many bytes were sent.
    async fn push_what_lacks(&self, layer: &Descriptor, report: &Report) -> Option<u64> {
        let push = Push {
            target: &self.target,
            to: self.to,
            committed: self.committed,
            image: self.found,
            layer,
        };
        match Box::pin(push.push()).await {
            Ok(length) => Some(length),
            Err(Instead::Plain(why)) => {
                tracing::debug!(layer = %layer.digest, "pushed as a blob: {why}");
                None
            }
            Err(Instead::Failed(why)) => {
                let text = format!(
                    "the layer {} is sent whole: the registry did not put it together: {why}",
                    layer.digest.short()
                );
                report(Reply::Notice { text });
                None
            }
        }
    }

    /// Brings a blob of the base's repository to the target.
    async fn send_from_base(&self, digest: Digest, size: u64) -> Result<Brought, Failure> {
        let repository = self.found.reference.repository();
        let source = BlobSource::Repository {
            client: Box::new(self.base.clone()),
            repository: repository.clone(),
            digest,
            size,
        };
        Ok(self.send(source, Some(repository)).await?.1)
    }

    async fn send(
        &self,
        source: BlobSource,
        from: Option<&Repository>,
    ) -> Result<(Digest, Brought), Failure> {
        self.send_keeping(source, from, None).await
    }

    /// The same; `kept` keeps how far it is.
    async fn send_keeping(
        &self,
        source: BlobSource,
        from: Option<&Repository>,
        kept: Option<&dyn Uploads>,
    ) -> Result<(Digest, Brought), Failure> {
        let to = self.to.repository();
        let pushed = self.target.push_blob_keeping(to, source, from, kept).await;
        let (digest, upload) = pushed.map_err(|error| registry_failure(&error))?;
        let brought = match upload {
            BlobUpload::Existed => Brought::Existed,
            BlobUpload::Mounted => Brought::Mounted,
            BlobUpload::Sent => Brought::Sent,
        };
        Ok((digest, brought))
    }
}

/// Where uploads go on, beside the committed images.
#[derive(Debug)]
struct KeptHere(KeptUploads);

impl Uploads for KeptHere {
    fn place(&self, repository: &Repository, blob: &Digest) -> Option<String> {
        self.0.place(*blob, &named_in_full(repository))
    }

    fn goes_on(&self, repository: &Repository, blob: &Digest, place: Option<&str>) {
        let noted = self.0.note(*blob, &named_in_full(repository), place);
        if let Err(error) = noted {
            tracing::debug!(%error, "a push that is stopped begins anew");
        }
    }
}

fn named_in_full(repository: &Repository) -> String {
    format!("{}/{}", repository.registry(), repository.name())
}

fn not_committed(name: &str) -> Failure {
    let message = format!(
        "no image {name} was committed on this host; `xebec images` lists those that were, as committed"
    );
    Failure::new(FailureKind::NotFound, message)
}
