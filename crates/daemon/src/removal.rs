//! Forgetting images, and keeping them: `xebec rmi`, `xebec cache pin`.

use std::sync::Arc;

use xebec_cache::evict::{Action, Step};
use xebec_container::Record;
use xebec_format::digest::Digest;
use xebec_images::check::known_image;
use xebec_images::images::Images;
use xebec_images::inventory;
use xebec_images::lookup::not_known;
use xebec_images::needed::check_unneeded;
use xebec_images::record::ImageRecord;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{Forgotten, Holder, ImageRequest, users};
use xebec_recordings::recording_store::KeptRecordings;
use xebec_views::views::{ViewRecord, Views};

use crate::containers;
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
    /// the layers that no other image refers to. With `force` it may be the image of containers that do not run.
    ///
    /// # Errors
    /// When the image is not known, is pinned, or is in use.
    pub(crate) fn forget_image(&self, request: &ImageRequest, force: bool) -> Result<Forgotten, Failure> {
        let known = self.images.records().named(&request.reference)?;
        let mut record = known.ok_or_else(|| not_known(&request.reference, ""))?;
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
        self.check_unneeded(request, &record, force)?;
        self.views
            .take_down_unused(|view| view.manifest == record.manifest_digest);
        self.images.records().remove(record.manifest_digest)?;
        self.kept.forget(record.manifest_digest)?;
        self.evict_layers(&record, &mut forgotten);
        Ok(forgotten)
    }

    /// Fails when an image is pinned, in use, or the image of containers.
    fn check_unneeded(
        &self,
        request: &ImageRequest,
        record: &ImageRecord,
        force: bool,
    ) -> Result<(), Failure> {
        let (name, manifest) = (&request.reference, record.manifest_digest);
        let refused = |message: String| Err(Failure::new(FailureKind::Usage, message));
        if record.pinned {
            return refused(format!("{name} is pinned; run `xebec cache unpin {name}` first"));
        }
        let directories = containers::directories(self.images.paths());
        // A record that cannot be read costs a name only.
        let found = xebec_container::containers(&directories)
            .unwrap_or_default()
            .containers;
        let running = found.iter().filter(|container| container.is_active());
        let running: Vec<Record> = running.filter_map(|container| container.record.clone()).collect();
        let users = users_of(manifest, &self.views.held(), &running);
        if !users.is_empty() {
            let users = users.join(", ");
            return refused(format!(
                "{name} is in use by {users}; stop or unmount these first"
            ));
        }
        match force {
            true => Ok(()),
            false => check_unneeded(name, manifest, &found),
        }
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
}

/// The holders of an image's views. A view may be that of several images of the same layers: each holder has its own.
fn users_of(manifest: Digest, views: &[ViewRecord], running: &[Record]) -> Vec<String> {
    let its_users = views.iter().flat_map(|view| {
        let holders = view.holders.iter().cloned();
        let (its, others): (Vec<Holder>, Vec<Holder>) =
            holders.partition(|holder| view.image_of(holder).1 == manifest);
        if its.is_empty() {
            return Vec::new();
        }
        let is_anothers = |record: &Record| others.iter().any(|holder| holder.supervises(record));
        let on_it: Vec<Record> = running
            .iter()
            .filter(|record| !is_anothers(record))
            .cloned()
            .collect();
        users(&view.path, &its, &on_it)
    });
    its_users.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use serde_json::json;

    use super::*;

    /// Images of the same layers have one view, and an image may have layers of another: each holder says which it uses.
    #[test]
    fn only_who_holds_the_image_itself_uses_it() {
        let [one, two, other] = ["one", "two", "other"].map(|name| Digest::of(name.as_bytes()));
        let holder =
            |pid: u32| json!({"kind": "process", "name": format!("run-{pid}"), "pid": pid, "start_time": 1});
        let view: ViewRecord = serde_json::from_value(json!({
            "name": "v", "path": "/v", "reference": "r/one:1", "manifest": one, "layers": [],
            "holders": [holder(1), holder(2)],
            "images": [
                {"holder": holder(1), "reference": "r/one:1", "manifest": one},
                {"holder": holder(2), "reference": "r/two:1", "manifest": two},
            ],
        }))
        .unwrap();
        let views = [view];
        assert_eq!(users_of(one, &views, &[]), ["run-1 (process 1)"]);
        assert_eq!(users_of(two, &views, &[]), ["run-2 (process 2)"]);
        assert!(users_of(other, &views, &[]).is_empty());
    }

    /// The supervisor of a container of one image was killed, and the kernel gave its id to a command that holds the other.
    #[test]
    fn a_process_with_the_id_of_an_ended_supervisor_takes_no_container_from_its_image() {
        let [one, two] = ["one", "two"].map(|name| Digest::of(name.as_bytes()));
        let holder =
            |name, started: u64| json!({"kind": "process", "name": name, "pid": 7, "start_time": started});
        let view: ViewRecord = serde_json::from_value(json!({
            "name": "v", "path": "/v", "reference": "r/one:1", "manifest": one, "layers": [],
            "holders": [holder("web", 1), holder("record", 2)],
            "images": [
                {"holder": holder("web", 1), "reference": "r/one:1", "manifest": one},
                {"holder": holder("record", 2), "reference": "r/two:1", "manifest": two},
            ],
        }))
        .unwrap();
        let web: Record = serde_json::from_value(json!({
            "id": "web", "image": "r/one:1", "pid": null, "pid_started": null, "supervisor": 7, "supervisor_started": 1,
            "runtime": "/r", "view": "/v", "state": "/s", "rm": false, "created": 0, "command": [],
        }))
        .unwrap();
        let (views, running) = ([view], [web]);
        assert_eq!(users_of(one, &views, &running), ["container web"]);
        assert_eq!(users_of(two, &views, &running), ["record (process 7)"]);
    }
}
