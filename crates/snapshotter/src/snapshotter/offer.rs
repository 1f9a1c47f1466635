//! Offering a layer before it is unpacked.

use std::collections::HashMap;

use tracing::{debug, warn};

use super::offered_layer::{Offered, Unpacked};
use super::pulls::Pull;
use super::{Count, Snapshotter, lazy_labels};
use crate::api::Kind;
use crate::error::{ErrorKind, SnapshotError};
use crate::lazy::{LayerOffer, LazyImages, NotLazy, Reason, Verdict};
use crate::record::{LazyLayer, Record};
use crate::store::New;

impl<L: LazyImages> Snapshotter<L> {
    /// Offers the layer that a new snapshot would be unpacked into.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] when there is nothing to unpack.
    pub(super) async fn offer(
        &self,
        key: &str,
        parent: &str,
        labels: &HashMap<String, String>,
        offered: &Offered<'_>,
        pull: &mut Pull,
    ) -> Result<Option<Unpacked>, SnapshotError> {
        let target = offered.target;
        // Two clients that pull one image at once: the second waits, and finds what the first made. Targets have locks of
        // their own: no key is empty up to the first colon.
        let _one = self.keys.lock(&format!(":{target}")).await;
        let (there, below) = self.target_and_parent(target, parent).await?;
        // An unpacked snapshot of that name is containerd's own, and stays as it is.
        if there.as_ref().is_some_and(|there| there.lazy.is_none()) {
            return Ok(None);
        }
        let is_elsewhere = there.as_ref().is_some_and(|there| there.parent != parent);
        let there = there.and_then(|there| there.lazy);
        if !is_elsewhere && there.as_ref().is_some_and(|there| is_same(there, offered)) {
            return Err(stands(target));
        }
        // By another name the same layers may need to be vouched for better, and a tag may have moved; so it is asked again.
        let depth = below.as_ref().and_then(|below| below.lazy.as_ref());
        let depth = depth.map_or(0, |below| below.depth) + 1;
        let verdict = match why_not_on(below.as_ref(), is_elsewhere) {
            Some(not_lazy) => Verdict::NotLazy(not_lazy),
            None => {
                let below = below.and_then(|below| below.lazy);
                self.admit(layer_offer(offered, depth, below, parent), pull).await
            }
        };
        let not_lazy = match verdict {
            Verdict::NotLazy(not_lazy) => not_lazy,
            Verdict::Lazy { manifest, is_whole }
                if is_whole && is_of_other(there.as_ref(), offered.reference) =>
            {
                NotLazy {
                    reason: Reason::OtherImage,
                    detail: "an image of another repository has the same chain".to_owned(),
                    base: Some(manifest),
                }
            }
            Verdict::Lazy { manifest, .. } => {
                let lazy = lazy_layer(offered, manifest, depth);
                match there {
                    None => self.stand(target, parent, labels, lazy).await?,
                    Some(there) => self.stand_for_both(target, &there, lazy).await?,
                }
                return Err(stands(target));
            }
        };
        Ok(Some(self.unpacked(key, offered, depth, not_lazy)))
    }

    /// Counts a layer that containerd unpacks, and says why.
    fn unpacked(&self, key: &str, offered: &Offered<'_>, depth: u32, not_lazy: NotLazy) -> Unpacked {
        self.count(Count::Unpacked(not_lazy.reason));
        warn!(
            snapshot = key,
            reason = not_lazy.reason.name(),
            "layer {} of {} is not lazy, containerd unpacks it: {}",
            offered.layer,
            offered.reference,
            not_lazy.detail
        );
        let base = not_lazy.base.clone().filter(|_| depth > 1);
        let base = base.map(|manifest| LazyLayer {
            layer: String::new(),
            ..lazy_layer(offered, manifest, depth - 1)
        });
        Unpacked { not_lazy, base }
    }

    /// The snapshot that the new one is to become, and the one that it is made on, as far as they are there.
    async fn target_and_parent(
        &self,
        target: &str,
        parent: &str,
    ) -> Result<(Option<Record>, Option<Record>), SnapshotError> {
        let (target, parent) = (target.to_owned(), parent.to_owned());
        let found = self.in_background(move |inner| {
            let there = some(inner.store.get(&target))?;
            let below = match parent.is_empty() {
                true => None,
                false => Some(inner.store.get(&parent)?),
            };
            Ok((there, below))
        });
        found.await
    }

    async fn admit(&self, offer: LayerOffer, pull: &mut Pull) -> Verdict {
        let verdict = self.lazy.admit(offer.clone()).await;
        let found = match &verdict {
            Verdict::Lazy { manifest, .. } => Some(manifest),
            Verdict::NotLazy(not_lazy) => not_lazy.base.as_ref(),
        };
        if offer.manifest.is_none() || found.is_none() || found == offer.manifest.as_ref() {
            return verdict;
        }
        // Its layers may have been let go: another image's was said to be pulled.
        *pull = self.pulls.begin(None).await;
        self.lazy.admit(offer).await
    }

    /// Lets a snapshot that stands for an image's layer stand for another image's too. Of one repository, views are made as
    /// for the one of the two that asks for more, or for what its tag means now; of others, this is not the uppermost layer,
    /// which alone matters.
    async fn stand_for_both(
        &self,
        target: &str,
        there: &LazyLayer,
        layer: LazyLayer,
    ) -> Result<(), SnapshotError> {
        let is_stricter = is_by_digest(&layer.reference) && !is_by_digest(&there.reference);
        let has_moved = layer.reference == there.reference && layer.manifest != there.manifest;
        if !(is_stricter || has_moved) || is_of_other(Some(there), &layer.reference) {
            return Ok(());
        }
        let target = target.to_owned();
        let updated =
            self.in_background(move |inner| inner.store.update(&target, |record| record.lazy = Some(layer)));
        updated.await.map(|_| ())
    }

    /// Lets a committed snapshot stand for a lazy layer.
    async fn stand(
        &self,
        target: &str,
        parent: &str,
        labels: &HashMap<String, String>,
        layer: LazyLayer,
    ) -> Result<(), SnapshotError> {
        let (target, parent, labels) = (target.to_owned(), parent.to_owned(), labels.clone());
        debug!(
            snapshot = target,
            "layer {} of {} is lazy", layer.layer, layer.reference
        );
        let made = self.in_background(move |inner| {
            let new = New {
                key: &target,
                kind: Kind::Committed,
                parent: &parent,
                labels,
                own_labels: lazy_labels(&layer),
                lazy: Some(layer),
                base: None,
                id_mapping: None,
            };
            inner.store.create(new, |_| Ok(()))
        });
        made.await?;
        self.count(Count::Lazy);
        Ok(())
    }
}

/// Whether a snapshot stands for an image of another repository.
fn is_of_other(there: Option<&LazyLayer>, reference: &str) -> bool {
    there.is_some_and(|there| repository(&there.reference) != repository(reference))
}

/// A reference without tag and digest.
fn repository(reference: &str) -> &str {
    let named = reference.split_once('@').map_or(reference, |(named, _)| named);
    match named.rsplit_once(':') {
        // A tag, and not a registry's port.
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => named,
    }
}

/// Whether an image is named by its digest. Layers that are shown to such a name must be vouched for better than for a tag.
fn is_by_digest(reference: &str) -> bool {
    reference.contains('@')
}

/// Whether a snapshot stands for this very layer of this very image.
fn is_same(there: &LazyLayer, offered: &Offered<'_>) -> bool {
    there.reference == offered.reference && offered.manifest.is_none_or(|manifest| there.manifest == manifest)
}

/// Why a layer on the snapshot `below` cannot be lazy, if it cannot. `is_elsewhere`: its snapshot is made on another one.
fn why_not_on(below: Option<&Record>, is_elsewhere: bool) -> Option<NotLazy> {
    let is_on_unpacked = below.is_some_and(|below| below.lazy.is_none());
    let detail = match (is_on_unpacked, is_elsewhere) {
        (true, _) => "the layer below it was unpacked",
        (false, true) => "it is lazy already, on another snapshot than was asked for",
        (false, false) => return None,
    };
    Some(NotLazy {
        reason: Reason::OnUnpacked,
        detail: detail.to_owned(),
        base: None,
    })
}

fn layer_offer(offered: &Offered<'_>, depth: u32, below: Option<LazyLayer>, parent: &str) -> LayerOffer {
    LayerOffer {
        reference: offered.reference.to_owned(),
        manifest: offered.manifest.map(str::to_owned),
        layer: offered.layer.to_owned(),
        depth,
        chain: offered.target.to_owned(),
        layers: offered.layers.clone(),
        below,
        parent: parent.to_owned(),
    }
}

fn lazy_layer(offered: &Offered<'_>, manifest: String, depth: u32) -> LazyLayer {
    LazyLayer {
        reference: offered.reference.to_owned(),
        manifest,
        layer: offered.layer.to_owned(),
        depth,
    }
}

fn stands(target: &str) -> SnapshotError {
    SnapshotError::new(
        ErrorKind::AlreadyExists,
        format!("snapshot {target:?} exists: its layer is read where it is"),
    )
}

fn some(found: Result<Record, SnapshotError>) -> Result<Option<Record>, SnapshotError> {
    match found {
        Ok(record) => Ok(Some(record)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories() {
        for (reference, expected) in [
            ("docker.io/library/nginx:1.27", "docker.io/library/nginx"),
            ("registry:5000/app", "registry:5000/app"),
            ("registry:5000/app:1@sha256:ab", "registry:5000/app"),
            ("registry/app@sha256:ab", "registry/app"),
        ] {
            assert_eq!(repository(reference), expected);
        }
    }
}
