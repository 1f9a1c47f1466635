//! A layer that the labels of a new snapshot tell of, as CRI and clients that unpack set them.

use std::collections::HashMap;

use crate::lazy::NotLazy;
use crate::record::LazyLayer;

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
    pub(super) target: &'a str,
    pub(super) reference: &'a str,
    pub(super) layer: &'a str,
    /// Of the image's manifest.
    pub(super) manifest: Option<&'a str>,
    /// Digests of the image's layers, as far as the client lists them.
    pub(super) layers: Vec<String>,
}

impl<'a> Offered<'a> {
    pub(super) fn of(labels: &'a HashMap<String, String>) -> Option<Self> {
        Some(Self {
            target: named(labels, TARGET)?,
            reference: named(labels, REFERENCE)?,
            layer: named(labels, LAYER)?,
            manifest: named(labels, MANIFEST),
            layers: named(labels, LAYERS)
                .map_or_else(Vec::new, |layers| layers.split(',').map(str::to_owned).collect()),
        })
    }
}

fn named<'a>(labels: &'a HashMap<String, String>, name: &str) -> Option<&'a str> {
    let value = labels.get(name).map(String::as_str);
    value.filter(|value| !value.is_empty())
}

/// The answer about a layer that is not lazy.
pub(super) struct Unpacked {
    /// Why.
    pub(super) not_lazy: NotLazy,
    /// The lazy layers below it, as its own image has them.
    pub(super) base: Option<LazyLayer>,
}
