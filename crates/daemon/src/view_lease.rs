//! From an image that is prepared to a view of it that is held: the one that is mounted, or a new one.

use std::path::Path;
use std::sync::Arc;

use xebec_cache::store::LayerKey;
use xebec_fill::fill_service::{FillService, ServedLayer};
use xebec_fill::page_set::PageSet;
use xebec_fill::usage::Reservation;
use xebec_images::prepare::PreparedImage;
use xebec_images::prepared_layer::PreparedLayer;
use xebec_images::thread_priority::RaisedPriority;
use xebec_kernel::mount;
use xebec_protocol::failure::Failure;
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::Purpose;
use xebec_views::bypass_devices::Arriving;
use xebec_views::recording_admission::TrustGuard;
use xebec_views::sharing::SharedContents;
use xebec_views::view::{self, MountOptions, ViewOptions};
use xebec_views::view_tree::ViewTree;
use xebec_views::views::{Claim, ViewKey, Views};

use crate::corrections::Corrections;
use crate::durability::Durability;
use crate::held_view::HeldView;
use crate::loaded_images::Loading;
use crate::order::Order;

/// The request for which a view is held.
struct Lease<'a> {
    prepared: &'a PreparedImage,
    order: &'a Order,
    loading: Option<&'a Loading>,
    guard: &'a TrustGuard,
    reference: String,
    is_recording: bool,
    /// Tells this view from others of the same layers.
    salt: Option<String>,
    read_ahead_kib: Option<u32>,
}

impl Lease<'_> {
    fn claim(&self) -> Claim<'_> {
        Claim {
            reference: &self.reference,
            manifest: self.prepared.found.manifest_digest,
            holder: self.order.holder.clone(),
            completion: self.order.completion,
            by: self.guard.by().clone(),
            allowed: self.order.allowed,
        }
    }
}

/// Holds views of images.
pub(crate) struct ViewLeases {
    pub(crate) paths: Paths,
    pub(crate) fills: Arc<FillService>,
    pub(crate) views: Arc<Views>,
    pub(crate) shared: Arc<SharedContents>,
    pub(crate) corrections: Arc<Corrections>,
    pub(crate) durability: Arc<Durability>,
}

impl ViewLeases {
    /// Holds a view of an image: one that is mounted if it has all that the image's view would have now, else a new one.
    pub(crate) fn hold(
        &self,
        prepared: &PreparedImage,
        order: &Order,
        loading: Option<&Loading>,
        guard: &TrustGuard,
    ) -> Result<HeldView, Failure> {
        let is_recording = order.purpose == Purpose::Recording;
        let none = PageSet::default();
        let free_pages = loading.map_or(&none, |loading| &loading.free);
        let lease = Lease {
            prepared,
            order,
            loading,
            guard,
            reference: prepared.found.reference.to_string(),
            is_recording,
            salt: match is_recording {
                true => Some(order.holder.to_string()),
                false => self
                    .corrections
                    .salt(prepared.layers.iter().map(|layer| layer.key)),
            },
            read_ahead_kib: (is_recording || order.learns || !free_pages.is_empty()).then_some(0),
        };
        // Before the view is built: if more contents come to be shared meanwhile, the view is another one.
        let shared = self.shared.state();
        let is_complete = |key| self.fills.is_complete(key);
        let key = ViewKey::new(
            &prepared.layers,
            free_pages,
            is_complete,
            shared,
            lease.salt.as_deref(),
        );
        if !is_recording && let Some(held) = self.hold_mounted_view(&lease, &key)? {
            return Ok(held);
        }
        self.hold_new_view(&lease, key)
    }

    /// Holds the view that is mounted for the same layers, pages and salt, if there is one.
    fn hold_mounted_view(&self, lease: &Lease<'_>, key: &ViewKey) -> Result<Option<HeldView>, Failure> {
        let Some(known) = self.views.known(key) else {
            return Ok(None);
        };
        let _reservation = self.fills.usage().reserve(known.layers().iter().copied());
        // A layer of another image may have been evicted meanwhile; then the view is built without it.
        let layers = self.serve_all(known.layers(), &lease.prepared.layers);
        if lease.order.learns {
            self.views.take_down_unused(|view| view.name == known.name);
        }
        let Ok(layers) = layers else {
            return Ok(None);
        };
        let mounted = self
            .views
            .hold_mounted(&known.name, lease.claim(), lease.read_ahead_kib)?;
        Ok(mounted.map(|path| HeldView {
            name: known.name.clone(),
            path,
            layers,
            tree: known.tree.clone(),
            was_mounted: true,
            built_ms: 0.0,
        }))
    }

    /// Builds and mounts a view, and holds it.
    fn hold_new_view(&self, lease: &Lease<'_>, key: ViewKey) -> Result<HeldView, Failure> {
        let (prepared, is_recording) = (lease.prepared, lease.is_recording);
        let parts = lease
            .loading
            .map_or_else(Vec::new, |loading| loading.parts(&self.fills));
        let options = ViewOptions {
            shared: (!is_recording).then_some(self.shared.as_ref()),
            free: &parts,
            is_complete: &|key| self.fills.is_complete(key),
            salt: lease.salt.as_deref(),
        };
        let urgent = RaisedPriority::begin();
        let (built, _reservation) = self.build_view(prepared, &options)?;
        let layers = self.serve_all(built.layers(), &prepared.layers)?;
        let paths = &self.paths;
        let recording = is_recording.then(|| paths.recording_mounts().join(&built.name));
        let arriving = self.arriving_mounts(&built.name, &parts);
        let guarded = paths.guarded();
        let own = arriving.iter().flatten().map(|part| part.mount.as_path());
        let own: Vec<&Path> = own.chain(recording.as_deref()).collect();
        let how = MountOptions {
            guarded: recording.as_deref().unwrap_or(&guarded),
            free: &arriving,
            is_complete: &|key| !is_recording && self.fills.is_complete(key),
            read_ahead_kib: lease.read_ahead_kib,
        };
        if lease.order.learns {
            self.views.take_down_unused(|view| view.name == built.name);
        }
        let held = self
            .views
            .hold(&built, lease.claim(), &how, || self.open_own_mounts(&own))?;
        drop(urgent);
        if !held.was_mounted {
            self.durability
                .note_view(built.name.clone(), built.metadata.clone());
        }
        if !is_recording {
            self.views.know(key, &built, &prepared.layers);
        }
        Ok(HeldView {
            name: built.name,
            path: held.path,
            layers,
            tree: ViewTree {
                tree: built.tree,
                devices: built.devices,
            },
            was_mounted: held.was_mounted,
            built_ms: built.milliseconds,
        })
    }

    /// `own` are the image's; a view may read files of others.
    fn serve_all(&self, keys: &[LayerKey], own: &[PreparedLayer]) -> Result<Vec<Arc<ServedLayer>>, Failure> {
        let served = keys.iter().map(|key| {
            let own = own.iter().find(|layer| layer.key == *key);
            self.fills.serve(*key, own.map(|layer| layer.index.as_ref()))
        });
        Ok(served.collect::<Result<_, _>>()?)
    }

    /// Builds a view. The layers whose files it shares stay until the reservation goes.
    fn build_view(
        &self,
        prepared: &PreparedImage,
        options: &ViewOptions<'_>,
    ) -> Result<(view::BuiltView, Reservation), Failure> {
        loop {
            let built = view::build(&self.paths, &prepared.layers, options)?;
            let own = |key: &LayerKey| prepared.layers.iter().any(|layer| layer.key == *key);
            let reservation = self.fills.usage().reserve(built.layers().iter().copied());
            // One that was evicted before it was reserved is known no more.
            if built
                .layers()
                .iter()
                .all(|key| own(key) || self.shared.knows(*key))
            {
                return Ok((built, reservation));
            }
        }
    }

    /// Mounts of the blob cache for one view: they are guarded as the usual one is, and nothing else is opened by them.
    /// Called while nobody else can make or remove them.
    fn open_own_mounts(&self, paths: &[&Path]) -> Result<(), Failure> {
        for path in paths {
            let failed = |error| Failure::host(format!("make {}", path.display()), error);
            std::fs::create_dir_all(path).map_err(failed)?;
            if !mount::is_mounted(path).unwrap_or(false) {
                mount::bind_private(&self.paths.layers(), path)
                    .map_err(|error| Failure::host("mount the cache for a view", error))?;
            }
            // Also one that a worker left that died before it had.
            self.fills
                .guard(path)
                .map_err(|error| Failure::host("guard the view's own mount", error))?;
        }
        Ok(())
    }

    /// The mounts of the blob cache by which a view reaches each part of its start-up pages. A part that is not there yet has a
    /// mount of its own, which is guarded until the part is there.
    fn arriving_mounts(&self, view: &str, parts: &[PageSet]) -> Vec<Option<Arriving>> {
        let arriving = |(number, pages): (usize, &PageSet)| {
            let is_there = self.fills.have(pages);
            (!is_there).then(|| Arriving {
                mount: self.paths.arriving_mounts().join(format!("{view}.{number}")),
                over: false,
                pages: Some(Arc::new(pages.clone())),
            })
        };
        parts.iter().enumerate().map(arriving).collect()
    }
}
