//! Queries of the table: which views would be built again, what was brought into the page cache of one, which views read a layer.

use std::collections::BTreeSet;
use std::sync::Arc;

use xebec_cache::store::LayerKey;
use xebec_images::prepared_layer::PreparedLayer;

use super::prefill::{PrefillNote, Prefilled};
use super::table::Views;
use super::view_cache::{KnownView, MAX_INODES, MAX_WEIGHT, ViewKey};
use crate::view::BuiltView;
use crate::view_tree::ViewTree;

impl Views {
    /// The mounted view that would be built from this, if one is known. It may be gone when it is to be held.
    pub fn known(&self, key: &ViewKey) -> Option<Arc<KnownView>> {
        self.known.lock().0.get(key).cloned()
    }

    /// A mounted view, if it is known what it was built from.
    pub fn known_by_name(&self, name: &str) -> Option<Arc<KnownView>> {
        let known = self.known.lock();
        known.0.values().find(|view| view.name == name).cloned()
    }

    /// Remembers what a view was built from that is held.
    pub fn know(&self, key: ViewKey, built: &BuiltView, layers: &[PreparedLayer]) {
        // Not a view that was taken down meanwhile: views that are taken down are forgotten under this lock.
        let table = self.lock();
        if !table.contains_key(&built.name) {
            return;
        }
        let mut known = self.known.lock();
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
        self.known.lock().0.retain(|_, view| view.name != name);
    }

    /// The note of the pages that are brought into a view's page cache; `None` if it is not mounted.
    pub fn prefill_note(&self, name: &str) -> Option<PrefillNote> {
        self.lock().get(name).map(|record| record.prefilled.clone())
    }

    /// Notes pages that are about to be brought into a view's page cache; `false` if nobody holds that mount of it any more.
    pub fn note_prefilled(&self, name: &str, note: &PrefillNote, more: &Prefilled) -> bool {
        let mut table = self.lock();
        let record = table
            .get_mut(name)
            .filter(|record| record.is_held() && Arc::ptr_eq(&record.prefilled.0, &note.0));
        let Some(record) = record else { return false };
        let mut prefilled = note.0.lock();
        prefilled.brought.add(&more.brought);
        prefilled.left_out.add(&more.left_out);
        drop(prefilled);
        if !record.was_prefilled {
            record.was_prefilled = true;
            // If the note is lost, a later worker's count of a start on this very view is too high.
            let _ = self.write(record);
        }
        true
    }

    /// The pages that were brought into a view's page cache; `None` if a worker before this one did that, and they are not known.
    pub fn prefilled(&self, name: &str) -> Option<Prefilled> {
        let table = self.lock();
        let Some(record) = table.get(name) else {
            return Some(Prefilled::default());
        };
        let prefilled = record.prefilled.0.lock().clone();
        (prefilled != Prefilled::default() || !record.was_prefilled).then_some(prefilled)
    }

    /// Whether somebody holds that mount of a view.
    pub fn is_held(&self, name: &str, note: &PrefillNote) -> bool {
        let table = self.lock();
        let record = table.get(name);
        record.is_some_and(|record| record.is_held() && Arc::ptr_eq(&record.prefilled.0, &note.0))
    }

    /// The repositories of the images for which a layer is read.
    pub fn readers_of(&self, key: LayerKey) -> BTreeSet<String> {
        let readers = self.readers.0.read().clone();
        let readers = readers.iter().filter(|reader| reader.layers.contains(&key));
        readers
            .flat_map(|reader| reader.repositories.iter().cloned())
            .collect()
    }
}
