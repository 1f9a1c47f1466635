//! Mounted views: their layers, their mount points and their holders. Each has a file in the run directory, so that the next
//! worker knows it. A view without a holder is **idle** for a while (`views/idle_views.rs`) and is unmounted then.

mod departed;
mod idle_views;
mod own_mounts;
mod prefill;
mod queries;
mod readers;
mod record;
mod restore;
mod shown;
mod table;
mod view_cache;

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;
use xebec_fill::page_set::PageSet;
use xebec_format::digest::Digest;
use xebec_kernel::mount::{self, Attributes, BackingDevice, MountError};
use xebec_kernel::process;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{Allowed, Completion, Holder, LayerPair};

use crate::bypass_devices::Arriving;
use crate::recording_admission::TrustRequirement;
use crate::view::{self, BuiltView, MountOptions};
use crate::views::own_mounts::{remove_own_mount, remove_unused_mount, unmount_view};
pub use crate::views::prefill::{PrefillNote, Prefilled};
use crate::views::record::same;
pub use crate::views::record::{HeldImage, ViewRecord};
pub use crate::views::shown::Shown;
pub use crate::views::table::Views;
pub use crate::views::view_cache::{KnownView, ViewKey};

/// A view that is held.
pub struct Held {
    /// Where it is mounted.
    pub path: PathBuf,
    /// Whether it was mounted before, so that others may have read it.
    pub was_mounted: bool,
}

/// For whom a view is held.
pub struct Claim<'a> {
    /// The image, as it is named.
    pub reference: &'a str,
    /// Its manifest.
    pub manifest: Digest,
    /// The holder.
    pub holder: Holder,
    /// How the rest of it is to be brought in, if at all.
    pub completion: Option<Completion>,
    /// The root of trust that is needed of recordings that bring pages in, by layer.
    pub by: TrustRequirement,
    /// The permissions on the directory that it is for, if it is one.
    pub allowed: Allowed,
}

/// Shows a view at a directory. Those of earlier versions had everything allowed, so what is not is said, too.
fn bind_view(
    view: &Path,
    directory: BorrowedFd<'_>,
    target: &Path,
    allowed: Allowed,
) -> Result<(), MountError> {
    let mut clear = Attributes::empty();
    clear.set(Attributes::MOUNT_ATTR_NOSUID, allowed.suid);
    clear.set(Attributes::MOUNT_ATTR_NODEV, allowed.dev);
    mount::bind_private_on(view, directory, target, view::unsafe_for_hosts() - clear, clear)
}

impl Views {
    /// Mounts a view unless it is mounted, binds it to the directory that is to hold it, if one is, and notes its holder.
    /// `open_own` makes the mounts of the cache that are the view's own, before it is mounted.
    ///
    /// # Errors
    /// When the kernel refuses, or the record cannot be written.
    pub fn hold(
        &self,
        built: &BuiltView,
        claim: Claim<'_>,
        options: &MountOptions<'_>,
        open_own: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Held, Failure> {
        let mut table = self.lock();
        self.drop_unmounted(&mut table, &built.name);
        let was_mounted = table.contains_key(&built.name);
        if !was_mounted {
            let record = self.mount(built, &claim, options, open_own)?;
            table.insert(built.name.clone(), record);
        }
        let path = self.join(&mut table, &built.name, claim, options.read_ahead_kib)?;
        Ok(Held { path, was_mounted })
    }

    /// The same for a view that is mounted; `None` if it is not.
    ///
    /// # Errors
    /// As those of [`Self::hold`].
    pub fn hold_mounted(
        &self,
        name: &str,
        claim: Claim<'_>,
        read_ahead_kib: Option<u32>,
    ) -> Result<Option<PathBuf>, Failure> {
        let mut table = self.lock();
        self.drop_unmounted(&mut table, name);
        if !table.contains_key(name) {
            return Ok(None);
        }
        self.join(&mut table, name, claim, read_ahead_kib).map(Some)
    }

    fn mount(
        &self,
        built: &BuiltView,
        claim: &Claim<'_>,
        options: &MountOptions<'_>,
        open_own: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<ViewRecord, Failure> {
        let path = self.paths.mounts().join(&built.name);
        if mount::is_mounted(&path).unwrap_or(false) {
            // Left by a worker that died before it wrote the record.
            unmount_view(&self.paths, &built.name, &path)?;
        }
        let own_mount = (options.guarded != self.paths.guarded()).then(|| options.guarded.to_owned());
        let arriving: Vec<Arriving> = options.free.iter().flatten().cloned().collect();
        // Under the lock: nobody else opens a file by them before they are guarded, or takes them away.
        let mounted = open_own().and_then(|()| view::mount(&self.paths, built, options, &path));
        let backing = mounted.inspect_err(|_| {
            own_mount
                .iter()
                .for_each(|own| remove_own_mount(&self.paths, own));
            arriving
                .iter()
                .for_each(|part| _ = remove_unused_mount(&self.paths, &part.mount));
        })?;
        let backing = backing.map(|backing| backing.name().to_owned());
        let layers = built.layers().iter().map(|key| LayerPair {
            layer: key.layer,
            index: key.index,
        });
        Ok(ViewRecord {
            name: built.name.clone(),
            path,
            reference: claim.reference.to_owned(),
            manifest: claim.manifest,
            layers: layers.collect(),
            holders: Vec::new(),
            images: Vec::new(),
            unused_since_ms: None,
            is_spoiled: false,
            completion: None,
            uses: Vec::new(),
            // A recording's stays as it is.
            narrow: options
                .read_ahead_kib
                .and(backing.clone())
                .filter(|_| own_mount.is_none()),
            backing,
            was_shared: false,
            was_prefilled: false,
            prefilled: PrefillNote::default(),
            narrowed: 1,
            own_mount,
            arriving,
        })
    }

    /// Adds a holder to a view of the table. Gives where it is.
    fn join(
        &self,
        table: &mut BTreeMap<String, ViewRecord>,
        name: &str,
        claim: Claim<'_>,
        read_ahead_kib: Option<u32>,
    ) -> Result<PathBuf, Failure> {
        let not_there = || Failure::new(FailureKind::NotFound, format!("no view {name} is mounted"));
        let opened = match &claim.holder {
            Holder::Directory { path } => {
                let opened = self.open_target(table, path);
                Some(opened.inspect_err(|_| self.settle(table))?)
            }
            _ => None,
        };
        let record = table.get_mut(name).ok_or_else(not_there)?;
        if record.is_spoiled {
            let message = format!(
                "the metadata of view {name} could not be written; stop what runs on it, and see whether the disk is sound"
            );
            return Err(Failure::new(FailureKind::Host, message));
        }
        let path = record.path.clone();
        if record.unused_since_ms.take().is_some() {
            // It is this holder's from now on.
            claim.reference.clone_into(&mut record.reference);
            record.manifest = claim.manifest;
            record.was_shared = true;
            if read_ahead_kib == Some(0) {
                record.narrow_again();
            }
        }
        if !record.holders.contains(&claim.holder) {
            record.was_shared |= record.is_held();
            record.holders.push(claim.holder.clone());
        }
        record.note_image(&claim.holder, claim.reference, claim.manifest);
        record.completion = claim.completion.or(record.completion);
        if !record.uses.contains(&claim.by) {
            record.uses.push(claim.by);
        }
        if let Err(failure) = self.write(record) {
            record.holders.retain(|other| !same(other, &claim.holder));
            self.settle(table);
            return Err(failure);
        }
        // Under the lock: a sweep takes a directory for gone where nothing is mounted.
        if let Holder::Directory { path: target } = &claim.holder
            && let Some(opened) = &opened
            && let Err(error) = bind_view(&path, opened.as_fd(), target, claim.allowed)
        {
            record.holders.retain(|other| !same(other, &claim.holder));
            let _ = self.write(record);
            self.settle(table);
            let doing = format!("mount the view on {}", target.display());
            return Err(Failure::host(doing, error));
        }
        Ok(path)
    }

    /// Whether others use a view or did since it was mounted, and whether it reads nothing ahead while a service starts;
    /// `None` if it is not mounted.
    pub fn look(&self, name: &str) -> Option<(bool, bool)> {
        let table = self.lock();
        let record = table.get(name)?;
        let is_shared = record.was_shared || record.holders.len() > 1;
        Some((is_shared, record.narrow.is_some()))
    }

    /// How often a view's read-ahead was made small.
    pub fn times_narrowed(&self, name: &str) -> u64 {
        self.lock().get(name).map_or(0, |record| record.narrowed)
    }

    /// The parts of a view's start-up pages that may still be coming: where it reaches them, and which they are.
    pub fn arriving(&self, name: &str) -> Vec<(PathBuf, Arc<PageSet>)> {
        let table = self.lock();
        let parts = table.get(name).into_iter().flat_map(|record| &record.arriving);
        let coming = parts.filter(|part| !part.over);
        coming
            .filter_map(|part| Some((part.mount.clone(), part.pages.clone()?)))
            .collect()
    }

    /// A part of a view's start-up pages is there: `unguard` takes the guard off the mount by which it reaches them.
    /// Whether it came off, now or before.
    pub fn arrived(&self, name: &str, mount: &Path, unguard: impl FnOnce(&Path) -> bool) -> bool {
        let mut table = self.lock();
        let Some(record) = table.get_mut(name) else {
            return false;
        };
        let Some(part) = record.arriving.iter_mut().find(|part| part.mount == mount) else {
            return false;
        };
        if part.over {
            return true;
        }
        part.over = unguard(mount);
        part.pages = None;
        let is_over = part.over;
        // Written once. If the note is lost, the next keeper guards the parts again, which only costs time.
        if record.arriving.iter().all(|part| part.over) {
            let _ = self.write(record);
        }
        is_over
    }

    /// Lets a view read ahead again, unless its read-ahead was made small again since the time of that number.
    pub fn widen(&self, name: &str, kib: u32, time: u64) {
        let mut table = self.lock();
        let record = table.get_mut(name).filter(|record| record.narrowed == time);
        let Some(record) = record else { return };
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

    /// Takes a holder off. Views without a holder become idle, or are unmounted.
    ///
    /// # Errors
    /// When nobody of that name holds a view, or unmounting fails.
    pub fn release(&self, view: Option<&str>, holder: &Holder) -> Result<(), Failure> {
        let mut table = self.lock();
        let mut found = false;
        let mut failed = None;
        for record in table
            .values_mut()
            .filter(|record| view.is_none_or(|name| record.name == name))
        {
            let before = record.holders.clone();
            record.holders.retain(|other| !same(other, holder));
            if record.holders.len() != before.len() {
                found = true;
                if let Err(failure) = self.write(record) {
                    // The next worker would have it so; the next request releases it then.
                    record.holders = before;
                    failed = Some(failure);
                }
            }
        }
        self.settle(&mut table);
        if let Some(failure) = failed {
            return Err(failure);
        }
        if found {
            return Ok(());
        }
        Err(Failure::new(
            FailureKind::NotFound,
            format!("{} holds no view", describe(holder)),
        ))
    }

    /// Whether a command was killed whose container serves on, on this view.
    fn is_outlived(&self, holder: &Holder) -> bool {
        match holder {
            Holder::Process { pid, start_time, .. } => {
                xebec_container::may_have_orphan(self.paths.run(), *pid, *start_time)
            }
            _ => false,
        }
    }

    /// Takes holders off that are gone: processes that have ended, directories where nothing is mounted.
    pub fn sweep(&self) {
        let mut table = self.lock();
        for record in table.values_mut() {
            let before = record.holders.len();
            record
                .holders
                .retain(|holder| is_alive(holder) || self.is_outlived(holder));
            if record.holders.len() != before {
                let _ = self.write(record);
            }
        }
        self.settle(&mut table);
        for entry in fs::read_dir(self.paths.arriving_mounts())
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            let mut arriving = table.values().flat_map(|record| &record.arriving);
            if !arriving.any(|part| part.mount == path) {
                remove_unused_mount(&self.paths, &path);
            }
        }
    }

    /// Unmounts everything.
    pub fn clear(&self) {
        let mut table = self.lock();
        for record in table.values_mut() {
            for holder in std::mem::take(&mut record.holders) {
                if let Holder::Directory { path } = holder {
                    self.clear_directory(record, &path);
                }
            }
        }
        table.retain(|_, record| !self.take_down(record));
    }

    /// A copy of the table, with views that linger.
    pub fn list(&self) -> Vec<ViewRecord> {
        self.lock().values().cloned().collect()
    }

    /// The views that have a holder.
    pub fn held(&self) -> Vec<ViewRecord> {
        let table = self.lock();
        table.values().filter(|view| view.is_held()).cloned().collect()
    }

    /// Whether nobody uses any.
    pub fn are_unused(&self) -> bool {
        !self.lock().values().any(ViewRecord::is_held)
    }
}

fn is_alive(holder: &Holder) -> bool {
    match holder {
        Holder::Directory { path } => mount::is_mounted(path).unwrap_or(true),
        Holder::Process { pid, start_time, .. } => process::start_time(*pid) == Some(*start_time),
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
