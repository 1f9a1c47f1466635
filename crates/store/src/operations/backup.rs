//! Backup while serving, of embedded records and objects in files.
//!
//! A backup is a directory like the root: `records.db` and `objects`, and `backup`, which says that it is one. While it is taken nothing is
//! deleted, by any process; then all objects are there that the copy of the records names. Objects never change, so they are linked where
//! that is possible, and those that an earlier backup in the same directory has stay.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use xebec_kernel::file::sync_directory;

use crate::database::{Database, Sqlite, Transaction};
use crate::error::{Result, StoreError};
use crate::records::intact::{key_elsewhere, main_key};
use crate::records::objects::{self, Kind, Object};
use crate::records::{replicas, uploads};
use crate::schema::MIGRATIONS;
use crate::store::Store;
use xebec_objects::{BlobReader, Directory, make_directory};

/// So many records are looked up at once.
pub(super) const STEP: usize = 64;
pub(super) const RECORDS: &str = "records.db";
pub(super) const OBJECTS: &str = "objects";
/// The records before all objects are there: a directory with nothing but these is no backup yet.
pub(super) const UNFINISHED: &str = ".records.db.new";

/// The file that tells a backup from the root directory of a store that nobody has open.
const MARK: &str = "backup";

/// The contents of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackedUp {
    /// Blobs that have an object of their own.
    pub blobs: u64,
    /// Packs and recipes, of which the other blobs are made.
    pub pieces: u64,
    /// The bytes of all these objects.
    pub bytes: u64,
    /// Those of them that an earlier backup had already.
    pub kept: u64,
    /// Those of them that could not be linked, and were copied.
    pub copied: u64,
    /// Blobs, packs and recipes whose object is missing here: scrub the store.
    pub missing: u64,
}

pub(super) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::File { doing, path, source }
}

impl Store {
    /// Takes a backup in `directory`, which is made if it is missing. Pushes and pulls go on. `report` is called now and then with what
    /// the backup has so far.
    ///
    /// # Errors
    /// If records or objects are elsewhere than in the root directory, `directory` is a store's, or a file cannot be written.
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
        let backed_up = self.copy_objects(&copied, objects, &directory, report).await;
        drop(lock);
        let backed_up = backed_up?;
        // The records come last: a directory with them is a whole backup.
        blocking(move || {
            // Closed, they are one file.
            drop(copied);
            let (from, to) = (directory.join(UNFINISHED), directory.join(RECORDS));
            let sync = || fs::File::open(&from)?.sync_all();
            sync().map_err(failed("sync", &from))?;
            fs::rename(&from, &to).map_err(failed("give the records their name:", &to))?;
            sync_directory(&directory).map_err(failed("sync", &directory))
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
    ) -> Result<BackedUp> {
        let database = |source| StoreError::Database {
            doing: "read the copy of the records",
            source,
        };
        let forget = |tx: &mut dyn Transaction| {
            uploads::forget_all(tx)?;
            replicas::forget_all(tx)
        };
        records.write(forget).await.map_err(database)?;
        let target = Directory::open(&directory.join(OBJECTS)).map_err(failed("make", directory))?;
        let mut backed_up = BackedUp::default();
        for kind in [Kind::Pack, Kind::Recipe, Kind::Blob] {
            let mut after = None;
            loop {
                let start: Option<String> = after.take();
                let listed = records.read(move |tx| objects::list(tx, kind, STEP, start.as_deref()));
                let listed = listed.await.map_err(database)?;
                let is_last = listed.len() < STEP;
                after = listed.last().map(|object| object.key.clone());
                let (listed, away): (Vec<Object>, Vec<Object>) = listed
                    .into_iter()
                    .partition(|object| main_key(&object.key).is_some());
                for object in &away {
                    let is_copied = self
                        .copy_away(records, (kind, object), &target, &mut backed_up)
                        .await?;
                    *(backed_up.of(kind)) += u64::from(is_copied);
                }
                let (objects, target) = (from.clone(), target.clone());
                backed_up = blocking(move || {
                    let mut backed_up = backed_up;
                    for object in &listed {
                        if copy_object(object, &objects, &target, &mut backed_up)? {
                            *(backed_up.of(kind)) += 1;
                        }
                    }
                    Ok(backed_up)
                })
                .await?;
                report(&backed_up);
                if is_last {
                    break;
                }
            }
        }
        Ok(backed_up)
    }

    /// Copies an object that is on other places only to the backup, where it gets a key; whether it is there now.
    async fn copy_away(
        &self,
        records: &Database,
        (kind, object): (Kind, &Object),
        target: &Directory,
        backed_up: &mut BackedUp,
    ) -> Result<bool> {
        let key = key_elsewhere(&object.key).to_owned();
        let to = target.path(&key).map_err(failed("find", Path::new(&key)))?;
        let is_here = fs::metadata(&to).is_ok_and(|found| found.len() == object.size);
        let written = match is_here {
            true => Ok(()),
            false => self.write_away(records, (kind, object), &to).await,
        };
        // One that is missing has a name, too, that a restore can look for.
        let name = object.key.clone();
        let renamed = records
            .write(move |tx| replicas::rename_in_copy(tx, &name, &key))
            .await;
        renamed.map_err(|source| StoreError::Database {
            doing: "name an object of the backup",
            source,
        })?;
        match written {
            Ok(()) => {
                *(if is_here {
                    &mut backed_up.kept
                } else {
                    &mut backed_up.copied
                }) += 1
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                backed_up.missing += 1;
                return Ok(false);
            }
            Err(error) => return Err(failed("back up", &to)(error)),
        }
        backed_up.bytes += object.size;
        Ok(true)
    }

    async fn write_away(
        &self,
        records: &Database,
        (kind, object): (Kind, &Object),
        to: &Path,
    ) -> io::Result<()> {
        to.parent().map_or(Ok(()), make_directory)?;
        remove(to)?;
        let mut pieces = match self.read_named(&object.key, 0..object.size).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.read_moved(records, kind, object).await?
            }
            read => read?,
        };
        let mut file = tokio::fs::File::from_std(fs::File::create_new(to)?);
        while let Some(piece) = pieces.next().await {
            file.write_all(&piece?).await?;
        }
        file.sync_all().await?;
        to.parent().map_or(Ok(()), sync_directory)
    }

    /// Reads an object that has left the places where it was when the records were copied: nothing keeps its replicas there while a backup is taken.
    async fn read_moved(&self, records: &Database, kind: Kind, object: &Object) -> io::Result<BlobReader> {
        let range = 0..object.size;
        if kind == Kind::Blob {
            let blob = self.any_blob(&object.digest).await.map_err(io::Error::other)?;
            let blob = blob.ok_or(io::ErrorKind::NotFound)?;
            return self.read(&blob, range).await.map_err(|error| match error {
                StoreError::Lost(_) => io::ErrorKind::NotFound.into(),
                error => io::Error::other(error),
            });
        }
        let name = object.key.clone();
        let owner = records.read(move |tx| objects::owner(tx, kind, &name)).await;
        let owner = owner.map_err(io::Error::other)?;
        let current = self
            .read_records("find an object that was moved", move |tx| match &owner {
                Some(owner) => replicas::name_of(tx, owner),
                None => Ok(None),
            })
            .await
            .map_err(io::Error::other)?;
        self.read_named(&current.ok_or(io::ErrorKind::NotFound)?, range)
            .await
    }
}

impl BackedUp {
    fn of(&mut self, kind: Kind) -> &mut u64 {
        match kind {
            Kind::Blob => &mut self.blobs,
            Kind::Pack | Kind::Recipe => &mut self.pieces,
        }
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| StoreError::System {
        doing: "work on a backup",
        source: io::Error::other(error),
    })?
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
    copied.map_err(|source| StoreError::Database {
        doing: "copy the records",
        source,
    })
}

/// Whether the object is in the backup now.
fn copy_object(
    object: &Object,
    objects: &Directory,
    target: &Directory,
    backed_up: &mut BackedUp,
) -> Result<bool> {
    let place = |directory: &Directory| -> Result<PathBuf> {
        let path = directory.path(&object.key);
        path.map_err(failed("find", Path::new(&object.key)))
    };
    let (from, to) = (place(objects)?, place(target)?);
    if fs::metadata(&to).is_ok_and(|found| found.len() == object.size) {
        backed_up.kept += 1;
    } else {
        match link_or_copy(&from, &to) {
            Ok(is_copied) => backed_up.copied += u64::from(is_copied),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                backed_up.missing += 1;
                return Ok(false);
            }
            Err(error) => return Err(failed("back up", &from)(error)),
        }
    }
    backed_up.bytes += object.size;
    Ok(true)
}

/// It need not be there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether it was copied.
pub(super) fn link_or_copy(from: &Path, to: &Path) -> io::Result<bool> {
    to.parent().map_or(Ok(()), make_directory)?;
    remove(to)?;
    let is_copied = match fs::hard_link(from, to) {
        Ok(()) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
        // On another file system, or one without links.
        Err(_) => {
            fs::copy(from, to)?;
            fs::File::open(to)?.sync_all()?;
            true
        }
    };
    to.parent().map_or(Ok(()), sync_directory)?;
    Ok(is_copied)
}
