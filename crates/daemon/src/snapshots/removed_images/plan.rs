//! Plans which layers of which removed images leave the host.
//!
//! An image goes if it is kept for containerd alone, is not pinned, and no snapshot shows it. If snapshots show a part of an image,
//! because another image has its lowest layers too, the other layers go. A snapshot of a lazy layer is one of every image with that
//! chain of layers, whichever it was made for: containerd makes no second one. Layers that another image has stay if that image
//! stays. Images that are just being pulled or shown stay as well, and are tried again later. Records of earlier versions do not tell
//! for which clients an image is kept: it goes if containerd had it.

use std::collections::{HashMap, HashSet};

use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_oci::ImageConfig;
use xebec_snapshotter::lazy::Shown;

use xebec_images::admission::chain_ids;
use xebec_images::record::{ImageRecord, KeptFor};

/// The facts that show which images are wanted.
pub(super) struct Seen<'a> {
    pub(super) shown: &'a Shown,
    /// Images that were found a moment ago, of which a pull may be about to make the next snapshot; any, if that is not known.
    pub(super) found: Option<&'a HashSet<Digest>>,
    /// Whether a view of that image is held.
    pub(super) is_viewed: &'a dyn Fn(Digest) -> bool,
}

/// The images and layers that leave, and those that stay.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) leaving: Vec<Leaving>,
    /// Layers of images that stay, or of which these stay.
    pub(super) wanted: HashSet<LayerKey>,
    /// Nothing else would go, if it were asked again.
    pub(super) is_all: bool,
    /// The clients that the leaving images were kept for, by manifest.
    kept_for: HashMap<Digest, Option<KeptFor>>,
}

/// An image of which something goes.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) record: ImageRecord,
    /// How many of its lowest layers stay.
    kept: usize,
    /// Nothing of it stays.
    pub(super) is_whole: bool,
}

impl Leaving {
    /// Those that go, if nobody else wants them.
    pub(super) fn layers(&self) -> impl Iterator<Item = LayerKey> {
        self.record.layers.iter().skip(self.kept).map(|layer| layer.key())
    }
}

impl Plan {
    /// Whether a record wants its image to stay, and did not when this plan was made.
    pub(super) fn is_wanted_again(&self, record: &ImageRecord) -> bool {
        record.pinned || self.kept_for.get(&record.manifest_digest) != Some(&record.kept_for)
    }

    /// Whether an image as it is recorded now relies on a layer that this plan removes.
    pub(super) fn is_relied_on(&self, record: &ImageRecord, key: LayerKey) -> bool {
        self.is_wanted_again(record) && record.layers.iter().any(|layer| layer.key() == key)
    }
}

/// Plans for all images of this host.
pub(super) fn plan(records: Vec<ImageRecord>, seen: &Seen<'_>) -> Plan {
    let mut plan = Plan {
        is_all: true,
        ..Plan::default()
    };
    for record in records {
        let (all, shown) = (record.layers.len(), shown_of(&record, seen.shown));
        let would_go = shown < all || shown == 0;
        let may_go = would_go && may_go(&record, seen.shown);
        let stays_for_now = may_go && is_in_use(&record, seen);
        plan.is_all &= !stays_for_now;
        if !may_go || stays_for_now {
            plan.wanted.extend(record.layers.iter().map(|layer| layer.key()));
            continue;
        }
        let kept = record.layers.iter().take(shown);
        plan.wanted.extend(kept.map(|layer| layer.key()));
        plan.kept_for.insert(record.manifest_digest, record.kept_for);
        plan.leaving.push(Leaving {
            record,
            kept: shown,
            is_whole: shown == 0,
        });
    }
    plan
}

fn may_go(record: &ImageRecord, shown: &Shown) -> bool {
    !record.pinned
        && match record.kept_for {
            Some(KeptFor::Commands) => false,
            Some(KeptFor::Containerd) => true,
            None => shown.gone.contains(&record.manifest_digest.to_string()),
        }
}

fn is_in_use(record: &ImageRecord, seen: &Seen<'_>) -> bool {
    let manifest = record.manifest_digest.to_string();
    let is_found = || {
        seen.found
            .is_none_or(|found| found.contains(&record.manifest_digest))
    };
    seen.shown.pulled.contains(&manifest)
        // The facts about an image that was removed since are found out anew.
        || (!seen.shown.gone.contains(&manifest) && is_found())
        || (seen.is_viewed)(record.manifest_digest)
}

/// How many of an image's lowest layers snapshots show.
fn shown_of(record: &ImageRecord, shown: &Shown) -> usize {
    let own = shown.kept.get(&record.manifest_digest.to_string());
    let own = own.map_or(0, |depth| usize::try_from(*depth).unwrap_or(usize::MAX));
    // One that cannot be read goes nowhere.
    let Ok(config) = ImageConfig::parse(record.config.as_bytes()) else {
        return usize::MAX;
    };
    let chains = chain_ids(&config.rootfs.diff_ids);
    let others = chains
        .iter()
        .rposition(|chain| shown.chains.contains(&chain.to_string()));
    own.max(others.map_or(0, |top| top + 1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::super::protocol::record;
    use super::*;

    /// An image of two layers, kept for containerd, and the layers of it that snapshots show; which of its layers go.
    fn going(change: impl FnOnce(&mut ImageRecord, &mut Shown)) -> Vec<usize> {
        let (mut image, mut shown) = (record(0, false), Shown::default());
        change(&mut image, &mut shown);
        let keys: Vec<LayerKey> = image.layers.iter().map(|layer| layer.key()).collect();
        let found = HashSet::new();
        let seen = Seen {
            shown: &shown,
            found: Some(&found),
            is_viewed: &|_| false,
        };
        let plan = plan(vec![image], &seen);
        let going = plan.leaving.iter().flat_map(Leaving::layers);
        let number = |key| keys.iter().position(|known| *known == key);
        going.filter_map(number).collect()
    }

    fn name(image: &ImageRecord) -> String {
        image.manifest_digest.to_string()
    }

    #[test]
    fn what_goes() {
        assert_eq!(going(|_, _| ()), [0, 1]);
        let are_shown = |layers: u32| {
            going(|image, shown| {
                shown.kept.insert(name(image), layers);
            })
        };
        assert_eq!(are_shown(1), [1]);
        let none = [0_usize; 0];
        assert_eq!(are_shown(2), none);
        assert_eq!(going(|image, _| image.pinned = true), none);
        assert_eq!(going(|image, _| image.kept_for = Some(KeptFor::Commands)), none);
        let is_pulled = |image: &mut ImageRecord, shown: &mut Shown| {
            shown.pulled.insert(name(image));
        };
        assert_eq!(going(is_pulled), none);
        // Whether another image has its layers cannot be told.
        assert_eq!(going(|image, _| image.config = "no JSON".to_owned()), none);
    }

    #[test]
    fn what_an_earlier_version_kept_goes_if_containerd_had_it() {
        assert_eq!(going(|image, _| image.kept_for = None), [0_usize; 0]);
        let removed = |image: &mut ImageRecord, shown: &mut Shown| {
            image.kept_for = None;
            shown.gone.insert(name(image));
        };
        assert_eq!(going(removed), [0, 1]);
    }

    #[test]
    fn an_image_that_is_wanted_meanwhile_is_relied_on() {
        let image = record(0, false);
        let found = HashSet::new();
        let seen = Seen {
            shown: &Shown::default(),
            found: Some(&found),
            is_viewed: &|_| false,
        };
        let plan = plan(vec![image.clone()], &seen);
        let key = image.layers.first().unwrap().key();
        assert!(!plan.is_relied_on(&image, key));
        assert!(plan.is_relied_on(&record(0, true), key));
        let pinned = ImageRecord {
            pinned: true,
            ..image
        };
        assert!(plan.is_relied_on(&pinned, key));
        // One that was not known has its lowest layer.
        assert!(plan.is_relied_on(&record(1, false), key));
    }
}
