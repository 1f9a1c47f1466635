//! Forgetting images, and keeping them: `xebec rmi`, `xebec cache pin`.

use std::sync::Arc;

use xebec_cache::evict::{Action, Step};
use xebec_cache::store::LayerKey;
use xebec_images::check::known_image;
use xebec_images::images::Images;
use xebec_images::inventory;
use xebec_images::record::ImageRecord;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{Forgotten, ImageRequest, users};
use xebec_recordings::recording_store::KeptRecordings;
use xebec_views::views::Views;

use crate::eviction::Eviction;

/// Forgets and keeps images.
pub(crate) struct Removal {
    pub(crate) images: Images,
    pub(crate) kept: KeptRecordings,
    pub(crate) views: Arc<Views>,
    pub(crate) eviction: Arc<Eviction>,
}

impl Removal {
    /// Takes a name from an image; when it was the last, or the image was named by digest, forgets the image and removes
    /// the layers that no other image refers to.
    ///
    /// # Errors
    /// When the image is not known, is pinned, or is in use.
    pub(crate) fn forget_image(&self, request: &ImageRequest) -> Result<Forgotten, Failure> {
        let mut record = known_image(&self.images, request)?;
        let mut forgotten = Forgotten {
            reference: request.reference.clone(),
            manifest: record.manifest_digest,
            left: Vec::new(),
            removed_layers: 0,
            removed_bytes: 0,
            kept: Vec::new(),
        };
        let name: Option<xebec_oci::Reference> = request.reference.parse().ok();
        let name = name.map(|reference| reference.to_string());
        let taken = name.as_ref().is_some_and(|name| record.references.remove(name));
        if taken && record.references.iter().any(|name| !name.contains('@')) {
            forgotten.left = record.references.iter().cloned().collect();
            let records = self.images.records();
            records.change(record.manifest_digest, |record| {
                name.iter().for_each(|name| {
                    record.references.remove(name);
                });
            })?;
            return Ok(forgotten);
        }
        self.check_unneeded(request, &record)?;
        self.views
            .take_down_unused(|view| view.manifest == record.manifest_digest);
        self.images.records().remove(record.manifest_digest)?;
        self.kept.forget(record.manifest_digest)?;
        self.evict_layers(&record, &mut forgotten);
        Ok(forgotten)
    }

    /// Fails when an image is pinned or in use.
    fn check_unneeded(&self, request: &ImageRequest, record: &ImageRecord) -> Result<(), Failure> {
        if record.pinned {
            let message = format!(
                "{} is pinned; run `xebec cache unpin {}` first",
                request.reference, request.reference
            );
            return Err(Failure::new(FailureKind::Usage, message));
        }
        if let Some(users) = self.users_of(record) {
            let message = format!(
                "{} is in use by {users}; stop or unmount these first",
                request.reference
            );
            return Err(Failure::new(FailureKind::Usage, message));
        }
        Ok(())
    }

    /// Removes the layers of an image that no other image has.
    fn evict_layers(&self, record: &ImageRecord, forgotten: &mut Forgotten) {
        let others = self.images.records().list();
        for layer in &record.layers {
            let key = layer.key();
            let is_wanted = others
                .iter()
                .any(|other| other.layers.iter().any(|layer| layer.key() == key));
            if is_wanted || !self.images.store().contains(key) {
                continue;
            }
            let bytes = inventory::disk_bytes(&self.images.store().folder(key));
            let step = Step {
                key,
                action: Action::Remove,
                bytes,
            };
            match self.eviction.evict(&step) {
                Ok(()) => {
                    forgotten.removed_layers += 1;
                    forgotten.removed_bytes += bytes;
                }
                Err(reason) => forgotten.kept.push(format!("{key} stays: {reason}")),
            }
        }
    }

    /// Keeps the layers of an image whatever the limit is, or no more.
    ///
    /// # Errors
    /// When the image is not known, or its record cannot be written.
    pub(crate) fn pin(&self, request: &ImageRequest, pinned: bool) -> Result<(), Failure> {
        let manifest = known_image(&self.images, request)?.manifest_digest;
        let records = self.images.records();
        match records.change(manifest, |record| record.pinned = pinned)? {
            true => Ok(()),
            // Forgotten a moment ago, which is said.
            false => known_image(&self.images, request).map(drop),
        }
    }

    /// Who has the image mounted: views made for it, and those that another image with the same files shares with it.
    fn users_of(&self, record: &ImageRecord) -> Option<String> {
        let views = self.views.held();
        let reads_all = |pairs: &[LayerKey]| record.layers.iter().all(|layer| pairs.contains(&layer.key()));
        let view = views.iter().find(|view| {
            let keys: Vec<LayerKey> = view.layers.iter().map(|pair| (*pair).into()).collect();
            view.manifest == record.manifest_digest || (!record.layers.is_empty() && reads_all(&keys))
        })?;
        // A record that cannot be read costs a name only.
        let containers = xebec_container::list(self.images.paths().run());
        let containers = containers.map_or_else(|_| Vec::new(), |listed| listed.records);
        Some(users(&view.path, &view.holders, &containers).join(", "))
    }
}
