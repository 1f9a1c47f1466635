//! All snapshots, a page at a time: however many there are, no caller waits longer for the store, and memory holds no more than a
//! page.

use std::ops::Bound;

use super::{Store, decode};
use crate::error::SnapshotError;
use crate::record::Record;

/// How many records are looked at for one page.
const LOOKED_AT: usize = 4096;

/// Some snapshots, in the order of their names.
#[derive(Clone, Debug)]
pub struct Page {
    /// Names and records. That there are none does not mean that none follow.
    pub found: Vec<(String, Record)>,
    /// After which name the next page begins; `None` after the last.
    pub after: Option<String>,
}

/// How much there may be on one page.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Snapshots.
    pub records: usize,
    /// The bytes of their records, but for one that is larger by itself.
    pub bytes: usize,
}

impl Store {
    /// The next snapshots after the name `after`, or from the first on if that is empty, but for those that are not wanted,
    /// which is asked of names and records as they are stored.
    ///
    /// Others may change what comes between two pages.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn page(
        &self,
        after: &str,
        most: Most,
        is_wanted: impl Fn(&str, &[u8]) -> bool,
    ) -> Result<Page, SnapshotError> {
        self.read(|snapshots| {
            let (mut found, mut bytes) = (Vec::new(), 0);
            let mut last = after.to_owned();
            let rest = (Bound::Excluded(after), Bound::Unbounded);
            let rest = snapshots.range::<&str>(rest).map_err(SnapshotError::store)?;
            for (number, entry) in rest.enumerate() {
                let (name, stored) = entry.map_err(SnapshotError::store)?;
                let (name, stored) = (name.value(), stored.value());
                let is_wanted = is_wanted(name, stored);
                let is_full = found.len() >= most.records
                    || is_wanted && !found.is_empty() && bytes + stored.len() > most.bytes;
                if is_full || number == LOOKED_AT {
                    let after = Some(last);
                    return Ok(Page { found, after });
                }
                if is_wanted {
                    bytes += stored.len();
                    found.push((name.to_owned(), decode(name, stored)?));
                }
                name.clone_into(&mut last);
            }
            Ok(Page { found, after: None })
        })
    }
}
