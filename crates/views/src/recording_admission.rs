//! Which uses a layer has: Xebec loads a recording's pages into the layer only if every use admits the recording.
//!
//! All readers of a layer by the same index share its data file, also images of other repositories, and images named by
//! digest as well as by tag. Each of them would read the pages that a recording brought. So a start **claims** its layers before it
//! looks at the pages that were brought already. It holds the claim until its view is in the table of views, whose record says the
//! same from then on. A load of a recording checks both.
//!
//! A claim ends loads of recordings that it does not admit: nothing more comes into those layers by them. It waits
//! for pages that are being written just then, at most a segment for each thread that decodes. It never waits for bytes that a
//! registry has yet to send: that is another image's registry, and may take as long as it likes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_images::facts;
use xebec_oci::Reference;
use xebec_protocol::wire::Purpose;
use xebec_trust::Evidence;
use xebec_trust::{Naming, Policy, Root};

use xebec_images::prepare::PreparedImage;

/// The claim of a start on the layers of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustRequirement {
    /// The image as it was named, in full.
    reference: String,
    /// Its manifest, without which older versions do not read the record of a use.
    manifest: Digest,
    /// The root of trust that it needs of a recording, by layer.
    needs: Vec<Need>,
}

/// The root of trust that a recording needs to bring pages into a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Need {
    layer: Digest,
    index: Digest,
    root: Root,
}

impl TrustRequirement {
    /// The image as it was named.
    pub(super) fn reference(&self) -> &str {
        &self.reference
    }

    /// The use of an image that is prepared.
    pub fn of(prepared: &PreparedImage, purpose: &Purpose) -> Self {
        let needs = prepared.layers.iter().map(|layer| Need {
            layer: layer.key.layer,
            index: layer.key.index,
            root: match purpose {
                // A recording of this host is admitted everywhere.
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

    /// The root of trust that it needs for a layer; `None` if it does not read that.
    fn need(&self, key: LayerKey) -> Option<Root> {
        let needs = self.needs.iter();
        let mut needs = needs.filter(|need| need.layer == key.layer && need.index == key.index);
        needs.next().map(|need| need.root)
    }

    /// Whether pages that a recording brings into a layer are admitted.
    pub fn admits(&self, evidence: &Evidence, key: LayerKey, policy: &Policy) -> bool {
        let Some(needed) = self.need(key) else { return true };
        let Ok(reference) = self.reference.parse::<Reference>() else {
            return false;
        };
        let Ok(repository) = facts::repository_name(reference.repository()) else {
            return false;
        };
        let naming = Naming::of(reference.is_by_digest());
        let root = evidence.root(policy, &repository, naming);
        root.is_ok_and(|root| root >= needed)
    }
}

/// The table of claims, and of what is being brought in.
#[derive(Default)]
pub struct RecordingAdmission {
    table: Mutex<Table>,
    changed: Notify,
}

#[derive(Default)]
struct Table {
    claims: Vec<Arc<TrustRequirement>>,
    injecting: Vec<Arc<Injected>>,
}

struct Injected {
    layers: Vec<LayerKey>,
    evidence: Evidence,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Layers with a reader that does not admit the pages that come into them.
    revoked: HashSet<LayerKey>,
    /// How many write to each.
    writing: HashMap<LayerKey, usize>,
}

impl Injected {
    fn new(layers: Vec<LayerKey>, evidence: Evidence) -> Self {
        Self {
            layers,
            evidence,
            state: Mutex::default(),
        }
    }

    /// Whether pages may be brought into the layer, or are being written there.
    fn is_open(&self, key: LayerKey) -> bool {
        let state = self.state.lock();
        self.layers.contains(&key) && (!state.revoked.contains(&key) || state.writing.contains_key(&key))
    }

    /// Nothing more comes into a layer. Whether something is being written there.
    fn revoke(&self, key: LayerKey) -> bool {
        let mut state = self.state.lock();
        state.revoked.insert(key);
        state.writing.contains_key(&key)
    }
}

/// Layers that are relied on until this goes.
#[must_use]
pub struct TrustGuard {
    admission: Arc<RecordingAdmission>,
    by: Arc<TrustRequirement>,
}

/// Layers that pages are brought into until this goes.
#[must_use]
pub struct Injecting {
    admission: Arc<RecordingAdmission>,
    what: Arc<Injected>,
}

/// Pages are being written to a layer until this goes.
#[must_use]
pub struct Writing<'a> {
    injecting: &'a Injecting,
    key: LayerKey,
}

impl RecordingAdmission {
    /// Relies on an image's layers from now on. Returns once nothing is written to them that it does not admit; nothing of
    /// that will be from now on.
    pub async fn claim(self: &Arc<Self>, by: TrustRequirement, policy: &Policy) -> TrustGuard {
        let by = Arc::new(by);
        self.table.lock().claims.push(by.clone());
        let guard = TrustGuard {
            admission: self.clone(),
            by,
        };
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before it is looked, so that what ends in between is not missed.
            changed.as_mut().enable();
            if !self.revoke_doubtful(&guard.by, policy) {
                return guard;
            }
            changed.await;
        }
    }

    /// Begins to bring pages into those of the layers whose readers all admit them. `mounted` are the
    /// uses of mounted views; `None` stands for one of which nothing is known.
    pub fn inject(
        self: &Arc<Self>,
        layers: impl IntoIterator<Item = LayerKey>,
        evidence: &Evidence,
        mounted: impl FnOnce() -> Vec<(Vec<LayerKey>, Option<TrustRequirement>)>,
        policy: &Policy,
    ) -> Injecting {
        let mut table = self.table.lock();
        // Asked while the claims stand still: a start that gives one up has its view in there.
        let mounted = mounted();
        let is_admitted = |key: LayerKey| {
            let claimed = table.claims.iter().all(|by| by.admits(evidence, key, policy));
            let mut reading = mounted.iter().filter(|(layers, _)| layers.contains(&key));
            claimed
                && reading.all(|(_, by)| match by {
                    Some(by) => by.admits(evidence, key, policy),
                    None => evidence.own,
                })
        };
        let layers = layers.into_iter().filter(|key| is_admitted(*key)).collect();
        let what = Arc::new(Injected::new(layers, evidence.clone()));
        table.injecting.push(what.clone());
        Injecting {
            admission: self.clone(),
            what,
        }
    }

    /// Whether a load is bringing pages into the layer.
    pub fn is_injecting(&self, key: LayerKey) -> bool {
        self.table.lock().injecting.iter().any(|what| what.is_open(key))
    }

    /// Whether something is being written that is not admitted. Nothing more will be.
    fn revoke_doubtful(&self, by: &TrustRequirement, policy: &Policy) -> bool {
        let table = self.table.lock();
        let mut is_written = false;
        for what in &table.injecting {
            let layers = what.layers.iter();
            for key in layers.filter(|key| !by.admits(&what.evidence, **key, policy)) {
                is_written |= what.revoke(*key);
            }
        }
        is_written
    }
}

impl TrustGuard {
    /// For whom; to be kept with the view.
    pub fn by(&self) -> &TrustRequirement {
        &self.by
    }
}

impl Injecting {
    /// The layers that pages may be brought into.
    pub fn layers(&self) -> &[LayerKey] {
        &self.what.layers
    }

    /// Whether pages may be brought into the layer, as it is now.
    pub fn may(&self, key: LayerKey) -> bool {
        self.what.layers.contains(&key) && !self.what.state.lock().revoked.contains(&key)
    }

    /// Begins to write pages to the layer; `None` if they may not be brought there, or not any more.
    pub fn write(&self, key: LayerKey) -> Option<Writing<'_>> {
        let mut state = self.what.state.lock();
        if !self.what.layers.contains(&key) || state.revoked.contains(&key) {
            return None;
        }
        *state.writing.entry(key).or_default() += 1;
        Some(Writing { injecting: self, key })
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.injecting.what.state.lock();
        if let Some(count) = state.writing.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                state.writing.remove(&self.key);
            }
        }
        drop(state);
        self.injecting.admission.changed.notify_waiters();
    }
}

impl Drop for TrustGuard {
    fn drop(&mut self) {
        let mut table = self.admission.table.lock();
        table.claims.retain(|by| !Arc::ptr_eq(by, &self.by));
    }
}

impl Drop for Injecting {
    fn drop(&mut self) {
        let mut table = self.admission.table.lock();
        table.injecting.retain(|what| !Arc::ptr_eq(what, &self.what));
        drop(table);
        self.admission.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xebec_trust::Listing;

    use super::*;

    const KEY: LayerKey = LayerKey {
        layer: Digest::from_bytes([1; 32]),
        index: Digest::from_bytes([2; 32]),
    };
    const MANIFEST: Digest = Digest::from_bytes([3; 32]);

    fn by(reference: &str, root: Root) -> TrustRequirement {
        let reference = reference.replace("DIGEST", &MANIFEST.to_string());
        TrustRequirement {
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
        let name = xebec_trust::RepositoryName::new("example.com", repository).unwrap();
        Evidence {
            listed: Some(Listing::new(&name)),
            ..Evidence::default()
        }
    }

    fn policy() -> Policy {
        Policy::load(std::path::Path::new("/nonexistent/trust.toml")).unwrap()
    }

    #[test]
    fn uses_admit_recordings_by_their_evidence() {
        let policy = policy();
        let own = Evidence {
            own: true,
            ..Evidence::default()
        };
        let tag = by("example.com/app:1", Root::Registry);
        assert!(tag.admits(&listed("app"), KEY, &policy));
        assert!(!tag.admits(&listed("other"), KEY, &policy), "listed elsewhere");
        assert!(!by("example.com/app@DIGEST", Root::Proven).admits(&listed("app"), KEY, &policy));
        assert!(!by("example.com/app:1", Root::Proven).admits(&listed("app"), KEY, &policy));
        assert!(by("example.com/app@DIGEST", Root::Bound).admits(&own, KEY, &policy));
        let elsewhere = LayerKey {
            layer: Digest::from_bytes([9; 32]),
            ..KEY
        };
        assert!(by("example.com/app@DIGEST", Root::Bound).admits(&listed("x"), elsewhere, &policy));
    }

    #[tokio::test]
    async fn nothing_doubtful_comes_while_somebody_relies_on_more() {
        let (admission, policy) = (Arc::new(RecordingAdmission::default()), policy());
        let claim = admission
            .claim(by("example.com/app@DIGEST", Root::Proven), &policy)
            .await;
        assert!(
            !admission
                .inject([KEY], &listed("app"), Vec::new, &policy)
                .may(KEY)
        );
        drop(claim);
        assert!(
            admission
                .inject([KEY], &listed("app"), Vec::new, &policy)
                .may(KEY)
        );
        let mounted = |by: Option<TrustRequirement>| move || vec![(vec![KEY], by)];
        let digest = mounted(Some(by("example.com/app@DIGEST", Root::Proven)));
        assert!(!admission.inject([KEY], &listed("app"), digest, &policy).may(KEY));
        let unknown = mounted(None);
        assert!(!admission.inject([KEY], &listed("app"), unknown, &policy).may(KEY));
        let same = mounted(Some(by("example.com/app:2", Root::Registry)));
        assert!(admission.inject([KEY], &listed("app"), same, &policy).may(KEY));
        let table = admission.table.lock();
        assert!(table.claims.is_empty() && table.injecting.is_empty());
    }

    #[tokio::test]
    async fn a_claim_waits_for_pages_that_are_written_and_not_for_a_registry() {
        let (admission, policy) = (Arc::new(RecordingAdmission::default()), policy());
        let doubtful = admission.inject([KEY], &listed("app"), Vec::new, &policy);
        // This one admits it.
        drop(
            admission
                .claim(by("example.com/app:1", Root::Registry), &policy)
                .await,
        );
        let writing = doubtful.write(KEY).unwrap();
        let claiming = tokio::spawn({
            let (admission, policy) = (admission.clone(), super::tests::policy());
            async move {
                let by = by("example.com/app@DIGEST", Root::Proven);
                admission.claim(by, &policy).await
            }
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!claiming.is_finished(), "a page is being written");
        // The claim already refuses loads that would begin now.
        assert!(
            !admission
                .inject([KEY], &listed("app"), Vec::new, &policy)
                .may(KEY)
        );
        assert!(admission.is_injecting(KEY));
        drop(writing);
        let claim = tokio::time::timeout(Duration::from_secs(5), claiming).await;
        let claim = claim
            .expect("the claim waited for a load that waits for its registry")
            .unwrap();
        // The load that was allowed is so no more, and does not become so again.
        assert!(!admission.is_injecting(KEY) && !doubtful.may(KEY));
        drop(claim);
        assert!(doubtful.write(KEY).is_none());
    }
}
