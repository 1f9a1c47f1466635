//! How large the cache may be, and how it is brought down to that: a plan first, then step by step.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use tracing::{info, warn};
use xebec_cache::evict::{Action, Step, plan};
use xebec_cache::policy::{LeastRecentlyUsed, Resident};
use xebec_cache::room::MakeRoom;
use xebec_cache::store::LayerKey;
use xebec_fill::fill_service::FillService;
use xebec_format::PAGE_SIZE;
use xebec_images::images::Images;
use xebec_images::inventory;
use xebec_protocol::wire::{CacheReport, Collected, CollectedLayer};
use xebec_views::views::Views;

use crate::building::Building;
use crate::eviction::Eviction;

/// On a full disk, room for more than the write that met it: the next ones come at once.
const ROOM_AHEAD: u64 = 32 << 20;

/// The services and the limit that a quota needs.
pub(crate) struct QuotaParts {
    pub(crate) images: Images,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) eviction: Arc<Eviction>,
    pub(crate) building: Arc<Building>,
    /// How many bytes the cache may have, if it is limited.
    pub(crate) limit: Option<u64>,
}

/// How large the cache may be.
pub(crate) struct Quota {
    parts: QuotaParts,
    /// One collection at a time.
    collecting: Mutex<()>,
    /// Whether it was said already that the limit cannot be kept.
    is_over: Mutex<bool>,
}

impl Quota {
    /// The quota of a cache. Writers that meet a full disk have it make room.
    pub(crate) fn new(parts: QuotaParts) -> Arc<Self> {
        let this = Arc::new(Self {
            parts,
            collecting: Mutex::default(),
            is_over: Mutex::default(),
        });
        let evictor = Evictor {
            quota: Arc::downgrade(&this),
        };
        this.parts.images.store().room().set(Arc::new(evictor));
        this
    }

    /// Nobody else removes layers until the guard goes.
    pub(crate) fn collect_alone(&self) -> MutexGuard<'_, ()> {
        self.collecting.lock()
    }

    fn is_over(&self) -> MutexGuard<'_, bool> {
        self.is_over.lock()
    }

    /// The layers in the cache, their users, and which of them may be evicted.
    pub(crate) fn survey(&self) -> CacheReport {
        inventory::survey(&self.parts.images, self.parts.limit, |key| {
            let request = || {
                let is_reserved = self.parts.fills.usage().is_reserved(key);
                is_reserved.then(|| "a request under way".to_owned())
            };
            self.parts.eviction.user_of(key).or_else(request)
        })
    }

    /// Brings the cache down to `target` bytes, or to its limit if none is given, and removes leftovers that nothing refers to.
    /// With `dry_run` it only tells what would go.
    pub(crate) fn collect(&self, target: Option<u64>, dry_run: bool) -> Collected {
        let target = target.or(self.parts.limit);
        let _one = self.collect_alone();
        let leftovers = self.remove_leftovers(dry_run);
        let report = self.survey();
        let excess = target.map_or(0, |target| report.used_bytes.saturating_sub(target));
        let mut collected = self.free(&report, excess, dry_run);
        collected.leftover_bytes = leftovers;
        collected.limit = target;
        collected
    }

    /// Evicts about `excess` bytes; where a layer turns out to be in use, the next one goes instead.
    fn free(&self, report: &CacheReport, excess: u64, dry_run: bool) -> Collected {
        let mut collected = Collected {
            used_before: report.used_bytes,
            used_after: report.used_bytes,
            dry_run,
            ..Collected::default()
        };
        let mut left = excess;
        let mut tried = BTreeSet::new();
        while left > 0 {
            let may_go = report.layers.iter().filter(|layer| layer.is_evictable());
            let residents: Vec<Resident> = may_go
                .map(|layer| layer.resident())
                .filter(|resident| !tried.contains(&resident.key))
                .collect();
            let steps = plan(&LeastRecentlyUsed, residents, left, |key| self.held(key));
            if steps.is_empty() {
                break;
            }
            for step in steps {
                tried.insert(step.key);
                let kept = match dry_run {
                    true => None,
                    false => self.parts.eviction.evict(&step).err(),
                };
                if kept.is_none() {
                    left = left.saturating_sub(step.bytes);
                    collected.used_after = collected.used_after.saturating_sub(step.bytes);
                }
                collected.layers.push(describe(&step, kept));
            }
        }
        collected.missing_bytes = left;
        collected
    }

    /// The size of the pages that layers lack, in bytes.
    pub(crate) fn missing_bytes(&self, keys: &[LayerKey]) -> u64 {
        let missing = keys.iter().filter_map(|key| {
            let layer = self.parts.images.store().look(*key).ok()?;
            Some((layer.presence().pages() - layer.presence().present()) * PAGE_SIZE)
        });
        missing.sum()
    }

    fn held(&self, key: LayerKey) -> Vec<std::ops::Range<u64>> {
        let Ok(layer) = self.parts.images.store().look(key) else {
            return Vec::new();
        };
        layer.presence().held(0..layer.presence().pages())
    }

    /// Keeps the limit, with room for `extra` bytes that are about to come.
    pub(crate) fn enforce(&self, extra: u64) {
        let Some(limit) = self.parts.limit else {
            return;
        };
        if inventory::used_bytes(&self.parts.images).saturating_add(extra) <= limit {
            *self.is_over() = false;
            return;
        }
        let collected = self.collect(Some(limit.saturating_sub(extra)), false);
        if collected.used_before != collected.used_after {
            info!(
                "the cache was brought from {} to {} bytes; the limit is {limit}",
                collected.used_before, collected.used_after
            );
        }
        let mut is_over = self.is_over();
        if collected.used_after > limit && !*is_over {
            warn!(
                "the cache has {} bytes, the limit is {limit}, and all other layers are in use or pinned: nothing more can be evicted",
                collected.used_after
            );
        }
        *is_over = collected.used_after > limit;
    }

    /// Removes metadata of views that are not mounted, as a boot leaves it. Gives the bytes.
    pub(crate) fn remove_strange_metadata(&self, dry_run: bool) -> u64 {
        let mut bytes = 0;
        // While a view is being built its metadata is there and it is in no table.
        if let Some(_none) = self.parts.building.stop_if_none() {
            let views = self.parts.views.list();
            for entry in fs::read_dir(self.parts.images.paths().views())
                .into_iter()
                .flatten()
                .flatten()
            {
                let path = entry.path();
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let is_metadata = path.extension().is_some_and(|extension| extension == "erofs");
                if is_metadata && !views.iter().any(|view| view.name == name) {
                    bytes += entry.metadata().map_or(0, |metadata| metadata.blocks() * 512);
                    if !dry_run {
                        let _ = fs::remove_file(&path);
                    }
                }
            }
        }
        bytes
    }

    /// The same, and records of images that have neither a name nor a layer any more.
    fn remove_leftovers(&self, dry_run: bool) -> u64 {
        let bytes = self.remove_strange_metadata(dry_run);
        for record in self.parts.images.records().list() {
            let has_layers = record
                .layers
                .iter()
                .any(|layer| self.parts.images.store().contains(layer.key()));
            if record.references.is_empty() && !record.pinned && !has_layers && !dry_run {
                let _ = self.parts.images.records().remove(record.manifest_digest);
            }
        }
        bytes
    }
}

fn describe(step: &Step, kept: Option<String>) -> CollectedLayer {
    let pages = match &step.action {
        Action::Remove => None,
        Action::Punch(runs) => Some(runs.iter().map(|run| run.end - run.start).sum()),
    };
    CollectedLayer {
        layer: step.key.layer,
        index: step.key.index,
        bytes: pages.map_or(step.bytes, |pages: u64| pages * PAGE_SIZE),
        punched_pages: pages,
        kept,
    }
}

/// Makes room on a full disk by evicting.
struct Evictor {
    quota: Weak<Quota>,
}

impl MakeRoom for Evictor {
    fn make_room(&self, bytes: u64) -> bool {
        let Some(quota) = self.quota.upgrade() else {
            return false;
        };
        let _one = quota.collect_alone();
        // Another writer may have made room while this one waited.
        if free_bytes(&quota.parts.images).is_some_and(|free| free > bytes.saturating_mul(2)) {
            return true;
        }
        let leftovers = quota.remove_leftovers(false);
        let collected = quota.free(&quota.survey(), bytes.saturating_add(ROOM_AHEAD), false);
        let freed = leftovers + collected.used_before - collected.used_after;
        // A caller that gets no room says so.
        if freed > 0 {
            warn!("the disk is full: {freed} bytes of the cache were evicted");
        }
        freed > 0
    }
}

fn free_bytes(images: &Images) -> Option<u64> {
    let free = rustix::fs::statvfs(images.paths().layers()).ok()?;
    Some(free.f_bavail * free.f_frsize)
}
