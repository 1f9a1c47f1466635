//! Mounted views: over which layers, where, and for whom. Each has a file in the run directory, so that the next
//! worker knows it; a view that nobody holds is unmounted.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_kernel::mount::{self, BackingDevice};

use crate::failure::{Failure, FailureKind};
use crate::file::write_atomically;
use crate::paths::Paths;
use crate::protocol::{Completion, Holder};
use crate::view::{self, BuiltView, MountOptions};
use crate::worker::fills::FillService;
use crate::worker::strict::Use;
use crate::worker::suspects::Suspects;

/// The table of views.
pub struct Views {
    paths: Paths,
    table: Mutex<BTreeMap<String, ViewRecord>>,
}

/// What is kept of a view.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ViewRecord {
    /// Its name.
    pub name: String,
    /// Where it is mounted.
    pub path: PathBuf,
    /// The image it was made for first.
    pub reference: String,
    /// That image's manifest.
    pub manifest: Digest,
    /// Its layers, in the order of its devices.
    pub layers: Vec<LayerPair>,
    /// Who uses it.
    pub holders: Vec<Holder>,
    /// How the rest of it is to be brought in, if that was asked for; a later worker goes on with it.
    #[serde(default)]
    pub completion: Option<Completion>,
    /// For whom its layers are read, as far as it is known: what runtime images bring must be good enough for all.
    #[serde(default)]
    pub uses: Vec<Use>,
    /// A mount of the blob cache that is this view's own, and goes with it.
    #[serde(default)]
    pub own_mount: Option<PathBuf>,
    /// By what it reaches start-up pages that were not all there when it was mounted.
    #[serde(default)]
    pub arriving: Option<Arriving>,
    /// The backing device whose read-ahead is kept small while the view's first service starts.
    #[serde(default)]
    pub narrow: Option<String>,
}

/// A mount of the blob cache that is a view's own, and guarded until its free pages are all there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arriving {
    /// Where it is.
    pub mount: PathBuf,
    /// They are, so it is guarded no more.
    pub over: bool,
}

/// For whom a view is held.
pub struct Claim<'a> {
    /// The image, as it is named.
    pub reference: &'a str,
    /// Its manifest.
    pub manifest: Digest,
    /// Who.
    pub holder: Holder,
    /// How the rest of it is to be brought in, if at all.
    pub completion: Option<Completion>,
    /// What is needed of those who bring pages in.
    pub by: Use,
}

/// A layer and its index, as it is written to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerPair {
    /// The layer blob.
    pub layer: Digest,
    /// Its index.
    pub index: Digest,
}

impl From<LayerPair> for LayerKey {
    fn from(pair: LayerPair) -> Self {
        Self {
            layer: pair.layer,
            index: pair.index,
        }
    }
}

impl Views {
    /// Reads the records of an earlier worker back, serves their layers, and drops views that are not mounted. After
    /// a time in which nobody held the group, those that may have served holes become suspects.
    ///
    /// # Errors
    /// When the mounts cannot be listed.
    pub fn restore(
        paths: &Paths,
        fills: &FillService,
        suspects: &Suspects,
        was_unguarded: bool,
    ) -> Result<Self, Failure> {
        fs::create_dir_all(paths.mounts())
            .map_err(|error| Failure::host(format!("make {}", paths.mounts().display()), error))?;
        let mut table = BTreeMap::new();
        for entry in fs::read_dir(paths.mounts()).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let record = fs::read(&path)
                .ok()
                .and_then(|bytes| serde_json::from_slice::<ViewRecord>(&bytes).ok());
            let mounted = |record: &ViewRecord| {
                mount::is_mounted(&record.path).map_err(|error| Failure::host("list the mounts", error))
            };
            let record = match record {
                Some(record) if mounted(&record)? => record,
                _ => {
                    let _ = fs::remove_file(&path);
                    continue;
                }
            };
            for pair in &record.layers {
                if let Err(error) = fills.serve((*pair).into(), None) {
                    warn!(
                        "view {}: {error}; reads of that layer fail until the image is mounted again",
                        record.name
                    );
                }
            }
            table.insert(record.name.clone(), record);
        }
        for pair in suspects.layers() {
            if let Err(error) = fills.serve(pair.into(), None) {
                warn!("an old view: {error}");
            }
        }
        if was_unguarded {
            let is_complete = |record: &ViewRecord| {
                let layers = record.layers.iter();
                let mut served = layers.map(|pair| fills.find((*pair).into()));
                served.all(|served| served.is_some_and(|served| served.layer().is_complete()))
            };
            let views: Vec<_> = table
                .values()
                .map(|record| (record.clone(), is_complete(record)))
                .collect();
            for name in suspects.find(paths, &views) {
                table.remove(&name);
                let _ = fs::remove_file(paths.mounts().join(format!("{name}.json")));
            }
        }
        for entry in fs::read_dir(paths.recording_mounts())
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            if !table
                .values()
                .any(|record| record.own_mount.as_ref() == Some(&path))
            {
                remove_own_mount(&path);
            } else if was_unguarded && let Err(error) = fills.guard(&path) {
                error!("{error}");
            }
        }
        for entry in fs::read_dir(paths.arriving_mounts())
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            let mut arriving = table.values().filter_map(|record| record.arriving.as_ref());
            let known = arriving.find(|arriving| arriving.mount == path);
            // One without a record is still read if it cannot be unmounted, and its readers must go on raising events.
            let is_due = match known {
                Some(arriving) => was_unguarded && !arriving.over,
                None => !remove_unused_mount(&path),
            };
            if is_due && let Err(error) = fills.guard(&path) {
                error!("{error}");
            }
        }
        if !table.is_empty() {
            info!("{} views found mounted", table.len());
        }
        Ok(Self {
            paths: paths.clone(),
            table: Mutex::new(table),
        })
    }

    /// Mounts a view unless it is mounted, binds it to the directory that is to hold it, if one is, and notes who holds it.
    /// Gives where it is. `open_own` makes the mounts of the cache that are the view's own, before it is mounted.
    ///
    /// # Errors
    /// When the kernel refuses, or the record cannot be written.
    pub fn hold(
        &self,
        built: &BuiltView,
        claim: Claim<'_>,
        options: &MountOptions<'_>,
        open_own: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<PathBuf, Failure> {
        let mut table = self.lock();
        let path = self.paths.mounts().join(&built.name);
        if !table.contains_key(&built.name) {
            if mount::is_mounted(&path).unwrap_or(false) {
                // Left by a worker that died before it wrote the record.
                view::unmount(&path)?;
            }
            let own_mount = (options.guarded != self.paths.guarded()).then(|| options.guarded.to_owned());
            let arriving = (options.free != self.paths.layers()).then(|| options.free.to_owned());
            // Under the lock: nobody else opens a file by them before they are guarded, or takes them away.
            let mounted = open_own().and_then(|()| view::mount(&self.paths, built, options, &path));
            let backing = mounted.inspect_err(|_| {
                own_mount.iter().for_each(|own| remove_own_mount(own));
                arriving.iter().for_each(|own| _ = remove_unused_mount(own));
            })?;
            let layers = built.layers().iter().map(|key| LayerPair {
                layer: key.layer,
                index: key.index,
            });
            let arriving = arriving.map(|mount| Arriving { mount, over: false });
            // A recording's stays as it is.
            let narrow = options
                .read_ahead_kib
                .and(backing)
                .filter(|_| own_mount.is_none());
            let record = ViewRecord {
                name: built.name.clone(),
                path: path.clone(),
                reference: claim.reference.to_owned(),
                manifest: claim.manifest,
                layers: layers.collect(),
                holders: Vec::new(),
                completion: claim.completion,
                uses: Vec::new(),
                own_mount,
                arriving,
                narrow: narrow.map(|backing| backing.name().to_owned()),
            };
            table.insert(built.name.clone(), record);
        }
        if let Some(record) = table.get_mut(&built.name) {
            if !record.holders.contains(&claim.holder) {
                record.holders.push(claim.holder.clone());
            }
            record.completion = claim.completion.or(record.completion);
            if !record.uses.contains(&claim.by) {
                record.uses.push(claim.by);
            }
            self.write(record)?;
            // Under the lock: a sweep takes a directory for gone where nothing is mounted.
            if let Holder::Directory { path: target } = &claim.holder
                && let Err(error) = mount::bind_private(&path, target)
            {
                record.holders.retain(|other| !same(other, &claim.holder));
                let _ = self.write(record);
                self.drop_unheld(&mut table);
                let doing = format!("mount the view on {}", target.display());
                return Err(Failure::host(doing, error));
            }
        }
        Ok(path)
    }

    /// How many use a view, and whether it reads nothing ahead while a service starts; `None` if it is not mounted.
    pub fn look(&self, name: &str) -> Option<(usize, bool)> {
        let table = self.lock();
        let record = table.get(name)?;
        Some((record.holders.len(), record.narrow.is_some()))
    }

    /// A view's free pages are all there: `unguard` takes the guard off the mount by which it reaches them.
    pub fn arrived(&self, name: &str, unguard: impl FnOnce(&Path) -> bool) {
        let mut table = self.lock();
        let Some(record) = table.get_mut(name) else { return };
        let Some(arriving) = record.arriving.as_mut().filter(|arriving| !arriving.over) else {
            return;
        };
        arriving.over = unguard(&arriving.mount);
        // If that is lost, it is guarded again by the next keeper, which only costs time.
        let _ = self.write(record);
    }

    /// Lets a view read ahead of what is asked for, if it was mounted so that it does not.
    pub fn widen(&self, name: &str, kib: u32) {
        let mut table = self.lock();
        let Some(record) = table.get_mut(name) else { return };
        let Some(backing) = record.narrow.take() else {
            return;
        };
        if let Some(backing) = BackingDevice::named(&backing)
            && let Err(error) = backing.set_read_ahead_kib(kib)
        {
            warn!("view {name}: {error}");
        }
        let _ = self.write(record);
    }

    /// Takes a holder off. Views that nobody holds any more are unmounted.
    ///
    /// # Errors
    /// When nobody of that name holds a view, or unmounting fails.
    pub fn release(&self, view: Option<&str>, holder: &Holder) -> Result<(), Failure> {
        let mut table = self.lock();
        let mut found = false;
        for record in table
            .values_mut()
            .filter(|record| view.is_none_or(|name| record.name == name))
        {
            let before = record.holders.len();
            record.holders.retain(|other| !same(other, holder));
            if record.holders.len() != before {
                found = true;
                self.write(record)?;
            }
        }
        self.drop_unheld(&mut table);
        if found {
            return Ok(());
        }
        Err(Failure::new(
            FailureKind::NotFound,
            format!("{} holds no view", describe(holder)),
        ))
    }

    /// Takes holders off that are gone: processes that have ended, directories where nothing is mounted.
    pub fn sweep(&self) {
        let mut table = self.lock();
        for record in table.values_mut() {
            let before = record.holders.len();
            record.holders.retain(is_alive);
            if record.holders.len() != before {
                let _ = self.write(record);
            }
        }
        self.drop_unheld(&mut table);
        for entry in fs::read_dir(self.paths.arriving_mounts())
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            let arriving = table.values().filter_map(|record| record.arriving.as_ref());
            if !arriving.into_iter().any(|arriving| arriving.mount == path) {
                remove_unused_mount(&path);
            }
        }
    }

    /// Unmounts everything.
    pub fn clear(&self) {
        let mut table = self.lock();
        for record in table.values_mut() {
            for holder in record.holders.drain(..) {
                let Holder::Directory { path } = holder else {
                    continue;
                };
                // Once for each time that it was mounted, one on the other.
                while mount::is_mounted(&path).unwrap_or(false) && view::unmount(&path).is_ok() {}
            }
        }
        self.drop_unheld(&mut table);
    }

    /// A copy of the table.
    pub fn list(&self) -> Vec<ViewRecord> {
        self.lock().values().cloned().collect()
    }

    /// Whether no view is mounted.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn drop_unheld(&self, table: &mut BTreeMap<String, ViewRecord>) {
        table.retain(|name, record| {
            if !record.holders.is_empty() {
                return true;
            }
            if let Err(error) = view::unmount(&record.path) {
                warn!("view {name}: {error}");
                return true;
            }
            let _ = fs::remove_dir(&record.path);
            if let Some(own) = &record.own_mount {
                remove_own_mount(own);
            }
            if let Some(arriving) = &record.arriving {
                remove_unused_mount(&arriving.mount);
            }
            let _ = fs::remove_file(self.record_path(name));
            let _ = fs::remove_file(self.paths.views().join(format!("{name}.erofs")));
            false
        });
    }

    fn write(&self, record: &ViewRecord) -> Result<(), Failure> {
        let path = self.record_path(&record.name);
        let bytes =
            serde_json::to_vec_pretty(record).map_err(|error| Failure::host("encode a view", error))?;
        write_atomically(&path, &bytes)
            .map_err(|error| Failure::host(format!("write {}", path.display()), error))
    }

    fn record_path(&self, name: &str) -> PathBuf {
        self.paths.mounts().join(format!("{name}.json"))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, ViewRecord>> {
        self.table
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Takes a view's mount for arriving pages away, unless it is still read through: by who reads on after the view was
/// unmounted. Then it must stay where the next keeper finds it, so that it is guarded again. Whether it is gone.
fn remove_unused_mount(path: &Path) -> bool {
    while mount::is_mounted(path).unwrap_or(true) {
        if mount::unmount(path).is_err() {
            return false;
        }
    }
    fs::remove_dir(path).is_ok()
}

/// Takes a view's own mount of the blob cache away.
pub(super) fn remove_own_mount(path: &Path) {
    if let Err(error) = view::unmount(path) {
        warn!("{error}");
    }
    let _ = fs::remove_dir(path);
}

/// Whether two holders are the same claim. A container is known by its name alone: it names one at a time.
fn same(one: &Holder, other: &Holder) -> bool {
    match (one, other) {
        (Holder::Directory { path: one }, Holder::Directory { path: other }) => one == other,
        (Holder::Process { name: one, .. }, Holder::Process { name: other, .. }) => one == other,
        (Holder::Snapshot { key: one }, Holder::Snapshot { key: other }) => one == other,
        _ => false,
    }
}

fn is_alive(holder: &Holder) -> bool {
    match holder {
        Holder::Directory { path } => mount::is_mounted(path).unwrap_or(true),
        Holder::Process { pid, start_time, .. } => process_start_time(*pid) == Some(*start_time),
        // The store of snapshots knows.
        Holder::Snapshot { .. } => true,
    }
}

fn describe(holder: &Holder) -> String {
    match holder {
        Holder::Directory { path } => path.display().to_string(),
        Holder::Process { name, .. } => name.clone(),
        Holder::Snapshot { key } => format!("snapshot {key}"),
    }
}

/// When a process started, in clock ticks since boot (`/proc/PID/stat`, field 22); `None` when there is none.
pub fn process_start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The second field is the program's name in parentheses, which may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}
