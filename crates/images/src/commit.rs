//! `xebec commit`: what a container changed becomes an image that is kept on this host (the crate `commit`).
//!
//! An image that was committed here and not pushed by its name is what the name means on this host. Its upper layer comes from the blob
//! that is kept, and the layers below it come from the repository of its base, to which this host has access for the base already. So it
//! is resolved as an image of that repository.

use std::io;
use std::path::PathBuf;

use serde::Serialize;
use xebec_commit::{
    Base, Change, CommitError, Committed, CommittedImages, Compression, ImageError, Note, Provenance,
    make_image, make_layer,
};
use xebec_container::{Container, Directories, HeldLayer};
use xebec_format::digest::Digest;
use xebec_kernel::clock::{rfc3339, seconds_since_1970};
use xebec_oci::{ImageConfig, Reference};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{Forgotten, ImageRequest, PullPolicy};

use crate::facts;
use crate::found_image::{FoundImage, parse_manifest};
use crate::images::{Images, Report};
use crate::needed::check_unneeded;

/// An image that was made of a container.
#[derive(Clone, Debug, Serialize)]
pub struct MadeImage {
    /// Its name.
    pub reference: String,
    /// Its manifest.
    pub manifest: Digest,
    /// How its base is named.
    pub base: String,
    /// The new layer; `None` if the container had changed nothing.
    pub layer: Option<Digest>,
    /// The size of the new layer in bytes.
    pub size: u64,
    /// The digest of its plain tar file.
    pub diff_id: Digest,
    /// The size of that in bytes.
    pub plain_size: u64,
    /// The number of its entries.
    pub entries: u64,
}

/// How an image is made of a container.
#[derive(Clone, Debug)]
pub struct CommitOptions {
    /// The name of the image.
    pub name: String,
    /// `--author`.
    pub author: Option<String>,
    /// `--message`.
    pub message: Option<String>,
    /// Instructions that change the configuration.
    pub changes: Vec<Change>,
    /// How the layer is compressed.
    pub compression: Compression,
    /// Whether a container that runs is frozen meanwhile.
    pub pause: bool,
    /// The user's logins, should the base's registry have to be asked for its configuration.
    pub docker_config: Option<PathBuf>,
}

/// The caller's part in a commit.
pub struct Watch<'a> {
    /// Asked now and then; an error ends the commit, and nothing is kept.
    pub go_on: &'a mut dyn FnMut() -> io::Result<()>,
    /// Told of files that are left out.
    pub note: &'a mut dyn FnMut(Note),
}

/// The committed images of an installation.
impl Images {
    /// The images that were committed on this host.
    pub fn committed(&self) -> CommittedImages {
        CommittedImages::new(self.paths.committed())
    }

    /// Makes an image of what a container changed, and keeps it on this host.
    ///
    /// # Errors
    /// A name that is none, a container that cannot be held still, changes that no layer can hold, a disk that is full. Nothing is kept
    /// then.
    pub async fn commit(
        &self,
        directories: &Directories,
        container: &Container,
        options: &CommitOptions,
        watch: Watch<'_>,
        report: &Report,
    ) -> Result<MadeImage, Failure> {
        let reference = named(&options.name)?;
        let base = self
            .base_of(container, options.docker_config.clone(), report)
            .await?;
        let committed = self.committed();
        let staged = committed.stage().map_err(failure)?;
        let of_container = |error| Failure::new(FailureKind::Host, error);
        let held = HeldLayer::hold(directories, container, options.pause).map_err(of_container)?;
        let made = make_layer(
            &held.upper(),
            options.compression,
            staged.file(),
            watch.go_on,
            watch.note,
        );
        let created_by = held.container().command().join(" ");
        held.release().map_err(of_container)?;
        let layer = made.map_err(failure)?;
        let created = rfc3339(seconds_since_1970());
        let base_name = base.reference.repository().at(base.manifest_digest).to_string();
        let described = Base {
            manifest: &base.manifest_bytes,
            config: &base.config_bytes,
            reference: &base_name,
        };
        let provenance = Provenance {
            created: &created,
            created_by: &created_by,
            author: options.author.as_deref(),
            message: options.message.as_deref(),
        };
        let image = make_image(&described, &layer, &options.changes, &provenance)
            .map_err(|error: ImageError| Failure::new(FailureKind::Integrity, error))?;
        let reference = reference.to_string();
        let kept = committed
            .keep(staged, &layer, &image, &reference, &created)
            .map_err(failure)?;
        Ok(MadeImage {
            reference,
            manifest: kept.manifest,
            base: kept.base,
            layer: kept.layer.map(|(digest, _)| digest),
            size: kept.layer.map_or(0, |(_, size)| size),
            diff_id: layer.diff_id,
            plain_size: layer.plain_size,
            entries: layer.entries,
        })
    }

    /// The image that was committed here by a name, or whose manifest's digest begins so.
    ///
    /// # Errors
    /// When the list of committed images cannot be read.
    pub fn find_committed(&self, name: &str) -> Result<Option<Committed>, Failure> {
        let committed = self.committed();
        let full = name.parse().ok().and_then(|reference| full_name(&reference));
        let by_name = full.map(|full| find_in(&committed, &full)).transpose()?;
        match by_name.flatten() {
            Some(image) => Ok(Some(image)),
            None => find_in(&committed, name),
        }
    }

    /// Removes an image that was committed here by that name, or else has `forget` remove the image of that name. If this host has a record
    /// of a committed image, `forget` is asked for it first by its manifest: it refuses one that a container needs. Without a record, as
    /// after the cache was emptied, that is seen here. With `force` it may be the image of containers that do not run.
    ///
    /// # Errors
    /// Those of `forget`, and of the disk; a container that needs the image.
    pub fn forget_committed(
        &self,
        name: &str,
        force: bool,
        forget: &mut dyn FnMut(&str) -> Result<Forgotten, Failure>,
    ) -> Result<Forgotten, Failure> {
        let Some(image) = self.find_committed(name)? else {
            return forget(name);
        };
        let committed = self.committed();
        let all = committed.list().map_err(failure)?;
        let names = all.iter().filter(|other| other.manifest == image.manifest);
        let is_last = names.count() == 1;
        let mut forgotten = Forgotten {
            reference: name.to_owned(),
            manifest: image.manifest,
            left: Vec::new(),
            removed_layers: 0,
            removed_bytes: 0,
            kept: Vec::new(),
        };
        if is_last && self.records.get(image.manifest).is_none() {
            self.check_without_record(name, image.manifest, force)?;
        } else if is_last {
            let of_cache = forget(&image.manifest.to_string())?;
            (forgotten.removed_bytes, forgotten.kept) = (of_cache.removed_bytes, of_cache.kept);
            forgotten.removed_layers = of_cache.removed_layers;
        }
        let wanted = image.reference.unwrap_or_else(|| image.manifest.to_string());
        let removed = committed.remove(&wanted).map_err(failure)?;
        let freed = removed.map_or(0, |removed| removed.freed);
        forgotten.removed_bytes += freed;
        forgotten.removed_layers += u64::from(freed > 0 && image.layer.is_some());
        let left = all.into_iter().filter(|other| other.manifest == image.manifest);
        let left = left.filter_map(|other| other.reference);
        forgotten.left = left.filter(|reference| *reference != wanted).collect();
        Ok(forgotten)
    }

    /// Refuses to remove an image without a record that a container runs, or, unless `force`, is started again with.
    fn check_without_record(&self, name: &str, manifest: Digest, force: bool) -> Result<(), Failure> {
        let directories = Directories {
            state: self.paths.containers(),
            run: self.paths.run().to_owned(),
        };
        let found = xebec_container::containers(&directories)
            .map_err(|error| Failure::new(FailureKind::Host, error))?;
        let (active, others): (Vec<Container>, Vec<Container>) =
            found.containers.into_iter().partition(Container::is_active);
        check_unused(name, manifest, &active)?;
        match force {
            true => Ok(()),
            false => check_unneeded(name, manifest, &others),
        }
    }

    /// Refuses an image that is not in the repository that it is resolved by, to which something is to be attached: one that was committed
    /// here, and not pushed there.
    ///
    /// # Errors
    /// That, and a list of committed images that cannot be read.
    pub fn check_pushed(&self, found: &FoundImage) -> Result<(), Failure> {
        let image = find_in(&self.committed(), &found.manifest_digest.to_string())?;
        let Some(image) = image else {
            return Ok(());
        };
        let pushed = image
            .pushed
            .as_deref()
            .and_then(|name| name.parse::<Reference>().ok());
        let base = image.base.parse::<Reference>().ok();
        let repository = Some(found.reference.repository());
        let is_elsewhere = base.as_ref().map(Reference::repository) != repository;
        if is_elsewhere || pushed.as_ref().map(Reference::repository) == repository {
            return Ok(());
        }
        let name = image.reference.unwrap_or_else(|| image.manifest.to_string());
        let message = format!("{name} is only on this host: push it first (`xebec push {name}`)");
        Err(Failure::new(FailureKind::Usage, message))
    }

    /// The image that a container was started from.
    async fn base_of(
        &self,
        container: &Container,
        docker_config: Option<PathBuf>,
        report: &Report,
    ) -> Result<FoundImage, Failure> {
        let manifest = container.saved.as_ref().and_then(|saved| saved.manifest.as_ref());
        let manifest = manifest.and_then(|digest| digest.parse::<Digest>().ok());
        let manifest = manifest.ok_or_else(|| {
            let message = format!(
                "the container {} does not say from which manifest it was started; only containers that this version started can be \
                 committed",
                container.name
            );
            Failure::new(FailureKind::Usage, message)
        })?;
        let request = ImageRequest {
            docker_config,
            pull: PullPolicy::Missing,
            manifest: Some(manifest),
            ..ImageRequest::named(container.image())
        };
        self.resolve(&request, report).await
    }

    /// The image that a name means, if it was committed here and was not pushed by that name; or the one of a manifest, whatever its name.
    pub(crate) async fn resolve_committed(
        &self,
        reference: &Reference,
        manifest: Option<Digest>,
    ) -> Result<Option<FoundImage>, Failure> {
        let committed = self.committed();
        let found = match (manifest.or(reference.digest()), full_name(reference)) {
            (Some(manifest), _) => find_in(&committed, &manifest.to_string())?,
            (None, Some(name)) => {
                let found = find_in(&committed, &name)?;
                found.filter(|image| image.pushed.as_deref() != Some(name.as_str()))
            }
            (None, None) => None,
        };
        let Some(image) = found else {
            return Ok(None);
        };
        let found = self.found_committed(&committed, &image)?;
        self.bring_kept_layers(&committed, &found).await?;
        Ok(Some(found))
    }

    /// A committed image as an image of its base's repository.
    pub(crate) fn found_committed(
        &self,
        committed: &CommittedImages,
        image: &Committed,
    ) -> Result<FoundImage, Failure> {
        let (manifest_bytes, config_bytes) = committed.documents(image).map_err(failure)?;
        let damaged = |what: &str| {
            let message = format!(
                "the committed image {}: its {what} cannot be read",
                image.manifest
            );
            Failure::new(FailureKind::Integrity, message)
        };
        let base: Reference = image.base.parse().map_err(|_| damaged("base's name"))?;
        let media_type = xebec_oci::media_type::OCI_MANIFEST;
        let manifest = parse_manifest(&manifest_bytes, media_type).ok_or_else(|| damaged("manifest"))?;
        let config = ImageConfig::parse(&config_bytes).map_err(|_| damaged("configuration"))?;
        Ok(FoundImage {
            reference: base.repository().at(image.manifest),
            image_index: None,
            platform: None,
            manifest_digest: image.manifest,
            media_type: media_type.to_owned(),
            manifest_bytes: manifest_bytes.into(),
            config_bytes: config_bytes.into(),
            layers: manifest.layers,
            diff_ids: config.rootfs.diff_ids,
            offline: false,
            is_part: false,
            user: None,
        })
    }

    /// Sees to it that the layers whose blobs are kept here are in the cache, whole: they are in no registry.
    async fn bring_kept_layers(
        &self,
        committed: &CommittedImages,
        found: &FoundImage,
    ) -> Result<(), Failure> {
        let reader = facts::repository_name(found.reference.repository())?;
        for (layer, diff_id) in found.layers.iter().zip(&found.diff_ids) {
            let blob = committed.blob(layer.digest);
            let is_here = |key: &xebec_cache::store::LayerKey| {
                self.store.is_complete(*key) && facts::is_proven(&self.store, *key)
            };
            if !blob.is_file() {
                continue;
            }
            match self.store.indexes_of(layer.digest).into_iter().find(is_here) {
                Some(key) if facts::is_open_to(&self.store, key, &reader) => {}
                _ => {
                    let account = self.budget.open(found.reference.to_string());
                    self.index_file(blob, layer, *diff_id, &reader, Some(&account))
                        .await?;
                }
            }
        }
        Ok(())
    }
}

/// Refuses to remove an image, called `name`, that containers run: no option removes it then.
fn check_unused(name: &str, manifest: Digest, active: &[Container]) -> Result<(), Failure> {
    let manifest = manifest.to_string();
    let is_its = |container: &&Container| {
        let saved = container.saved.as_ref();
        saved.and_then(|saved| saved.manifest.as_ref()) == Some(&manifest)
    };
    let mut names: Vec<&str> = active
        .iter()
        .filter(is_its)
        .map(|one| one.name.as_str())
        .collect();
    names.sort_unstable();
    let stop = names.join(" ");
    let message = match names.len() {
        0 => return Ok(()),
        1 => format!("{name} is in use by the container {stop}; stop it first (xebec stop {stop})"),
        _ => format!(
            "{name} is in use by the containers {}; stop them first (xebec stop {stop})",
            names.join(", ")
        ),
    };
    Err(Failure::new(FailureKind::Usage, message))
}

/// The committed image of that name. A list that cannot be read keeps nobody from images that cannot be in it.
fn find_in(committed: &CommittedImages, name: &str) -> Result<Option<Committed>, Failure> {
    match committed.find(name) {
        Err(error) if !committed.may_have(name) => {
            tracing::warn!("{error}");
            Ok(None)
        }
        found => found.map_err(failure),
    }
}

/// The name that an image is committed or pushed by: with a tag, and without a digest, which nobody can choose.
pub(crate) fn named(name: &str) -> Result<Reference, Failure> {
    let reference: Reference = name
        .parse()
        .map_err(|error| Failure::new(FailureKind::Usage, error))?;
    if reference.is_by_digest() {
        let message = format!("{name} names a digest, which the image's contents decide; give it a tag");
        return Err(Failure::new(FailureKind::Usage, message));
    }
    let tagged = reference.repository().tagged(&reference.manifest_name());
    tagged.map_err(|error| Failure::new(FailureKind::Usage, error))
}

/// A name as committed images have it; `None` for a digest.
pub(crate) fn full_name(reference: &Reference) -> Option<String> {
    let tagged = reference.repository().tagged(&reference.manifest_name()).ok()?;
    (!reference.is_by_digest()).then(|| tagged.to_string())
}

/// A failure of the crate `commit`, with what makes room if the disk is full.
pub(crate) fn failure(error: CommitError) -> Failure {
    let is_full = |problem: &&io::Error| {
        matches!(
            problem.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    };
    match error.of_disk().filter(is_full) {
        Some(problem) => Failure::on_root_disk("the image is not kept", problem),
        None => Failure::new(FailureKind::Host, error),
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should stop"
)]
mod tests;
