//! The indexes and trees of mounted views, so that a start that would build one of them again finds it without decoding indexes
//! or merging trees. In this worker's memory only, and bounded: the next worker builds a view once and finds it by its name.

use std::collections::HashMap;
use std::sync::Arc;

use xebec_cache::store::LayerKey;
use xebec_fill::page_set::PageSet;
use xebec_format::digest::{Digest, Digester};
use xebec_format::layer::LayerIndex;
use xebec_images::prepared_layer::PreparedLayer;

use crate::view_tree::ViewTree;

/// Inodes of all views that are known by what they are built from. With the indexes below them some 400 bytes each, so
/// that this is 40 MB at most. Larger views are built for each start.
pub(super) const MAX_INODES: usize = 100_000;
/// Memory that their indexes may take, by [`LayerIndex::weight`]: twice what those of as many files take. An index can be large and
/// show little, by whiteouts say.
pub(super) const MAX_WEIGHT: u64 = 160 << 20;

/// Everything that a view depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ViewKey(Digest);

impl ViewKey {
    /// The key of a view of these layers, in which these pages are free. `shared` is the state of the files of other layers that are
    /// read instead.
    pub fn new(
        layers: &[PreparedLayer],
        free: &PageSet,
        is_complete: impl Fn(LayerKey) -> bool,
        shared: u64,
        salt: Option<&str>,
    ) -> Self {
        let mut digester = Digester::new();
        let mut number = |number: u64| digester.update(&number.to_le_bytes());
        number(layers.len() as u64);
        number(shared);
        for layer in layers {
            let runs = free.runs(layer.key);
            number(u64::from(is_complete(layer.key)));
            number(u64::from(layer.contents.is_empty()));
            number(runs.len() as u64);
            for run in runs {
                number(run.start);
                number(run.end);
            }
        }
        for layer in layers {
            digester.update(layer.key.layer.as_bytes());
            digester.update(layer.key.index.as_bytes());
        }
        digester.update(salt.unwrap_or_default().as_bytes());
        Self(digester.finish())
    }
}

/// A view that is mounted, as it was built.
#[derive(Clone)]
pub struct KnownView {
    /// Its name.
    pub name: String,
    /// From this place on its devices are free.
    pub first_free: usize,
    /// The tree that it shows.
    pub tree: ViewTree,
    /// The indexes of its layers, which need not be decoded again as long as somebody has them.
    pub(super) _indexes: Vec<Arc<LayerIndex>>,
    /// The memory of these, in bytes.
    pub(super) weight: u64,
}

impl KnownView {
    /// The layers that it reads, each once.
    pub fn layers(&self) -> &[LayerKey] {
        let devices = &self.tree.devices;
        devices.get(..self.first_free).unwrap_or(devices)
    }
}

/// Those of a table.
#[derive(Default)]
pub(super) struct KnownViews(pub(super) HashMap<ViewKey, Arc<KnownView>>);
