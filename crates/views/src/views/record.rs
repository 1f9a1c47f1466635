//! The record of a view.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_protocol::wire::{Completion, Holder, LayerPair};

use super::prefill::PrefillNote;
use crate::bypass_devices::Arriving;
use crate::recording_admission::TrustRequirement;

/// The record of a view.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ViewRecord {
    /// Its name.
    pub name: String,
    /// Where it is mounted.
    pub path: PathBuf,
    /// The image it was made for first.
    pub reference: String,
    /// That image's manifest.
    pub manifest: Digest,
    /// Its layers, in the order of its devices.
    pub layers: Vec<LayerPair>,
    /// Its holders; none while it is idle.
    pub holders: Vec<Holder>,
    /// The image that it is for each of them. Images of the same layers have one view.
    #[serde(default)]
    pub images: Vec<HeldImage>,
    /// Since when it has no holder, in milliseconds since the host was started.
    #[serde(default)]
    pub unused_since_ms: Option<u64>,
    /// Its metadata could not be written, so no other start gets it.
    #[serde(default)]
    pub is_spoiled: bool,
    /// How the rest of it is to be brought in, if that was asked for; a later worker goes on with it.
    #[serde(default)]
    pub completion: Option<Completion>,
    /// The readers for whom its layers are read, as far as they are known: pages of runtime images must be good enough for all.
    #[serde(default)]
    pub uses: Vec<TrustRequirement>,
    /// A mount of the blob cache that is this view's own, and goes with it.
    #[serde(default)]
    pub own_mount: Option<PathBuf>,
    /// The mounts by which it reaches start-up pages that were not all there when it was mounted, a part each. A worker that does not
    /// know of parts, or a record that has none, does no harm: mounts that no record names are guarded.
    #[serde(default, rename = "arriving_parts")]
    pub arriving: Vec<Arriving>,
    /// The backing device whose read-ahead is kept small while a service starts.
    #[serde(default)]
    pub narrow: Option<String>,
    /// The view's backing device.
    #[serde(default)]
    pub backing: Option<String>,
    /// Whether more than one has held it since it was mounted, one after the other or together.
    #[serde(default)]
    pub was_shared: bool,
    /// Whether anything was brought into its page cache before somebody read it.
    #[serde(default, rename = "was_populated")]
    pub was_prefilled: bool,
    /// The pages that were brought. Not known to a later worker.
    #[serde(skip)]
    pub prefilled: PrefillNote,
    /// How often its read-ahead was made small, so that a later change back is for the same time.
    #[serde(skip)]
    pub(crate) narrowed: u64,
}

/// The image that a view is for a holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldImage {
    /// The holder of the view.
    pub holder: Holder,
    /// The image as it was named, in full.
    pub reference: String,
    /// Its manifest.
    pub manifest: Digest,
}

impl ViewRecord {
    /// The image that it is for one of its holders, as it was named, and its manifest; that of its first holder if another is not
    /// known.
    pub fn image_of(&self, holder: &Holder) -> (&str, Digest) {
        let held = self.images.iter().find(|held| same(&held.holder, holder));
        held.map_or((&self.reference, self.manifest), |held| {
            (&held.reference, held.manifest)
        })
    }

    /// Notes the image of a holder that it has now.
    pub(super) fn note_image(&mut self, holder: &Holder, reference: &str, manifest: Digest) {
        let holders = &self.holders;
        self.images.retain(|held| {
            let is_there = holders.iter().any(|other| same(other, &held.holder));
            is_there && !same(&held.holder, holder)
        });
        self.images.push(HeldImage {
            holder: holder.clone(),
            reference: reference.to_owned(),
            manifest,
        });
    }

    /// Whether it has a holder.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Whether it reads a layer.
    pub fn reads(&self, key: LayerKey) -> bool {
        self.layers.iter().any(|pair| LayerKey::from(*pair) == key)
    }
}

/// Whether two holders are the same claim. A container is known by its name alone: it names one at a time.
pub(super) fn same(one: &Holder, other: &Holder) -> bool {
    match (one, other) {
        (Holder::Directory { path: one }, Holder::Directory { path: other }) => one == other,
        (Holder::Process { name: one, .. }, Holder::Process { name: other, .. }) => one == other,
        (Holder::Snapshot { key: one }, Holder::Snapshot { key: other }) => one == other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two images of the same layers, which differ in their configurations only, have one view.
    #[test]
    fn each_holder_has_its_own_image() {
        let manifests = [Digest::of(b"one"), Digest::of(b"two")];
        let holder = |pid| Holder::Process {
            name: format!("run-{pid}"),
            pid,
            start_time: 1,
        };
        let mut view: ViewRecord = serde_json::from_value(serde_json::json!({
            "name": "v", "path": "/v", "reference": "r/one:1", "manifest": manifests[0], "layers": [],
            "holders": [holder(1), holder(2)],
        }))
        .unwrap();
        assert_eq!(
            view.image_of(&holder(2)),
            ("r/one:1", manifests[0]),
            "of an earlier version"
        );
        view.note_image(&holder(1), "r/one:1", manifests[0]);
        view.note_image(&holder(2), "r/two:1", manifests[1]);
        assert_eq!(view.image_of(&holder(1)), ("r/one:1", manifests[0]));
        assert_eq!(view.image_of(&holder(2)), ("r/two:1", manifests[1]));
        view.holders.remove(0);
        view.note_image(&holder(2), "r/two:2", manifests[1]);
        assert_eq!(view.images.len(), 1, "who is gone is forgotten");
        assert_eq!(view.image_of(&holder(2)), ("r/two:2", manifests[1]));
    }
}
