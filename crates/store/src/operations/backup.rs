//! Backup while serving, of embedded records and objects in files.
//!
//! A backup is a directory like the root: `records.db` and `objects`, and `backup`, which says that it is one. While it is taken nothing is
//! deleted on the main place, by any process; then all objects are there that the copy of the records names. Objects never change, so they are linked
//! where that is possible, and those that an earlier backup in the same directory has stay. An object that has no readable copy is left out, and the file
//! `incomplete` names it.

use std::fs;
use std::io;
use std::path::Path;

use xebec_kernel::file::sync_directory;
use xebec_objects::files::remove;
use xebec_objects::{Directory, make_directory};

use super::backup_copying::{blocking, failed};
use super::backup_objects::{BackedUp, Copier, of_records};
use crate::database::{Database, Sqlite, Transaction};
use crate::error::{Result, StoreError};
use crate::records::objects::{self, Kind};
use crate::records::{replicas, uploads};
use crate::schema::MIGRATIONS;
use crate::store::Store;

/// So many records are looked up at once.
pub(super) const STEP: usize = 64;
pub(super) const RECORDS: &str = "records.db";
pub(super) const OBJECTS: &str = "objects";
/// The records before all objects are there: a directory with nothing but these is no backup yet.
pub(super) const UNFINISHED: &str = ".records.db.new";

/// The file that names what the backup lacks, and its name before the backup is whole.
pub(super) const INCOMPLETE: &str = "incomplete";
const LIST: &str = ".incomplete.new";

/// The copy of an object that is being made, beside all objects. No key of one is like it.
const COPY: &str = ".backup.new";

/// The file that tells a backup from the root directory of a store that nobody has open.
const MARK: &str = "backup";

impl Store {
    /// Takes a backup in `directory`, which is made if it is missing. Pushes and pulls go on. `report` is called now and then with what
    /// the backup has so far.
    ///
    /// # Errors
    /// If records or objects are elsewhere than in the root directory, `directory` is a store's, or a file cannot be written. That objects cannot be read is
    /// none: the rest is backed up, and what comes back says so.
    pub async fn backup(&self, directory: &Path, report: impl FnMut(&BackedUp) + Send) -> Result<BackedUp> {
        let unsupported = || {
            let advice = "a backup is for embedded records and objects in files; use pg_dump, and the bucket's own versions or copies";
            StoreError::Unsupported(advice.to_owned())
        };
        let database = self.inner.database.embedded().ok_or_else(unsupported)?;
        let objects = self.inner.objects.directory().cloned().ok_or_else(unsupported)?;
        let (root, directory) = (self.config().root.clone(), directory.to_owned());
        let to = directory.clone();
        blocking(move || check_target(&root, &to)).await?;
        // Held until all objects are copied.
        let kept = objects.clone();
        let lock = blocking(move || {
            kept.keep_all()
                .map_err(failed("lock", Path::new("the store's objects")))
        })
        .await?;
        let to = directory.clone();
        let copied = blocking(move || copy_records(&database, &to)).await?;
        let copied_objects = self.copy_objects(&copied, objects, &directory, report).await;
        drop(lock);
        let (backed_up, is_incomplete) = copied_objects?;
        // The records come last: a directory with them is a whole backup.
        blocking(move || {
            // Closed, they are one file.
            drop(copied);
            let (from, to) = (directory.join(UNFINISHED), directory.join(RECORDS));
            let sync = || fs::File::open(&from)?.sync_all();
            sync().map_err(failed("sync", &from))?;
            // In this order, a backup that was broken off here is not taken for a complete one.
            let list = directory.join(INCOMPLETE);
            if is_incomplete {
                fs::rename(directory.join(LIST), &list).map_err(failed("write", &list))?;
                sync_directory(&directory).map_err(failed("sync", &directory))?;
            }
            fs::rename(&from, &to).map_err(failed("give the records their name:", &to))?;
            sync_directory(&directory).map_err(failed("sync", &directory))?;
            if !is_incomplete {
                remove(&list).map_err(failed("remove", &list))?;
            }
            Ok(())
        })
        .await?;
        Ok(backed_up)
    }

    async fn copy_objects(
        &self,
        records: &Database,
        from: Directory,
        directory: &Path,
        mut report: impl FnMut(&BackedUp) + Send,
    ) -> Result<(BackedUp, bool)> {
        let forget = |tx: &mut dyn Transaction| {
            uploads::forget_all(tx)?;
            replicas::forget_all(tx)
        };
        records.write(forget).await.map_err(of_records)?;
        let to = directory.join(OBJECTS);
        let copy = to.join(COPY);
        let to = Directory::open(&to).map_err(failed("make", directory))?;
        // What a backup has left here that was killed.
        let list = directory.join(LIST);
        for left in [&copy, &list] {
            remove(left).map_err(failed("remove", left))?;
        }
        let mut copier = Copier::new(self, records, (from, to), [copy, list]);
        for kind in [Kind::Pack, Kind::Recipe, Kind::Blob] {
            let mut after = None;
            loop {
                let start: Option<String> = after.take();
                let listed = records.read(move |tx| objects::list(tx, kind, STEP, start.as_deref()));
                let listed = listed.await.map_err(of_records)?;
                for object in &listed {
                    copier.copy(kind, object).await?;
                }
                report(&copier.backed_up);
                if listed.len() < STEP {
                    break;
                }
                after = listed.into_iter().next_back().map(|object| object.key);
            }
        }
        copier.finish()
    }
}

/// A backup takes the place of the records that its directory has: those of no store, and of this one least of all.
fn check_target(root: &Path, directory: &Path) -> Result<()> {
    make_directory(directory).map_err(failed("make", directory))?;
    let real = |path: &Path| fs::canonicalize(path).map_err(failed("find", path));
    let (target, root) = (real(directory)?, real(root)?);
    if target == root || target.starts_with(root.join(OBJECTS)) {
        let advice = format!(
            "{} belongs to this store itself; take the backup to another directory, best on another disk",
            directory.display()
        );
        return Err(StoreError::Unsupported(advice));
    }
    let mark = directory.join(MARK);
    // A backup is closed, and has no log beside its records.
    let is_in_use = directory.join("records.db-wal").exists();
    if is_in_use || (directory.join(RECORDS).exists() && !mark.exists()) {
        let earlier = match is_in_use {
            true => String::new(),
            false => format!(
                "; if this is a backup that an earlier version took, make the empty file {} first",
                mark.display()
            ),
        };
        let advice = format!(
            "{} looks like the root directory of a store; take the backup to a directory that is empty or has an earlier backup{earlier}",
            directory.display()
        );
        return Err(StoreError::Unsupported(advice));
    }
    fs::write(&mark, "").map_err(failed("write", &mark))
}

/// Copies the records, without what is under way.
fn copy_records(database: &Sqlite, directory: &Path) -> Result<Database> {
    let path = directory.join(UNFINISHED);
    remove(&path).map_err(failed("replace", &path))?;
    let copied = database
        .copy_to(&path)
        .and_then(|()| Database::open_file(&path, MIGRATIONS));
    copied.map_err(|source| failed("copy the records to", &path)(io::Error::other(source)))
}
