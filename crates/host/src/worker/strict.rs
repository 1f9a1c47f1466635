//! Who relies on a layer: while anybody does, only recordings that would be admitted for that use bring pages into it.
//!
//! A layer's data file is shared by all who read the layer by the same index, also by images of other repositories, and by
//! digest as well as by tag. Each of them would read what a recording brought. So a start **claims** its layers before it
//! looks at what was brought already, and holds the claim until its view is in the table of views, whose record says the
//! same from then on. Who brings pages in asks both; a claim waits for what is being brought in that it would not admit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_oci::Reference;

use crate::image::PreparedImage;
use crate::protocol::Purpose;
use crate::runtime_image::kept::Evidence;
use crate::trust::{Naming, Policy, RepositoryName, Root};

/// That somebody reads the layers of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// The image as it was named, in full.
    reference: String,
    /// Its manifest, without which older versions do not read what is kept of a use.
    manifest: Digest,
    /// What is needed of a recording, by layer.
    needs: Vec<Need>,
}

/// What is needed of a recording that brings pages into a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Need {
    layer: Digest,
    index: Digest,
    root: Root,
}

impl Use {
    /// The use of an image that is prepared.
    pub(super) fn of(prepared: &PreparedImage, purpose: &Purpose) -> Self {
        let needs = prepared.layers.iter().map(|layer| Need {
            layer: layer.key.layer,
            index: layer.key.index,
            root: match purpose {
                // What is recorded is believed everywhere.
                Purpose::Recording => Root::Bound,
                Purpose::Files | Purpose::Service(_) => layer.root,
            },
        });
        Self {
            reference: prepared.found.reference.to_string(),
            manifest: prepared.found.manifest_digest,
            needs: needs.collect(),
        }
    }

    /// What it needs for a layer; `None` if it does not read that.
    fn need(&self, key: LayerKey) -> Option<Root> {
        let needs = self.needs.iter();
        let mut needs = needs.filter(|need| need.layer == key.layer && need.index == key.index);
        needs.next().map(|need| need.root)
    }

    /// Whether pages that a recording brings into a layer are believed.
    pub(super) fn believes(&self, evidence: &Evidence, key: LayerKey, policy: &Policy) -> bool {
        let Some(needed) = self.need(key) else { return true };
        let Ok(reference) = self.reference.parse::<Reference>() else {
            return false;
        };
        let Ok(repository) = RepositoryName::new(reference.registry(), reference.repository().name()) else {
            return false;
        };
        let naming = Naming::of(reference.is_by_digest());
        let root = evidence.root(policy, &repository, naming);
        root.is_ok_and(|root| root >= needed)
    }
}

/// The table of claims, and of what is being brought in.
#[derive(Default)]
pub struct Strictness {
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Default)]
struct Table {
    claims: Vec<Arc<Use>>,
    injecting: Vec<Arc<Injected>>,
}

struct Injected {
    layers: Vec<LayerKey>,
    evidence: Evidence,
}

/// Layers that are relied on until this goes.
#[must_use]
pub struct Reliance {
    strictness: Arc<Strictness>,
    by: Arc<Use>,
}

/// Layers that pages are brought into until this goes.
#[must_use]
pub struct Injecting {
    strictness: Arc<Strictness>,
    what: Arc<Injected>,
}

impl Strictness {
    /// Relies on an image's layers from now on. Returns once nothing is being brought into them that would not be
    /// believed.
    pub(super) async fn claim(self: &Arc<Self>, by: Use, policy: &Policy) -> Reliance {
        let by = Arc::new(by);
        self.lock().claims.push(by.clone());
        let reliance = Reliance {
            strictness: self.clone(),
            by,
        };
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before it is looked, so that what ends in between is not missed.
            changed.as_mut().enable();
            if !self.is_doubtful_under_way(&reliance.by, policy) {
                return reliance;
            }
            changed.await;
        }
    }

    /// Begins to bring pages into those of the layers that nobody reads who would not believe them. `mounted` are the
    /// uses of mounted views; `None` stands for one of which nothing is known.
    pub(super) fn inject(
        self: &Arc<Self>,
        layers: impl IntoIterator<Item = LayerKey>,
        evidence: &Evidence,
        mounted: impl FnOnce() -> Vec<(Vec<LayerKey>, Option<Use>)>,
        policy: &Policy,
    ) -> Injecting {
        let mut table = self.lock();
        // Asked while the claims stand still: who gives one up has its view in there.
        let mounted = mounted();
        let is_believed = |key: LayerKey| {
            let claimed = table.claims.iter().all(|by| by.believes(evidence, key, policy));
            let mut reading = mounted.iter().filter(|(layers, _)| layers.contains(&key));
            claimed
                && reading.all(|(_, by)| match by {
                    Some(by) => by.believes(evidence, key, policy),
                    None => evidence.own,
                })
        };
        let layers = layers.into_iter().filter(|key| is_believed(*key)).collect();
        let what = Arc::new(Injected {
            layers,
            evidence: evidence.clone(),
        });
        table.injecting.push(what.clone());
        Injecting {
            strictness: self.clone(),
            what,
        }
    }

    /// Whether somebody is bringing pages into the layer.
    pub(super) fn is_injecting(&self, key: LayerKey) -> bool {
        self.lock()
            .injecting
            .iter()
            .any(|what| what.layers.contains(&key))
    }

    fn is_doubtful_under_way(&self, by: &Use, policy: &Policy) -> bool {
        let table = self.lock();
        table.injecting.iter().any(|what| {
            let mut layers = what.layers.iter();
            layers.any(|key| !by.believes(&what.evidence, *key, policy))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reliance {
    /// For whom; to be kept with the view.
    pub(super) fn by(&self) -> &Use {
        &self.by
    }
}

impl Injecting {
    /// Those that pages may be brought into.
    pub fn layers(&self) -> &[LayerKey] {
        &self.what.layers
    }

    /// Whether pages may be brought into the layer.
    pub fn may(&self, key: LayerKey) -> bool {
        self.what.layers.contains(&key)
    }
}

impl Drop for Reliance {
    fn drop(&mut self) {
        let mut table = self.strictness.lock();
        table.claims.retain(|by| !Arc::ptr_eq(by, &self.by));
    }
}

impl Drop for Injecting {
    fn drop(&mut self) {
        let mut table = self.strictness.lock();
        table.injecting.retain(|what| !Arc::ptr_eq(what, &self.what));
        drop(table);
        self.strictness.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::trust::Listing;

    const KEY: LayerKey = LayerKey {
        layer: Digest::from_bytes([1; 32]),
        index: Digest::from_bytes([2; 32]),
    };
    const MANIFEST: Digest = Digest::from_bytes([3; 32]);

    fn by(reference: &str, root: Root) -> Use {
        let reference = reference.replace("DIGEST", &MANIFEST.to_string());
        Use {
            reference,
            manifest: MANIFEST,
            needs: vec![Need {
                layer: KEY.layer,
                index: KEY.index,
                root,
            }],
        }
    }

    fn listed(repository: &str) -> Evidence {
        let name = RepositoryName::new("example.com", repository).unwrap();
        Evidence {
            listed: Some(Listing::new(&name)),
            ..Evidence::default()
        }
    }

    fn policy() -> Policy {
        Policy::load(std::path::Path::new("/nonexistent/trust.toml")).unwrap()
    }

    #[test]
    fn who_believes_whom() {
        let policy = policy();
        let own = Evidence {
            own: true,
            ..Evidence::default()
        };
        let tag = by("example.com/app:1", Root::Registry);
        assert!(tag.believes(&listed("app"), KEY, &policy));
        assert!(!tag.believes(&listed("other"), KEY, &policy), "listed elsewhere");
        assert!(!by("example.com/app@DIGEST", Root::Proven).believes(&listed("app"), KEY, &policy));
        assert!(!by("example.com/app:1", Root::Proven).believes(&listed("app"), KEY, &policy));
        assert!(by("example.com/app@DIGEST", Root::Bound).believes(&own, KEY, &policy));
        let elsewhere = LayerKey {
            layer: Digest::from_bytes([9; 32]),
            ..KEY
        };
        assert!(by("example.com/app@DIGEST", Root::Bound).believes(&listed("x"), elsewhere, &policy));
    }

    #[tokio::test]
    async fn nothing_doubtful_comes_while_somebody_relies_on_more() {
        let (strictness, policy) = (Arc::new(Strictness::default()), policy());
        let claim = strictness
            .claim(by("example.com/app@DIGEST", Root::Proven), &policy)
            .await;
        assert!(
            !strictness
                .inject([KEY], &listed("app"), Vec::new, &policy)
                .may(KEY)
        );
        drop(claim);
        assert!(
            strictness
                .inject([KEY], &listed("app"), Vec::new, &policy)
                .may(KEY)
        );
        let mounted = |by: Option<Use>| move || vec![(vec![KEY], by)];
        let digest = mounted(Some(by("example.com/app@DIGEST", Root::Proven)));
        assert!(!strictness.inject([KEY], &listed("app"), digest, &policy).may(KEY));
        let unknown = mounted(None);
        assert!(
            !strictness
                .inject([KEY], &listed("app"), unknown, &policy)
                .may(KEY)
        );
        let same = mounted(Some(by("example.com/app:2", Root::Registry)));
        assert!(strictness.inject([KEY], &listed("app"), same, &policy).may(KEY));
        let table = strictness.lock();
        assert!(table.claims.is_empty() && table.injecting.is_empty());
    }

    #[tokio::test]
    async fn a_claim_waits_for_what_it_would_not_believe() {
        let (strictness, policy) = (Arc::new(Strictness::default()), policy());
        let doubtful = strictness.inject([KEY], &listed("app"), Vec::new, &policy);
        // This one believes it.
        drop(
            strictness
                .claim(by("example.com/app:1", Root::Registry), &policy)
                .await,
        );
        let claiming = tokio::spawn({
            let (strictness, policy) = (strictness.clone(), super::tests::policy());
            async move {
                let by = by("example.com/app@DIGEST", Root::Proven);
                strictness.claim(by, &policy).await
            }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!claiming.is_finished());
        // It holds already against what would begin now.
        assert!(
            !strictness
                .inject([KEY], &listed("app"), Vec::new, &policy)
                .may(KEY)
        );
        drop(doubtful);
        drop(claiming.await.unwrap());
    }
}
