//! The table of views, and the file of each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;
use xebec_kernel::file::write_for_this_boot;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;

use super::readers::{Readers, Table};
use super::record::ViewRecord;
use super::view_cache::KnownViews;

/// The table of views.
pub struct Views {
    pub(super) paths: Paths,
    /// How long a view stays mounted that nobody holds.
    pub(super) linger: Duration,
    pub(super) table: Mutex<BTreeMap<String, ViewRecord>>,
    pub(super) readers: Readers,
    /// The indexes and trees of views of the table, so that they are found without being built again.
    pub(super) known: Mutex<KnownViews>,
}

impl Views {
    pub(super) fn write(&self, record: &ViewRecord) -> Result<(), Failure> {
        let path = self.record_path(&record.name);
        let bytes =
            serde_json::to_vec_pretty(record).map_err(|error| Failure::host("encode a view", error))?;
        // After a restart of the host nothing is mounted.
        write_for_this_boot(&path, &bytes)
            .map_err(|error| Failure::host(format!("write {}", path.display()), error))
    }

    pub(super) fn record_path(&self, name: &str) -> PathBuf {
        self.paths.mounts().join(format!("{name}.json"))
    }

    pub(super) fn lock(&self) -> Table<'_> {
        let records = self.table.lock();
        Table::new(records, &self.readers)
    }
}
