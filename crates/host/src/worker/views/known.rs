//! What mounted views were built from, so that a start that would build one of them again finds it without decoding indexes
//! or merging trees. In this worker's memory only, and bounded: the next worker builds a view once and finds it by its name.

use std::collections::HashMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use xebec_cache::store::LayerKey;
use xebec_fill::page_set::PageSet;
use xebec_format::digest::{Digest, Digester};
use xebec_format::layer::LayerIndex;
use xebec_images::prepared_layer::PreparedLayer;

use super::Views;
use crate::view::BuiltView;
use crate::worker::view_tree::ViewTree;

/// Inodes of all views that are known by what they are built from. With the indexes below them some 400 bytes each, so
/// that this is 40 MB at most. Larger views are built for each start.
const MAX_INODES: usize = 100_000;
/// Memory that their indexes may take, by [`LayerIndex::weight`]: twice what those of as many files take. An index can be large and
/// show little, by whiteouts say.
const MAX_WEIGHT: u64 = 160 << 20;

/// Everything that a view depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ViewKey(Digest);

impl ViewKey {
    /// Of a view of these layers, in which these pages are free. `shared` is the state of what files of other layers are
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
    /// What it shows.
    pub tree: ViewTree,
    /// The indexes of its layers, which need not be decoded again as long as somebody has them.
    _indexes: Vec<Arc<LayerIndex>>,
    /// What these take.
    weight: u64,
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
pub(super) struct KnownViews(HashMap<ViewKey, Arc<KnownView>>);

impl Views {
    /// The mounted view that would be built from this, if one is known. It may be gone when it is to be held.
    pub fn known(&self, key: &ViewKey) -> Option<Arc<KnownView>> {
        self.lock_known().0.get(key).cloned()
    }

    /// A mounted view, if it is known what it was built from.
    pub fn known_by_name(&self, name: &str) -> Option<Arc<KnownView>> {
        let known = self.lock_known();
        known.0.values().find(|view| view.name == name).cloned()
    }

    /// Remembers what a view was built from that is held.
    pub fn know(&self, key: ViewKey, built: &BuiltView, layers: &[PreparedLayer]) {
        // Not one that was taken down meanwhile: what is taken down is forgotten under this lock.
        let table = self.lock();
        if !table.contains_key(&built.name) {
            return;
        }
        let mut known = self.lock_known();
        let others = || known.0.iter().filter(|(other, _)| **other != key);
        let inodes: usize = others().map(|(_, view)| view.tree.tree.inodes.len()).sum();
        let before: u64 = others().map(|(_, view)| view.weight).sum();
        let weight: u64 = layers.iter().map(|layer| layer.index.weight()).sum();
        if inodes + built.tree.inodes.len() > MAX_INODES || before + weight > MAX_WEIGHT {
            return;
        }
        let view = KnownView {
            name: built.name.clone(),
            first_free: built.first_free,
            tree: ViewTree {
                tree: built.tree.clone(),
                devices: built.devices.clone(),
            },
            _indexes: layers.iter().map(|layer| layer.index.clone()).collect(),
            weight,
        };
        known.0.insert(key, Arc::new(view));
    }

    /// A view is not mounted any more.
    pub(super) fn forget_built(&self, name: &str) {
        self.lock_known().0.retain(|_, view| view.name != name);
    }

    fn lock_known(&self) -> MutexGuard<'_, KnownViews> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
