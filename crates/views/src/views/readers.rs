//! The readers for whom layers are read, asked for at each fetch of their pages: a copy that is made anew when the table of views has
//! changed. No fetch waits for the table, which is held while views are mounted and unmounted.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{MutexGuard, RwLock};
use xebec_cache::store::LayerKey;
use xebec_oci::Reference;

use super::record::ViewRecord;
use crate::recording_admission::TrustRequirement;

/// A view, as far as it matters here.
pub(super) struct Reader {
    pub(super) layers: Vec<LayerKey>,
    /// As in references without tag.
    pub(super) repositories: BTreeSet<String>,
}

/// The readers of all layers.
#[derive(Default)]
pub(super) struct Readers(pub(super) RwLock<Arc<[Reader]>>);

impl Readers {
    /// Those of a table.
    pub(super) fn of(table: &BTreeMap<String, ViewRecord>) -> Self {
        let readers = Self::default();
        readers.set(table);
        readers
    }

    fn set(&self, table: &BTreeMap<String, ViewRecord>) {
        let readers: Arc<[Reader]> = table.values().map(Reader::of).collect();
        *self.0.write() = readers;
    }
}

impl Reader {
    fn of(record: &ViewRecord) -> Self {
        let names = record
            .uses
            .iter()
            .map(TrustRequirement::reference)
            .chain([&*record.reference]);
        let repository = |name: &str| Some(name.parse::<Reference>().ok()?.repository().to_string());
        Self {
            layers: record.layers.iter().map(|pair| (*pair).into()).collect(),
            repositories: names.filter_map(repository).collect(),
        }
    }
}

/// The table of views, while somebody has it.
pub(super) struct Table<'a> {
    records: MutexGuard<'a, BTreeMap<String, ViewRecord>>,
    readers: &'a Readers,
    is_changed: bool,
}

impl<'a> Table<'a> {
    pub(super) fn new(records: MutexGuard<'a, BTreeMap<String, ViewRecord>>, readers: &'a Readers) -> Self {
        Self {
            records,
            readers,
            is_changed: false,
        }
    }
}

impl Deref for Table<'_> {
    type Target = BTreeMap<String, ViewRecord>;

    fn deref(&self) -> &Self::Target {
        &self.records
    }
}

impl DerefMut for Table<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.is_changed = true;
        &mut self.records
    }
}

impl Drop for Table<'_> {
    fn drop(&mut self) {
        if self.is_changed {
            self.readers.set(&self.records);
        }
    }
}
