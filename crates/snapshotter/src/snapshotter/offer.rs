//! Offering a layer before it is unpacked.

use std::collections::HashMap;

use tracing::{debug, warn};

use super::pulls::Pull;
use super::{Count, Snapshotter, lazy_labels};
use crate::api::Kind;
use crate::error::{ErrorKind, SnapshotError};
use crate::lazy::{LayerOffer, LazyImages, NotLazy, Reason, Verdict};
use crate::record::{LazyLayer, Record};
use crate::store::New;

/// What is to be done about a layer that is not lazy.
pub(super) struct Unpacked {
    /// Why.
    pub(super) not_lazy: NotLazy,
    /// The lazy layers below it, as its own image has them.
    pub(super) base: Option<LazyLayer>,
}

/// The chain ID of what the snapshot is to become, set by every containerd client that unpacks.
pub(super) const TARGET: &str = "containerd.io/snapshot.ref";
/// The image's name. This one and those below are set by CRI and by clients that are told to (`pkg/snapshotters` of
/// containerd).
const REFERENCE: &str = "containerd.io/snapshot/cri.image-ref";
const MANIFEST: &str = "containerd.io/snapshot/cri.manifest-digest";
const LAYER: &str = "containerd.io/snapshot/cri.layer-digest";
const LAYERS: &str = "containerd.io/snapshot/cri.image-layers";

/// A layer that labels tell of.
pub(super) struct Offered<'a> {
    target: &'a str,
    reference: &'a str,
    layer: &'a str,
    /// Of the image's manifest.
    pub(super) manifest: Option<&'a str>,
}

impl<'a> Offered<'a> {
    pub(super) fn of(labels: &'a HashMap<String, String>) -> Option<Self> {
        Some(Self {
            target: named(labels, TARGET)?,
            reference: named(labels, REFERENCE)?,
            layer: named(labels, LAYER)?,
            manifest: named(labels, MANIFEST),
        })
    }
}

fn named<'a>(labels: &'a HashMap<String, String>, name: &str) -> Option<&'a str> {
    let value = labels.get(name).map(String::as_str);
    value.filter(|value| !value.is_empty())
}

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
        let Offered {
            target,
            reference,
            layer,
            manifest,
        } = *offered;
        // Two clients that pull one image at once: the second waits, and finds what the first made. Targets have locks of
        // their own: no key is empty up to the first colon.
        let _one = self.keys.lock(&format!(":{target}")).await;
        let (wanted, on) = (target.to_owned(), parent.to_owned());
        let (there, below) = self
            .in_background(move |inner| {
                let there = some(inner.store.get(&wanted))?;
                let below = match on.is_empty() {
                    true => None,
                    false => Some(inner.store.get(&on)?),
                };
                Ok((there, below))
            })
            .await?;
        // Not ours to give if it is something else by that name.
        if there.as_ref().is_some_and(|there| there.lazy.is_none()) {
            return Ok(None);
        }
        let is_elsewhere = there.as_ref().is_some_and(|there| there.parent != parent);
        let there = there.and_then(|there| there.lazy);
        let is_same = |there: &LazyLayer| {
            there.reference == reference && manifest.is_none_or(|manifest| there.manifest == *manifest)
        };
        if !is_elsewhere && there.as_ref().is_some_and(is_same) {
            return Err(stands(target));
        }
        // By another name the same layers may need to be vouched for better, and a tag may have moved; so it is asked again.
        let depth = below.as_ref().and_then(|below| below.lazy.as_ref());
        let depth = depth.map_or(0, |below| below.depth) + 1;
        let on_other = match lies_low(below.as_ref()) {
            false => Some("the layer below it was unpacked"),
            true if is_elsewhere => Some("it is lazy already, on another snapshot than was asked for"),
            true => None,
        };
        let verdict = match on_other {
            Some(detail) => Verdict::NotLazy(NotLazy {
                reason: Reason::OnUnpacked,
                detail: detail.to_owned(),
                base: None,
            }),
            None => {
                let below = below.and_then(|below| below.lazy);
                let offer = LayerOffer {
                    reference: reference.to_owned(),
                    manifest: manifest.map(str::to_owned),
                    layer: layer.to_owned(),
                    depth,
                    chain: target.to_owned(),
                    layers: named(labels, LAYERS)
                        .map_or_else(Vec::new, |layers| layers.split(',').map(str::to_owned).collect()),
                    below,
                    parent: parent.to_owned(),
                };
                match self.admit(offer, pull).await {
                    Verdict::Lazy { manifest, is_whole }
                        if is_whole && is_of_other(there.as_ref(), reference) =>
                    {
                        Verdict::NotLazy(NotLazy {
                            reason: Reason::OtherImage,
                            detail: "an image of another repository has the same chain".to_owned(),
                            base: Some(manifest),
                        })
                    }
                    Verdict::Lazy { manifest, .. } => {
                        let lazy = LazyLayer {
                            reference: reference.to_owned(),
                            manifest,
                            layer: layer.to_owned(),
                            depth,
                        };
                        match there {
                            None => self.stand(target, parent, labels, lazy).await?,
                            Some(there) => self.stand_for_both(target, &there, lazy).await?,
                        }
                        return Err(stands(target));
                    }
                    refused => refused,
                }
            }
        };
        let Verdict::NotLazy(not_lazy) = verdict else {
            return Ok(None);
        };
        self.count(Count::Unpacked(not_lazy.reason));
        warn!(
            snapshot = key,
            reason = not_lazy.reason.name(),
            "layer {layer} of {reference} is not lazy, containerd unpacks it: {}",
            not_lazy.detail
        );
        let base = not_lazy.base.as_ref().filter(|_| depth > 1);
        let base = base.map(|manifest| LazyLayer {
            reference: reference.to_owned(),
            manifest: manifest.clone(),
            layer: String::new(),
            depth: depth - 1,
        });
        Ok(Some(Unpacked { not_lazy, base }))
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
        // What is not a registry's port.
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => named,
    }
}

/// Whether an image is named by its digest. What is shown to such a one must be vouched for better than for a tag.
fn is_by_digest(reference: &str) -> bool {
    reference.contains('@')
}

/// Whether a layer on this one could be lazy.
fn lies_low(below: Option<&Record>) -> bool {
    below.is_none_or(|below| below.lazy.is_some())
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
