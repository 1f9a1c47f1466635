//! The operations.
//!
//! Work that never waits for others (the store, directories) runs in a thread for that; work that may take as long as a registry does
//! (offering a layer, making a view) holds no more than the lock of its key.
//!
//! An operation is one change of the store. Directories are made before it is done and taken away after it is. So a process that dies
//! between leaves directories without a snapshot, never a snapshot without its directory. [`Snapshotter::reconcile`] and
//! [`Snapshotter::cleanup`] remove those directories, and views that are held for no snapshot.

mod inner;
mod layer_release;
mod list;
mod offer;
mod offered_layer;
mod own;
mod pulls;
mod removed_images;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use crate::api::{Info, Kind, Mount};
use crate::containerd::owners::Owners;
use crate::directories::Directories;
use crate::error::{ErrorKind, SnapshotError};
use crate::id_mapping::IdMapping;
use crate::lazy::{LazyImages, Reason};
use crate::locks::KeyLocks;
use crate::mapped::Mapped;
use crate::record::{LAZY, LazyLayer, Record, UNPACKED_BECAUSE};
use crate::store::{Most, New, Page, Store};
use crate::usage::Usage;
use inner::Inner;
use offered_layer::{Offered, TARGET, Unpacked};
use pulls::Pulls;
use removed_images::RemovedImages;

/// Longest key, in bytes. containerd's are a namespace, a number and at most 4096 bytes of the client's.
const LONGEST_KEY: usize = 8 << 10;
/// Longest label, name and value together, in bytes, as the service is defined.
const LONGEST_LABEL: usize = 4096;
/// How many operations work at the store or its directories at once; others wait without a thread. The store has one writer,
/// and threads that wait for a disk are missed by readers, whose pages are decoded by threads of the same pool.
const AT_ONCE: usize = 4;
/// How many snapshots are looked after in one go when a store is opened.
const RESTORED_AT_ONCE: Most = Most {
    records: 1000,
    bytes: 1 << 20,
};
/// How much of a reason is kept in a label, in characters.
const LONGEST_REASON: usize = 512;

/// A snapshotter.
pub struct Snapshotter<L> {
    inner: Arc<Inner>,
    lazy: Arc<L>,
    /// Finds out for which image a snapshot is.
    owners: Option<Owners>,
    keys: KeyLocks,
    turns: Arc<Semaphore>,
    /// Held while directories are deleted.
    deleting: Arc<tokio::sync::Mutex<()>>,
    counts: Mutex<BTreeMap<Count, u64>>,
    gone: RemovedImages,
    pulls: Arc<Pulls>,
}

/// The things that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Count {
    Lazy,
    Unpacked(Reason),
}

/// The figures of a snapshotter: its work since it was opened, and the snapshots that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Layers for which nothing was fetched.
    pub lazy: u64,
    /// Layers that containerd was left to unpack, by reason.
    pub unpacked: BTreeMap<&'static str, u64>,
    /// Snapshots that there are: active, views, committed, and how many of the last are lazy.
    pub active: u64,
    /// See there.
    pub views: u64,
    /// See there.
    pub committed: u64,
    /// See there.
    pub committed_lazy: u64,
}

impl<L: LazyImages> Snapshotter<L> {
    /// Opens what is at `root`, or makes it.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(root: &Path, lazy: Arc<L>) -> Result<Snapshotter<L>, SnapshotError> {
        let directories = Directories::open(root)?;
        let reserve = directories.reserve().clone();
        let store = Store::open(&directories.store(), move || reserve.give())?;
        directories.sync()?;
        Ok(Snapshotter {
            inner: Arc::new(Inner {
                store,
                directories: Arc::new(directories),
                mapped: Mapped::new(root, lazy.clone()),
            }),
            lazy,
            owners: None,
            keys: KeyLocks::default(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            deleting: Arc::default(),
            counts: Mutex::default(),
            gone: RemovedImages::default(),
            pulls: Arc::default(),
        })
    }

    /// Asks there by which image's name a container on lazy layers is made, before it gets them.
    #[must_use]
    pub fn asking(self, owners: Option<Owners>) -> Snapshotter<L> {
        Snapshotter { owners, ..self }
    }

    /// Takes away what operations left that never ended: directories, and views that are held for nobody. Makes directories again that
    /// a snapshot lacks, as after a power loss. The directories that are taken away are deleted afterwards, which may take long; nobody
    /// waits for it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn reconcile(&self) -> Result<(), SnapshotError> {
        self.in_background(|inner| {
            let mut next = Some(String::new());
            while let Some(after) = next {
                let Page { found, after } = inner.store.page(&after, RESTORED_AT_ONCE, |_, _| true)?;
                for (name, record) in &found {
                    // One that cannot be mended keeps none of the others from it.
                    if let Err(problem) = inner.restore(name, record) {
                        warn!("snapshot {name:?}: {problem}");
                    }
                }
                next = after;
            }
            Ok(())
        })
        .await?;
        // First what is bound: it keeps views from going.
        self.in_background(Inner::remove_strangers).await?;
        self.release_strangers().await?;
        tokio::spawn(self.delete_removed());
        Ok(())
    }

    /// The record of a snapshot.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`].
    pub async fn stat(&self, key: String) -> Result<Info, SnapshotError> {
        let record = self.in_background(move |inner| {
            let record = inner.store.get(&key)?;
            Ok(record.info(key))
        });
        record.await
    }

    /// Changes labels: those that `fields` names as `labels.NAME`, or all of them.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::InvalidArgument`] for what cannot change.
    pub async fn update(&self, info: Info, fields: Vec<String>) -> Result<Info, SnapshotError> {
        check_labels(&info.labels)?;
        let unchangeable = |field: &&String| *field != "labels" && !field.starts_with("labels.");
        if let Some(field) = fields.iter().find(unchangeable) {
            return Err(SnapshotError::invalid(format!(
                "{field:?} of snapshot {:?} cannot be changed, only labels",
                info.name
            )));
        }
        let updated = self.in_background(move |inner| {
            let Info { name, labels, .. } = info;
            let record = inner.store.update(&name, |record| {
                if fields.is_empty() || fields.iter().any(|field| field == "labels") {
                    record.set_labels(labels);
                    return;
                }
                let mut changed = record.labels.clone();
                for name in fields.iter().filter_map(|field| field.strip_prefix("labels.")) {
                    let value = labels.get(name).cloned().unwrap_or_default();
                    changed.insert(name.to_owned(), value);
                }
                record.set_labels(changed);
            })?;
            Ok(record.info(name))
        });
        updated.await
    }

    /// The room that a snapshot takes on this host, those below it not counted.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], and when its directory cannot be read.
    pub async fn usage(&self, key: String) -> Result<Usage, SnapshotError> {
        let lazy = self.lazy.clone();
        let usage = self.in_background(move |inner| {
            let record = inner.store.get(&key)?;
            match (record.kind(), &record.lazy) {
                (Kind::Active, _) => inner.measure(record.id),
                (_, Some(layer)) => Ok(lazy.usage(layer)),
                _ => Ok(record.usage.unwrap_or_default()),
            }
        });
        usage.await
    }

    /// Makes a snapshot to be written ([`Kind::Active`]) or read ([`Kind::View`]).
    ///
    /// If the labels say that it is to become a layer of an image, the layer is offered first. If the layer is lazy, a committed
    /// snapshot stands for it, and the answer is [`ErrorKind::AlreadyExists`]. So the client learns that there is nothing to do.
    ///
    /// # Errors
    /// See [`Store::create`].
    pub async fn prepare(
        &self,
        kind: Kind,
        key: String,
        parent: String,
        labels: HashMap<String, String>,
    ) -> Result<Vec<Mount>, SnapshotError> {
        check_key(&key)?;
        check_labels(&labels)?;
        let offered = match kind {
            Kind::Active => Offered::of(&labels),
            _ => None,
        };
        // Held until there is a snapshot of it.
        let mut pull = None;
        let unpacked = match &offered {
            Some(offered) => {
                let begun = self.pulls.begin(offered.manifest.map(str::to_owned)).await;
                self.offer(&key, &parent, &labels, offered, pull.insert(begun))
                    .await?
            }
            None => None,
        };
        let own_labels = unpacked.as_ref().map_or_else(HashMap::new, reason_label);
        let base = unpacked.and_then(|unpacked| unpacked.base);
        let _one = self.keys.lock(&key).await;
        // A view would be made for nothing, or released by whom it was not made.
        let (wanted, on) = (key.clone(), parent.clone());
        let below = self
            .in_background(move |inner| inner.can_be_made(&wanted, &on))
            .await?;
        let id_mapping = id_mapping(&labels, &below)?;
        let part = base.as_ref().or_else(|| below.iter().find_map(Record::lazy_part));
        let view = self.view(&key, kind, part).await?;
        let has_view = view.is_some();
        let created = self.in_background({
            let key = key.clone();
            move |inner| {
                let new = New {
                    key: &key,
                    kind,
                    parent: &parent,
                    labels,
                    own_labels,
                    lazy: None,
                    base,
                    id_mapping,
                };
                inner.create(new, view.as_deref())
            }
        });
        let created = created.await;
        drop(pull);
        if created.is_err() && has_view {
            self.give_back(&key).await;
        }
        created
    }

    /// Makes a committed snapshot of an active one.
    ///
    /// # Errors
    /// See [`Store::commit`].
    pub async fn commit(
        &self,
        name: String,
        key: String,
        labels: HashMap<String, String>,
        parent: String,
    ) -> Result<(), SnapshotError> {
        check_key(&name)?;
        check_labels(&labels)?;
        let _one = self.keys.lock(&key).await;
        let committed = self.in_background({
            let key = key.clone();
            move |inner| {
                let record = inner.store.get(&key)?;
                let usage = match record.kind() {
                    Kind::Active => inner.measure(record.id)?,
                    _ => Usage::default(),
                };
                inner.store.commit(&key, &name, labels, &parent, usage)?;
                inner.unbind(record.id);
                Ok(())
            }
        });
        committed.await?;
        // A mount of it goes on; nobody can ask for it again.
        self.give_back(&key).await;
        Ok(())
    }

    /// Forgets a snapshot. Its files are deleted in the background; a mount of them goes on.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::FailedPrecondition`] when another is made on it.
    pub async fn remove(&self, key: String) -> Result<(), SnapshotError> {
        let _one = self.keys.lock(&key).await;
        let removed = self.in_background({
            let key = key.clone();
            move |inner| {
                let removed = inner.store.remove(&key)?;
                inner.unbind(removed.id);
                if let Err(error) = inner.directories.remove(removed.id) {
                    // It is gone all the same; `cleanup` tries again.
                    warn!("{error}");
                }
                Ok(removed)
            }
        });
        let removed = removed.await?;
        self.gone.add(removed.lazy_part());
        if removed.kind() != Kind::Committed {
            self.give_back(&key).await;
        }
        tokio::spawn(self.delete_removed());
        Ok(())
    }

    /// Deletes what removed snapshots left, releases what only they needed of lazy images, and waits for it: the client
    /// looks at the disk afterwards.
    ///
    /// # Errors
    /// When the store or its directories cannot be read.
    pub async fn cleanup(&self) -> Result<(), SnapshotError> {
        // First what is bound: it keeps views from going.
        self.in_background(Inner::remove_strangers).await?;
        self.release_strangers().await?;
        self.delete_removed().await;
        self.let_go_soon().await;
        Ok(())
    }

    /// Gives back a view that no snapshot needs any more. If that fails, it stays held for no snapshot; `cleanup` tries again.
    async fn give_back(&self, key: &str) {
        if let Err(problem) = self.lazy.release(key).await {
            warn!("{problem}");
        }
    }

    /// Gives back views that are held for no snapshot.
    async fn release_strangers(&self) -> Result<(), SnapshotError> {
        let lazy = self.lazy.clone();
        for key in self.in_background(move |_| Ok(lazy.held())).await? {
            // A call that makes a snapshot holds its view first, under this lock.
            let _one = self.keys.lock(&key).await;
            let wanted = key.clone();
            let found = self.in_background(move |inner| inner.store.get(&wanted)).await;
            match found {
                Err(error) if error.kind == ErrorKind::NotFound => {
                    info!("no snapshot {key:?} is there any more: releasing its view");
                    self.give_back(&key).await;
                }
                found => drop(found?),
            }
        }
        Ok(())
    }

    /// Deletes what removed snapshots left, in one thread however many ask for it: trees may take long. A caller that asks while it is
    /// done waits without a thread, and then finds what came too late for the one before.
    fn delete_removed(&self) -> impl Future<Output = ()> + Send + use<L> {
        // Not the store: another process may open it while this goes on.
        let (directories, deleting) = (self.inner.directories.clone(), self.deleting.clone());
        async move {
            let one = deleting.lock_owned().await;
            let deleted = tokio::task::spawn_blocking(move || {
                let _one = one;
                directories.delete_removed();
            });
            if let Err(error) = deleted.await {
                warn!("what removed snapshots left is not deleted: {error}");
            }
        }
    }

    /// The work so far, and the snapshots that there are.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn figures(&self) -> Result<Figures, SnapshotError> {
        let mut figures = Figures::default();
        for (count, times) in self.counts.lock().iter() {
            match count {
                Count::Lazy => figures.lazy = *times,
                Count::Unpacked(reason) => {
                    figures.unpacked.insert(reason.name(), *times);
                }
            }
        }
        self.inner.store.outlines(|outline| {
            match outline.kind() {
                Kind::Active => figures.active += 1,
                Kind::View => figures.views += 1,
                Kind::Committed => figures.committed += 1,
                Kind::Unknown => {}
            }
            figures.committed_lazy += u64::from(outline.lazy.is_some());
        })?;
        Ok(figures)
    }

    fn count(&self, what: Count) {
        let mut counts = self.counts.lock();
        *counts.entry(what).or_default() += 1;
    }

    /// Shows the lazy layers of a chain, if it has any.
    async fn view(
        &self,
        key: &str,
        kind: Kind,
        part: Option<&LazyLayer>,
    ) -> Result<Option<PathBuf>, SnapshotError> {
        let Some(layer) = part else {
            return Ok(None);
        };
        let view = self.lazy.view(key, layer, kind == Kind::Active).await;
        if view.is_err() {
            // It may be held all the same.
            self.give_back(key).await;
        }
        view.map(Some)
    }

    async fn in_background<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, SnapshotError> + Send + 'static,
    ) -> Result<T, SnapshotError> {
        let (inner, turns) = (self.inner.clone(), self.turns.clone());
        let Ok(turn) = turns.acquire_owned().await else {
            return Err(SnapshotError::new(
                ErrorKind::Internal,
                "no operation gets a turn",
            ));
        };
        // Given back when the work is done, whether or not somebody still waits for it.
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&inner)
        });
        done.await
            .unwrap_or_else(|error| Err(SnapshotError::new(ErrorKind::Internal, error)))
    }
}

fn check_key(key: &str) -> Result<(), SnapshotError> {
    match key.len() {
        0 => Err(SnapshotError::invalid("a snapshot needs a key")),
        1..=LONGEST_KEY => Ok(()),
        length => Err(SnapshotError::invalid(format!(
            "a key has {length} bytes, and {LONGEST_KEY} are the most"
        ))),
    }
}

fn check_labels(labels: &HashMap<String, String>) -> Result<(), SnapshotError> {
    for (name, value) in labels {
        let length = name.len() + value.len();
        if length > LONGEST_LABEL {
            let start: String = name.chars().take(64).collect();
            return Err(SnapshotError::invalid(format!(
                "the label {start:?} has {length} bytes, and {LONGEST_LABEL} are the most"
            )));
        }
    }
    Ok(())
}

/// Labels of a snapshot that stands for a lazy layer.
fn lazy_labels(layer: &LazyLayer) -> HashMap<String, String> {
    HashMap::from([(LAZY.to_owned(), layer.layer.clone())])
}

/// The label that says why a layer is unpacked.
fn reason_label(unpacked: &Unpacked) -> HashMap<String, String> {
    let not_lazy = &unpacked.not_lazy;
    let because = format!("{}: {}", not_lazy.reason.name(), not_lazy.detail);
    let because = because.chars().take(LONGEST_REASON).collect();
    HashMap::from([(UNPACKED_BECAUSE.to_owned(), because)])
}

/// How the ids of a snapshot are mapped that is made on these.
fn id_mapping(
    labels: &HashMap<String, String>,
    below: &[Record],
) -> Result<Option<IdMapping>, SnapshotError> {
    // The files of a layer that is being unpacked have the layer's own owners. Its labels come from the image's author, too.
    let mapping = match labels.contains_key(TARGET) {
        true => None,
        false => IdMapping::of(labels)?,
    };
    Ok(mapping.filter(|_| !below.iter().any(|record| record.is_copy)))
}
