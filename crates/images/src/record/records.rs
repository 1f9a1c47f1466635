//! The directory of records. A process that changes one holds a lock: `xebec index` does so beside the daemon.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use xebec_format::digest::Digest;
use xebec_kernel::file::{sync_files, write_atomically, write_for_this_boot};
use xebec_kernel::lock::lock_file;
use xebec_protocol::failure::Failure;

use super::ImageRecord;

/// How old the note of an image's last use may be while it is used, in seconds.
const SAME_USE: u64 = 60;

/// The directory of records.
#[derive(Clone, Debug)]
pub struct Records {
    directory: PathBuf,
}

/// When the first record of an image is on the disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durability {
    Now,
    Later,
}

impl Records {
    /// The records in `directory`, which is made when the first is written.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The record of a manifest. A damaged one is as good as none: it is made again.
    pub fn get(&self, manifest: Digest) -> Option<ImageRecord> {
        read(&self.path(manifest)).filter(|record| record.manifest_digest == manifest)
    }

    /// The record that was last prepared under `reference` (in full).
    pub fn find(&self, reference: &str) -> Option<ImageRecord> {
        let named = self
            .list()
            .into_iter()
            .filter(|record| record.references.contains(reference));
        named.max_by_key(|record| record.last_used)
    }

    /// All records, ordered by manifest.
    pub fn list(&self) -> Vec<ImageRecord> {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return Vec::new();
        };
        let mut records: Vec<ImageRecord> = entries
            .flatten()
            .filter_map(|entry| read(&entry.path()))
            .collect();
        records.sort_by_key(|record| record.manifest_digest);
        records
    }

    /// Writes a record, and takes its references from older manifests: a tag names one manifest. Of the record of its own manifest
    /// references, whether it is pinned, and its user stay, unless the record has a user.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put(&self, record: ImageRecord) -> Result<(), Failure> {
        self.merge(record, Durability::Now, |_, _| false)
            .map(|_| ())
            .map_err(|error| self.failed(error))
    }

    /// Whether all of it is on the disk.
    fn merge(
        &self,
        mut record: ImageRecord,
        first: Durability,
        is_enough: impl Fn(&ImageRecord, ImageRecord) -> bool,
    ) -> std::io::Result<bool> {
        fs::create_dir_all(&self.directory)?;
        let _lock = self.lock()?;
        let known = self.get(record.manifest_digest);
        let is_first = known.is_none();
        if let Some(known) = known {
            for (reference, index) in &known.indexes {
                if !record.references.contains(reference) {
                    record.indexes.insert(reference.clone(), *index);
                }
            }
            record.references.extend(known.references.iter().cloned());
            let former = known
                .former
                .iter()
                .filter(|name| !record.references.contains(*name));
            record.former = former.cloned().collect();
            record.platforms.extend(known.platforms.iter().cloned());
            record.pinned = known.pinned;
            record.kept_for = record.kept_for.max(known.kept_for);
            record.user = record.user.or_else(|| known.user.clone());
            if is_enough(&record, known) {
                return Ok(true);
            }
        }
        let mut poorer = Vec::new();
        for mut other in self.list() {
            if other.manifest_digest == record.manifest_digest {
                continue;
            }
            let taken = other.references.intersection(&record.references);
            let taken: BTreeSet<String> = taken.cloned().collect();
            if !taken.is_empty() {
                other.references.retain(|reference| !taken.contains(reference));
                other.former.extend(taken);
                poorer.push(other);
            }
        }
        if is_first && first == Durability::Later && poorer.is_empty() {
            let bytes = serde_json::to_vec_pretty(&record)?;
            write_for_this_boot(&self.path(record.manifest_digest), &bytes)?;
            return Ok(false);
        }
        // First this one: a power cut in between leaves a reference to two, not to none.
        self.write(&record)?;
        poorer.iter().try_for_each(|other| self.write(other))?;
        Ok(true)
    }

    /// Held while records are read and written: `xebec index` does so beside the daemon.
    fn lock(&self) -> std::io::Result<fs::File> {
        lock_file(&self.directory.with_extension("lock"), 0o666)
    }

    /// Changes the record of an image, and nothing else; false if there is none.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn change(&self, manifest: Digest, change: impl FnOnce(&mut ImageRecord)) -> Result<bool, Failure> {
        let changed = || -> std::io::Result<bool> {
            // Else there is no place for a lock.
            if self.get(manifest).is_none() {
                return Ok(false);
            }
            let _lock = self.lock()?;
            let Some(known) = self.get(manifest) else {
                return Ok(false);
            };
            let mut record = known.clone();
            change(&mut record);
            if record != known {
                self.write(&record)?;
            }
            Ok(true)
        };
        changed().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: std::io::Error) -> Failure {
        Failure::on_root_disk(
            format_args!("write a record to {}", self.directory.display()),
            &error,
        )
    }

    /// As [`Self::put`], but not if all that would change is that it was used a moment later: each write is synced, and somebody
    /// waits for the start. Therefore the first record of an image is not: false is returned if one is not on the disk before
    /// [`Self::sync`]. A power cut before may leave none.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn keep(&self, record: ImageRecord) -> Result<bool, Failure> {
        let is_known = |record: &ImageRecord, known: ImageRecord| {
            let age = record.last_used.checked_sub(known.last_used);
            let known = ImageRecord {
                last_used: record.last_used,
                ..known
            };
            // No other record has its references then: a record that took one would have taken it from this one.
            known == *record && age.is_some_and(|age| age < SAME_USE)
        };
        self.merge(record, Durability::Later, is_known)
            .map_err(|error| self.failed(error))
    }

    /// Brings the record of a manifest to the disk. None is no error. Blocks.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn sync(&self, manifest: Digest) -> Result<(), Failure> {
        sync_files(&self.directory, &[&format!("{}.json", manifest.hex())])
            .map_err(|error| Failure::host(format!("sync {}", self.path(manifest).display()), error))
    }

    /// Removes the record of a manifest; nothing happens if there is none.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove(&self, manifest: Digest) -> Result<(), Failure> {
        let path = self.path(manifest);
        let remove = || match fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        self.lock()
            .and_then(|_lock| remove())
            .map_err(|error| Failure::host(format!("remove {}", path.display()), error))
    }

    /// Removes the record of a manifest if, as it is now, it is not wanted; nothing happens if there is none.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn remove_if(
        &self,
        manifest: Digest,
        is_unwanted: impl FnOnce(&ImageRecord) -> bool,
    ) -> Result<(), Failure> {
        let path = self.path(manifest);
        let remove = || {
            // Else there is no place for a lock.
            if !path.exists() {
                return Ok(());
            }
            let _lock = self.lock()?;
            match self.get(manifest) {
                Some(record) if is_unwanted(&record) => fs::remove_file(&path),
                _ => Ok(()),
            }
        };
        remove().map_err(|error| Failure::host(format!("remove {}", path.display()), error))
    }

    fn write(&self, record: &ImageRecord) -> std::io::Result<()> {
        write_atomically(
            &self.path(record.manifest_digest),
            &serde_json::to_vec_pretty(record)?,
        )
    }

    fn path(&self, manifest: Digest) -> PathBuf {
        self.directory.join(format!("{}.json", manifest.hex()))
    }
}

fn read(path: &Path) -> Option<ImageRecord> {
    let record = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    Some(with_hosts_in_lower_case(record))
}

/// Earlier versions kept the host of a reference as the user had written it.
fn with_hosts_in_lower_case(mut record: ImageRecord) -> ImageRecord {
    let is_lower = |name: &String| {
        let host = name.split('/').next().unwrap_or_default();
        !host.bytes().any(|byte| byte.is_ascii_uppercase())
    };
    let mut names = record.references.iter().chain(&record.former);
    if names.all(is_lower) {
        return record;
    }
    let lower = |name: String| match name.split_once('/') {
        Some((host, rest)) => format!("{}/{rest}", host.to_ascii_lowercase()),
        None => name,
    };
    record.references = record.references.into_iter().map(lower).collect();
    record.former = record.former.into_iter().map(lower).collect();
    let indexes = record.indexes.into_iter();
    record.indexes = indexes.map(|(name, index)| (lower(name), index)).collect();
    record
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn the_first_comes_to_the_disk_later_and_may_be_damaged_until_then() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::new(directory.path().join("images"));
        let manifest = record("").manifest_digest;
        assert!(!records.keep(record("first")).unwrap());
        records.sync(manifest).unwrap();
        records.sync(Digest::of(b"another")).unwrap();
        assert!(records.keep(record("first")).unwrap(), "it is enough");
        assert!(
            records.keep(record("second")).unwrap(),
            "what is there is not lost"
        );
        assert_eq!(records.get(manifest).unwrap().references.len(), 2);
        fs::write(records.path(manifest), b"").unwrap();
        assert!(records.list().is_empty());
        assert!(!records.keep(record("third")).unwrap());
        assert_eq!(records.get(manifest).unwrap().references.len(), 1);
        records.put(record("fourth")).unwrap();
        assert!(records.keep(record("fourth")).unwrap());
        // A tag that is taken from an image is not lost with the record of the next.
        let mut next = record("fourth");
        next.manifest_digest = Digest::of(b"next");
        assert!(records.keep(next).unwrap(), "on the disk");
        assert!(!records.get(manifest).unwrap().references.contains("fourth"));
    }

    #[test]
    fn an_image_that_an_earlier_version_named_by_a_host_in_upper_case_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::new(directory.path().join("images"));
        let index = Digest::of(b"index");
        records
            .put(ImageRecord {
                indexes: [("Registry.LAN/app:V1".to_owned(), index)].into(),
                former: ["Registry.LAN/app:V0".to_owned()].into(),
                ..record("Registry.LAN/app:V1")
            })
            .unwrap();
        let found = records.find("registry.lan/app:V1").unwrap();
        assert_eq!(found.references, ["registry.lan/app:V1".to_owned()].into());
        assert_eq!(found.former, ["registry.lan/app:V0".to_owned()].into());
        assert_eq!(found.indexes.get("registry.lan/app:V1"), Some(&index));
    }

    /// The image index that led one name to the image does not count for another name.
    #[test]
    fn an_index_counts_for_who_named_it() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::new(directory.path().join("images"));
        let by = |reference: &str, index: Option<&[u8]>| {
            let indexes = index.map(|bytes| (reference.to_owned(), Digest::of(bytes)));
            records
                .put(ImageRecord {
                    indexes: indexes.into_iter().collect(),
                    ..record(reference)
                })
                .unwrap();
            let record = records.get(record("").manifest_digest).unwrap();
            ["plain", "bound"].map(|name| record.indexes.get(name).copied())
        };
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        assert_eq!(by("plain", None), [None, None]);
        assert_eq!(by("bound", Some(b"one")), [None, Some(one)]);
        assert_eq!(by("plain", Some(b"other")), [Some(other), Some(one)]);
        assert_eq!(by("bound", None), [Some(other), None], "the tag has moved");
    }

    /// Each has records of its own, as processes have.
    #[test]
    fn concurrent_changes_of_a_record_lose_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let records = || Records::new(directory.path().join("images"));
        records().put(record("first")).unwrap();
        let manifest = record("").manifest_digest;
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for round in 0..25 {
                        let own = format!("{thread}-{round}");
                        match round % 2 {
                            0 => records().put(record(&own)).unwrap(),
                            _ => {
                                let add = |known: &mut ImageRecord| {
                                    known.references.insert(own);
                                    known.pinned = true;
                                };
                                assert!(records().change(manifest, add).unwrap());
                            }
                        }
                    }
                });
            }
        });
        let known = records().get(manifest).unwrap();
        assert_eq!(known.references.len(), 101);
        assert!(known.pinned);
        assert!(!records().change(Digest::of(b"another"), |_| ()).unwrap());
    }
}
