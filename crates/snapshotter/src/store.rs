//! The store of snapshots, which survives kills and power cuts: which snapshots there are, and which is made on which.
//!
//! One file, a [redb](https://docs.rs/redb) database: a change is a transaction, on disk when it is told to be done. A
//! process that dies, or a machine that loses power, leaves the state before or after a change, never one between.
//!
//! | table | key | value |
//! | --- | --- | --- |
//! | `snapshots` | name | a [`Record`] |
//! | `children` | ids of parent and child | the child's name |
//! | `numbers` | `next-id`, `version` | |

mod pages;
mod schema;
mod tables;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::path::Path;

use parking_lot::RwLock;
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable};

use crate::api::Kind;
use crate::error::{ErrorKind, SnapshotError};
use crate::id_mapping::{self, IdMapping};
use crate::record::{LazyLayer, LazyParts, Outline, Record, UNPACKED_BECAUSE, now};
use crate::usage::Usage;
pub use pages::{Most, Page};
use schema::{NUMBERS, SNAPSHOTS, VERSION};
use tables::{Tables, below, check, decode, insert, link, number, put, record};

/// How much of the file is kept in memory, in bytes. A thousand snapshots take about half of it.
const MEMORY: usize = 4 << 20;

/// The store.
pub struct Store {
    open: Box<dyn Fn() -> Result<Database, SnapshotError> + Send + Sync>,
    /// Makes room on a full disk for what must be possible there, and says whether it could.
    make_room: Box<dyn Fn() -> bool + Send + Sync>,
    /// None after a failure to write, until it is opened again: the database does nothing more then, and a disk that was
    /// full may have room later.
    database: RwLock<Option<Database>>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

/// A snapshot with those that it is made on.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// The snapshot.
    pub record: Record,
    /// Its parent, that one's parent, and so on.
    pub below: Vec<Record>,
}

/// A snapshot that is to be.
#[derive(Clone, Debug)]
pub struct New<'a> {
    /// Its key.
    pub key: &'a str,
    /// [`Kind::Active`] or [`Kind::View`]; [`Kind::Committed`] for a lazy one.
    pub kind: Kind,
    /// The name of what it is made on; empty for none.
    pub parent: &'a str,
    /// Clients' labels.
    pub labels: HashMap<String, String>,
    /// Labels of this snapshotter.
    pub own_labels: HashMap<String, String>,
    /// The layer that it stands for.
    pub lazy: Option<LazyLayer>,
    /// See [`Record::base`].
    pub base: Option<LazyLayer>,
    /// See [`Record::id_mapping`].
    pub id_mapping: Option<IdMapping>,
}

impl Chain {
    /// The lazy layers that the snapshot shows, if any: as the uppermost snapshot has them that was made for an image.
    pub fn lazy_part(&self) -> Option<&LazyLayer> {
        let all = std::iter::once(&self.record).chain(&self.below);
        // A snapshot below may stand for the same chain of other images.
        all.into_iter().find_map(Record::lazy_part)
    }

    /// The name of the uppermost snapshot below that stands for a lazy layer: the chain ID of the lazy layers.
    pub fn lazy_name(&self) -> Option<&str> {
        let named = std::iter::once(&self.record).chain(&self.below);
        let mut named = named.map(|record| record.parent.as_str()).zip(&self.below);
        named.find_map(|(name, record)| record.lazy.is_some().then_some(name))
    }
}

impl Store {
    /// Opens the file, or makes it. `make_room` is called when the disk is full and the store is opened or something is
    /// removed, which changes the file too; it says whether it made any.
    ///
    /// # Errors
    /// When it cannot be read or written, is of another version, or another process has it.
    pub fn open(
        file: &Path,
        make_room: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Store, SnapshotError> {
        let path = file.to_owned();
        let open = move || {
            let database = redb::Builder::new().set_cache_size(MEMORY).create(&path);
            database.map_err(SnapshotError::store)
        };
        Store::open_by(open, make_room)
    }

    fn open_by(
        open: impl Fn() -> Result<Database, SnapshotError> + Send + Sync + 'static,
        make_room: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Result<Store, SnapshotError> {
        let store = Store {
            open: Box::new(open),
            make_room: Box::new(make_room),
            database: RwLock::default(),
        };
        store.even_if_full(|| store.check_version())?;
        Ok(store)
    }

    fn check_version(&self) -> Result<(), SnapshotError> {
        let is_there = self.with(|database| {
            let transaction = database.begin_read().map_err(SnapshotError::store)?;
            match transaction.open_table(NUMBERS) {
                Ok(numbers) => check(number(&numbers, "version")?),
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(false),
                Err(error) => Err(SnapshotError::store(error)),
            }
        })?;
        match is_there {
            // Nothing is written to one that is there: its disk may be full.
            true => Ok(()),
            false => self.change(|tables| insert(&mut tables.numbers, "version", VERSION)),
        }
    }

    /// Does what must be possible on a full disk.
    fn even_if_full<T>(&self, work: impl Fn() -> Result<T, SnapshotError>) -> Result<T, SnapshotError> {
        match work() {
            Err(error) if error.kind == ErrorKind::ResourceExhausted && (self.make_room)() => work(),
            done => done,
        }
    }

    /// One snapshot.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Internal`] when the file cannot be read, as for every operation.
    pub fn get(&self, key: &str) -> Result<Record, SnapshotError> {
        self.read(|snapshots| record(snapshots, key)?.ok_or_else(|| SnapshotError::not_found(key)))
    }

    /// One snapshot and all below it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn chain(&self, key: &str) -> Result<Chain, SnapshotError> {
        self.read(|snapshots| {
            let top = record(snapshots, key)?.ok_or_else(|| SnapshotError::not_found(key))?;
            Ok(Chain {
                below: below(snapshots, &top.parent)?,
                record: top,
            })
        })
    }

    /// Shows an outline of every snapshot.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn outlines(&self, mut show: impl FnMut(Outline)) -> Result<(), SnapshotError> {
        self.read(|snapshots| {
            for entry in snapshots.iter().map_err(SnapshotError::store)? {
                let (name, bytes) = entry.map_err(SnapshotError::store)?;
                show(decode(name.value(), bytes.value())?);
            }
            Ok(())
        })
    }

    /// Shows what every snapshot shows of lazy images, as all of them are at one moment.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn lazy_parts(&self, mut show: impl FnMut(&str, LazyParts)) -> Result<(), SnapshotError> {
        self.read(|snapshots| {
            for entry in snapshots.iter().map_err(SnapshotError::store)? {
                let (name, bytes) = entry.map_err(SnapshotError::store)?;
                show(name.value(), decode(name.value(), bytes.value())?);
            }
            Ok(())
        })
    }

    /// The ids of all snapshots, while nobody changes anything: what `while_still` does sees no half-made snapshot.
    ///
    /// # Errors
    /// When the file cannot be read, and what `while_still` says.
    pub fn ids<T>(
        &self,
        while_still: impl FnOnce(&BTreeSet<u64>) -> Result<T, SnapshotError>,
    ) -> Result<T, SnapshotError> {
        self.change(|tables| {
            let mut ids = BTreeSet::new();
            for entry in tables.snapshots.iter().map_err(SnapshotError::store)? {
                let (name, bytes) = entry.map_err(SnapshotError::store)?;
                let outline: Outline = decode(name.value(), bytes.value())?;
                ids.insert(outline.id);
            }
            while_still(&ids)
        })
    }

    /// Makes a snapshot. `prepare` makes its directories; if it fails, or the process dies, there is no snapshot, and
    /// there may be directories by an id that the next one gets.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`]; [`ErrorKind::NotFound`] without the parent; [`ErrorKind::InvalidArgument`] when that
    /// is not committed.
    pub fn create(
        &self,
        new: New<'_>,
        prepare: impl FnOnce(&Chain) -> Result<(), SnapshotError>,
    ) -> Result<Chain, SnapshotError> {
        self.change(|tables| {
            if record(&tables.snapshots, new.key)?.is_some() {
                return Err(SnapshotError::exists(new.key));
            }
            let below = below(&tables.snapshots, new.parent)?;
            if let Some(parent) = below.first()
                && parent.kind() != Kind::Committed
            {
                let message = format!("the parent {:?} is not committed", new.parent);
                return Err(SnapshotError::invalid(message));
            }
            let id = number(&tables.numbers, "next-id")?.unwrap_or(1);
            insert(&mut tables.numbers, "next-id", id + 1)?;
            let created = now();
            let mut record = Record {
                id,
                kind: new.kind.into(),
                parent: new.parent.to_owned(),
                created,
                updated: created,
                lazy: new.lazy,
                base: new.base,
                id_mapping: new.id_mapping,
                ..Record::default()
            };
            record.set_labels(new.labels);
            record.labels.extend(new.own_labels);
            put(&mut tables.snapshots, new.key, &record)?;
            if let Some(parent) = below.first() {
                link(&mut tables.children, parent.id, id, new.key)?;
            }
            let chain = Chain { record, below };
            prepare(&chain)?;
            Ok(chain)
        })
    }

    /// Turns an active snapshot into a committed one by another name, with other labels; `parent` says what one comes to
    /// lie on that was made on nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::AlreadyExists`] when the name is taken;
    /// [`ErrorKind::FailedPrecondition`] when it is not active or the parent is not committed;
    /// [`ErrorKind::InvalidArgument`] when it has another parent.
    pub fn commit(
        &self,
        key: &str,
        name: &str,
        labels: HashMap<String, String>,
        parent: &str,
        usage: Usage,
    ) -> Result<(), SnapshotError> {
        self.change(|tables| {
            if record(&tables.snapshots, name)?.is_some() {
                return Err(SnapshotError::exists(name));
            }
            let mut committed =
                record(&tables.snapshots, key)?.ok_or_else(|| SnapshotError::not_found(key))?;
            if committed.kind() != Kind::Active {
                return Err(SnapshotError::precondition(format!(
                    "snapshot {key:?} is not active"
                )));
            }
            if committed.parent.is_empty() {
                parent.clone_into(&mut committed.parent);
            } else if !parent.is_empty() && committed.parent != parent {
                let message = format!("snapshot {key:?} is made on {:?} already", committed.parent);
                return Err(SnapshotError::invalid(message));
            }
            if let Some(lower) = below(&tables.snapshots, &committed.parent)?.first() {
                if lower.kind() != Kind::Committed {
                    let message = format!("the parent {:?} is not committed", committed.parent);
                    return Err(SnapshotError::precondition(message));
                }
                link(&mut tables.children, lower.id, committed.id, name)?;
            }
            committed.set_kind(Kind::Committed);
            committed.created = now();
            committed.updated = committed.created;
            committed.usage = Some(usage);
            // How the container's ids were mapped says nothing of one that is made on what it wrote.
            committed.id_mapping = None;
            committed.is_copy = id_mapping::is_copy(key, name);
            committed.labels.retain(|name, _| name == UNPACKED_BECAUSE);
            committed.set_labels(labels);
            tables.snapshots.remove(key).map_err(SnapshotError::store)?;
            put(&mut tables.snapshots, name, &committed)
        })
    }

    /// Changes a snapshot's labels.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub fn update(&self, key: &str, change: impl FnOnce(&mut Record)) -> Result<Record, SnapshotError> {
        self.change(|tables| {
            let mut updated = record(&tables.snapshots, key)?.ok_or_else(|| SnapshotError::not_found(key))?;
            change(&mut updated);
            updated.updated = now();
            put(&mut tables.snapshots, key, &updated)?;
            Ok(updated)
        })
    }

    /// Forgets a snapshot, and says what it was. Works on a full disk, too: how else would there be room again?
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::FailedPrecondition`] when another is made on it.
    pub fn remove(&self, key: &str) -> Result<Record, SnapshotError> {
        self.even_if_full(|| self.remove_now(key))
    }

    fn remove_now(&self, key: &str) -> Result<Record, SnapshotError> {
        self.change(|tables| {
            let removed = record(&tables.snapshots, key)?.ok_or_else(|| SnapshotError::not_found(key))?;
            let children = (removed.id, 0)..=(removed.id, u64::MAX);
            let mut children = tables.children.range(children).map_err(SnapshotError::store)?;
            if let Some(child) = children.next() {
                let (_, child) = child.map_err(SnapshotError::store)?;
                return Err(SnapshotError::precondition(format!(
                    "cannot remove snapshot {key:?}: {:?} is made on it",
                    child.value()
                )));
            }
            drop(children);
            if let Some(parent) = record(&tables.snapshots, &removed.parent)? {
                let link = (parent.id, removed.id);
                tables.children.remove(link).map_err(SnapshotError::store)?;
            }
            tables.snapshots.remove(key).map_err(SnapshotError::store)?;
            Ok(removed)
        })
    }

    fn change<T>(
        &self,
        work: impl FnOnce(&mut Tables<'_>) -> Result<T, SnapshotError>,
    ) -> Result<T, SnapshotError> {
        self.with(|database| {
            let transaction = database.begin_write().map_err(SnapshotError::store)?;
            // One that is dropped changes nothing.
            let done = work(&mut Tables::open(&transaction)?)?;
            transaction.commit().map_err(SnapshotError::store)?;
            Ok(done)
        })
    }

    fn read<T>(
        &self,
        work: impl FnOnce(&ReadOnlyTable<&'static str, &'static [u8]>) -> Result<T, SnapshotError>,
    ) -> Result<T, SnapshotError> {
        self.with(|database| {
            let transaction = database.begin_read().map_err(SnapshotError::store)?;
            work(&transaction.open_table(SNAPSHOTS).map_err(SnapshotError::store)?)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, SnapshotError>) -> Result<T, SnapshotError> {
        let mut open = self.database.read();
        if open.is_none() {
            drop(open);
            let mut closed = self.database.write();
            if closed.is_none() {
                *closed = Some(self.even_if_full(|| (self.open)())?);
            }
            drop(closed);
            open = self.database.read();
        }
        let Some(database) = open.as_ref() else {
            let message = "the snapshots' store failed just now; try again";
            return Err(SnapshotError::new(ErrorKind::Unavailable, message));
        };
        let done = work(database);
        drop(open);
        let failed = |error: &SnapshotError| {
            let kinds = [
                ErrorKind::Internal,
                ErrorKind::ResourceExhausted,
                ErrorKind::Unavailable,
            ];
            kinds.contains(&error.kind)
        };
        if done.as_ref().is_err_and(failed) {
            *self.database.write() = None;
        }
        done
    }
}

#[cfg(test)]
mod tests;
