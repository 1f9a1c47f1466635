//! Lazy layers for containerd: which layers can be, and views of them.
//!
//! A pull offers an image's layers one by one. The facts about them are found out once, for the first, and kept for the others. A
//! view shows the image's layers up to the one that a container is made on, and is held for the container's snapshot. It is mounted
//! as for `xebec run`; a view of the whole image comes with the runtime image of the image's own service.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::info;
use xebec_format::digest::Digest;
use xebec_images::admission::Admission;
use xebec_images::images::Report;
use xebec_images::inventory;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{Allowed, Holder, ImagePart, Purpose, Reply, ServiceCommand};
use xebec_recordings::prepare::ForService;
use xebec_snapshotter::containerd::owners::ContainerImage;
use xebec_snapshotter::lazy::{LayerOffer, NotLazy, Reason, Shown, Verdict};
use xebec_snapshotter::record::LazyLayer;
use xebec_snapshotter::usage::Usage;
use xebec_snapshotter::{ErrorKind, LazyImages, SnapshotError};

use super::admission_cache::{AdmissionCache, Asker};
use super::layer_services::LayerServices;
use crate::order::Order;
use xebec_engines::logins::KeptLogins;

/// How long a tag is shown another's layers of the same chain, before its registry is asked again for its own: a start asks
/// for mounts twice, and a container that fails is started over and over.
const FALLEN_BACK: Duration = Duration::from_secs(600);
/// How long finding out may take, before containerd unpacks instead.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often an image is found out about because a layer of it was evicted meanwhile.
const ADMISSIONS: usize = 3;

/// An image's name, its manifest if that is known, and a chain of layers.
pub(super) type Asked = (String, Option<String>, String);

/// The images of a daemon, for containerd.
pub(super) struct Layers {
    pub(super) services: Arc<LayerServices>,
    pub(super) admissions: AdmissionCache,
    /// Images that were not shown their own layers, but the same chain of another tag's.
    fallen_back: Mutex<HashMap<Asked, Instant>>,
    /// The logins that pulls bring, if pulls come by here.
    logins: Option<Arc<KeptLogins>>,
    /// Held while an image is read whole for a container that is asked for.
    pub(super) proving: Arc<tokio::sync::Mutex<()>>,
}

impl Layers {
    pub(super) fn of(services: Arc<LayerServices>, logins: Option<Arc<KeptLogins>>) -> Layers {
        Layers {
            services,
            admissions: AdmissionCache::default(),
            fallen_back: Mutex::default(),
            logins,
            proving: Arc::default(),
        }
    }

    /// For a while no registry is asked about this image again.
    pub(super) fn fell_back(&self, asked: Asked) {
        let mut fallen_back = self.fallen_back.lock();
        fallen_back.retain(|_, since| since.elapsed() < FALLEN_BACK);
        fallen_back.insert(asked, Instant::now());
    }

    pub(super) fn has_fallen_back(&self, asked: &Asked) -> bool {
        let fallen_back = self.fallen_back.lock();
        fallen_back
            .get(asked)
            .is_some_and(|since| since.elapsed() < FALLEN_BACK)
    }

    /// The next request finds the facts about an image out again.
    pub(super) fn forget(&self, reference: &str, manifest: Option<&str>) {
        self.admissions.forget(reference, manifest);
    }

    pub(super) async fn find(
        &self,
        asker: Asker,
        reference: &str,
        manifest: Option<&str>,
    ) -> Result<Arc<Admission>, NotLazy> {
        let is_tried = |logins: &Arc<KeptLogins>| asker == Asker::Pull && logins.are_tried(reference);
        let asker = match self.logins.as_ref().is_some_and(is_tried) {
            true => Asker::Pull,
            false => Asker::Other,
        };
        let find = async {
            // On the heap: the questions to a registry take much room, and the stack of a thread is short.
            let found = Box::pin(self.find_now(asker, reference, manifest));
            let found = tokio::time::timeout(PATIENCE, found).await;
            let late = |_| {
                let message = format!("no answer came within {} s", PATIENCE.as_secs());
                Failure::new(FailureKind::Registry, message)
            };
            let found = found.map_err(late).flatten();
            found.map_err(|failure| NotLazy {
                reason: match failure.kind {
                    FailureKind::Trust => Reason::NotTrusted,
                    FailureKind::Usage => Reason::WrongLabels,
                    _ => Reason::Unreachable,
                },
                detail: failure.to_string(),
                base: None,
            })
        };
        self.admissions.get(asker, reference, manifest, find).await
    }

    async fn find_now(
        &self,
        asker: Asker,
        reference: &str,
        manifest: Option<&str>,
    ) -> Result<Admission, Failure> {
        let services = &self.services;
        let digest = |text: &str| {
            let parsed = text.parse::<Digest>();
            parsed.map_err(|error| Failure::new(FailureKind::Usage, format!("{text:?}: {error}")))
        };
        let manifest = manifest.map(digest).transpose()?;
        let request = services.request(reference, None);
        let report = quietly();
        let command = said_later();
        let service = ForService {
            command: &command,
            bandwidths: &services.bandwidths,
        };
        let recordings = match asker {
            Asker::Pull => &services.recordings.trying_logins(),
            Asker::Other => &services.recordings,
        };
        for _ in 0..ADMISSIONS {
            let admission = recordings.admission(&request, manifest, service, &report);
            let (admission, prepared) = admission.await?;
            // From here on the image's record keeps them.
            if !services.preparation.are_there(&admission.keys).await? {
                continue;
            }
            if let Some(prepared) = prepared {
                services.load_ahead.begin(prepared);
            }
            return Ok(admission);
        }
        let message = "its layers are evicted as soon as they are known; is the cache's limit far too small?";
        Err(Failure::new(FailureKind::Host, message))
    }

    /// Refuses layers that are not trusted any more. Nobody is asked: the evidence for them is written down here. Gives where the
    /// view is that is held, if one is: a mount of another view holds that table for a while, so not a thread that others' pages
    /// come by is to wait for it.
    async fn check(&self, layer: &LazyLayer, holder: Holder) -> Result<Option<PathBuf>, Failure> {
        let manifest = layer.manifest.parse::<Digest>();
        let manifest = manifest.map_err(|error| Failure::new(FailureKind::Usage, error))?;
        let request = self.services.request(&layer.reference, None);
        let layers = usize::try_from(layer.depth).unwrap_or(usize::MAX);
        let services = self.services.clone();
        let judged = self.services.background.run(move || {
            services.images.judge_kept(&request, manifest, layers)?;
            let mut held = services.views.list().into_iter();
            let view = held.find(|view| view.holders.contains(&holder));
            Ok(view.map(|view| view.path))
        });
        judged.await?
    }

    async fn mount(&self, key: &str, layer: &LazyLayer, is_run: bool) -> Result<PathBuf, Failure> {
        let services = &self.services;
        let holder = Holder::Snapshot { key: key.to_owned() };
        // It is mounted from there, or may be.
        if let Some(path) = self.check(layer, holder.clone()).await? {
            return Ok(path);
        }
        if !services.ending.goes_on()? {
            return Err(Failure::new(FailureKind::Host, "the daemon is ending"));
        }
        let manifest = layer.manifest.parse::<Digest>();
        let manifest = manifest.map_err(|error| Failure::new(FailureKind::Usage, error))?;
        let part = ImagePart {
            manifest,
            layers: layer.depth,
        };
        let request = services.request(&layer.reference, Some(part));
        let order = Order {
            holder,
            completion: None,
            purpose: match is_run {
                true => Purpose::Service(said_later()),
                false => Purpose::Files,
            },
            allowed: Allowed::default(),
            learns: false,
        };
        let report = quietly();
        // On the heap, as for requests of commands.
        let mounted = Box::pin(services.mounts.mount(&request, true, order, &report));
        match mounted.await? {
            Reply::Mounted(mounted) => Ok(mounted.path),
            _ => Err(Failure::new(FailureKind::Host, "the daemon is ending")),
        }
    }
}

impl LazyImages for Layers {
    async fn admit(&self, offer: LayerOffer) -> Verdict {
        match self
            .find(Asker::Pull, &offer.reference, offer.manifest.as_deref())
            .await
        {
            Ok(admission) => judge(&offer, &admission),
            Err(not_lazy) => Verdict::NotLazy(not_lazy),
        }
    }

    async fn view(&self, key: &str, layer: &LazyLayer, is_run: bool) -> Result<PathBuf, SnapshotError> {
        let mounted = self.mount(key, layer, is_run).await;
        mounted.map_err(|failure| {
            let kind = match failure.kind {
                FailureKind::Registry => ErrorKind::Unavailable,
                FailureKind::NotFound | FailureKind::NotLazy | FailureKind::Trust | FailureKind::Usage => {
                    ErrorKind::FailedPrecondition
                }
                FailureKind::Integrity | FailureKind::Host => ErrorKind::Internal,
            };
            SnapshotError::new(kind, format!("{}: {failure}", layer.reference))
        })
    }

    async fn own(
        &self,
        image: &ContainerImage,
        chain: &str,
        layer: &LazyLayer,
    ) -> Result<LazyLayer, SnapshotError> {
        self.find_own(image, chain, layer).await
    }

    async fn holds_for_all(&self, chain: &str, layer: &LazyLayer) -> bool {
        self.holds(chain, layer).await
    }

    async fn release(&self, key: &str) -> Result<(), SnapshotError> {
        let failed = |failure: Failure| {
            let message = format!("the view that snapshot {key:?} was shown is not given back: {failure}");
            SnapshotError::new(ErrorKind::Internal, message)
        };
        let holder = Holder::Snapshot { key: key.to_owned() };
        let services = self.services.clone();
        let released = self.services.background.run(move || {
            let released = services.views.release(None, &holder);
            services.cleanup.forget_unused();
            released
        });
        match released.await.flatten() {
            // Most snapshots hold none.
            Err(failure) if failure.kind != FailureKind::NotFound => Err(failed(failure)),
            _ => Ok(()),
        }
    }

    fn held(&self) -> Vec<String> {
        let views = self.services.views.list().into_iter();
        let holders = views.flat_map(|view| view.holders);
        let keys = holders.filter_map(|holder| match holder {
            Holder::Snapshot { key } => Some(key),
            _ => None,
        });
        keys.collect()
    }

    fn usage(&self, layer: &LazyLayer) -> Usage {
        let images = &self.services.images;
        let store = images.store();
        let manifest = layer.manifest.parse().ok();
        let record = manifest.and_then(|manifest| images.records().get(manifest));
        let layers = record.map_or_else(Vec::new, |record| record.layers);
        let own = layers
            .iter()
            .filter(|known| known.layer.to_string() == layer.layer);
        let folders = own.map(|own| store.directory().join(own.key().folder()));
        folders.fold(Usage::default(), |sum, folder| Usage {
            bytes: sum.bytes + inventory::disk_bytes(&folder),
            inodes: sum.inodes + inodes(&folder),
        })
    }

    async fn let_go(&self, shown: Shown) -> bool {
        // The next pull of one of them asks again, and records it again.
        self.admissions.forget_manifests(&shown.gone);
        // Of others a pull may be about to make the next snapshot.
        let found = self.admissions.manifests();
        let pulled = shown.pulled.iter().filter_map(|manifest| manifest.parse().ok());
        let stays: HashSet<Digest> = pulled.chain(found.iter().flatten().copied()).collect();
        let removed_images = self.services.removed_images.clone();
        let left = self
            .services
            .background
            .run(move || removed_images.let_go(&shown, found.as_ref()));
        let is_done = left.await.unwrap_or(false);
        self.admissions.forget_others(&stays);
        is_done
    }
}

/// How many inodes a layer's folder takes: its own, and its files'.
fn inodes(folder: &Path) -> u64 {
    std::fs::read_dir(folder).map_or(0, |files| 1 + files.count() as u64)
}

/// Compares a client's facts about a layer with those of its image.
fn judge(offer: &LayerOffer, admission: &Admission) -> Verdict {
    let not_lazy = |reason, detail: String, base| {
        let not_lazy = NotLazy { reason, detail, base };
        Verdict::NotLazy(not_lazy)
    };
    let depth = usize::try_from(offer.depth).unwrap_or(usize::MAX);
    let (Some(layers), manifest) = (admission.layers.get(..depth), admission.manifest) else {
        let detail = format!(
            "the image has {} layers, and this would be number {depth}",
            admission.layers.len()
        );
        return not_lazy(Reason::WrongLabels, detail, None);
    };
    let is_it = layers.last().is_some_and(|layer| {
        layer.digest.to_string() == offer.layer && layer.chain.to_string() == offer.chain
    });
    if !is_it {
        let detail = format!("layer {depth} of manifest {manifest} is another one");
        return not_lazy(Reason::WrongLabels, detail, None);
    }
    let below = layers.split_last().map_or(&[][..], |(_, below)| below);
    if below
        .last()
        .map_or_else(String::new, |below| below.chain.to_string())
        != offer.parent
    {
        let detail = format!(
            "layer {depth} of manifest {manifest} does not lie on {:?}",
            offer.parent
        );
        return not_lazy(Reason::WrongLabels, detail, None);
    }
    let are_lazy = below.iter().all(|layer| layer.not_lazy.is_none());
    let base = are_lazy.then(|| manifest.to_string());
    match layers.iter().find_map(|layer| layer.not_lazy.as_ref()) {
        None => Verdict::Lazy {
            manifest: manifest.to_string(),
            is_whole: depth == admission.layers.len(),
        },
        Some(refused) if refused.is_refused => not_lazy(Reason::NotTrusted, refused.reason.clone(), base),
        Some(missing) => {
            let detail = format!(
                "{}. `xebec index --push {}` makes it lazy, on every host",
                missing.reason, offer.reference
            );
            not_lazy(Reason::NoIndex, detail, base)
        }
    }
}

/// containerd names the command once it has a root for it.
fn said_later() -> ServiceCommand {
    ServiceCommand {
        is_said_later: true,
        ..ServiceCommand::default()
    }
}

/// containerd takes no messages before the answer, so notices go to the log.
pub(super) fn quietly() -> Report {
    Arc::new(|reply| {
        if let Reply::Notice { text } = reply {
            info!("{text}");
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use xebec_images::admission::AdmittedLayer;
    use xebec_images::choose::NotChosen;

    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    /// An image of layers that are lazy, refused (`r…`) or without index (`m…`).
    fn image(layers: &[&str]) -> Admission {
        let layers = layers.iter().map(|name| AdmittedLayer {
            digest: digest(name),
            chain: digest(&format!("up to {name}")),
            not_lazy: match name.as_bytes().first() {
                Some(b'r') => Some(true),
                Some(b'm') => Some(false),
                _ => None,
            }
            .map(|is_refused| NotChosen {
                is_refused,
                reason: "because".to_owned(),
            }),
        });
        Admission {
            manifest: digest("manifest"),
            layers: layers.collect(),
            keys: Vec::new(),
        }
    }

    /// Of a layer on one by this name, if it is not empty.
    fn offer(layer: &str, depth: u32, below: &str) -> LayerOffer {
        LayerOffer {
            reference: "registry.example.com/app:1".to_owned(),
            manifest: None,
            layer: digest(layer).to_string(),
            depth,
            chain: digest(&format!("up to {layer}")).to_string(),
            layers: Vec::new(),
            below: None,
            parent: match below {
                "" => String::new(),
                below => digest(&format!("up to {below}")).to_string(),
            },
        }
    }

    fn reason(offer: &LayerOffer, image: &Admission) -> Option<Reason> {
        match judge(offer, image) {
            Verdict::Lazy { manifest, is_whole } => {
                assert_eq!(manifest, digest("manifest").to_string());
                assert_eq!(is_whole, usize::try_from(offer.depth) == Ok(image.layers.len()));
                None
            }
            Verdict::NotLazy(not_lazy) => Some(not_lazy.reason),
        }
    }

    #[test]
    fn what_the_labels_say_must_be_what_the_image_says() {
        let image = image(&["a", "b", "m", "a"]);
        assert_eq!(reason(&offer("a", 1, ""), &image), None);
        assert_eq!(reason(&offer("b", 2, "a"), &image), None);
        for (layer, depth, below) in [
            ("b", 1, ""),
            ("a", 2, "a"),
            ("c", 2, "a"),
            ("a", 5, "a"),
            ("a", 0, ""),
            ("b", 2, "other"),
            ("b", 2, ""),
            ("a", 1, "a"),
        ] {
            let wrong = reason(&offer(layer, depth, below), &image);
            assert_eq!(
                wrong,
                Some(Reason::WrongLabels),
                "{layer} as number {depth} on {below:?}"
            );
        }
        let elsewhere = LayerOffer {
            chain: digest("up to another").to_string(),
            ..offer("b", 2, "a")
        };
        assert_eq!(reason(&elsewhere, &image), Some(Reason::WrongLabels));
    }

    #[test]
    fn a_layer_is_as_lazy_as_those_below() {
        assert_eq!(reason(&offer("m", 1, ""), &image(&["m"])), Some(Reason::NoIndex));
        assert_eq!(
            reason(&offer("b", 2, "r"), &image(&["r", "b"])),
            Some(Reason::NotTrusted)
        );
        assert_eq!(reason(&offer("a", 1, ""), &image(&["a", "m"])), None);
        // The layers below it may be lazy all the same.
        let on = |depth| offer("m", depth, ["", "a", "r"][depth as usize - 1]);
        let base = |layers: &[&str], depth| match judge(&on(depth), &image(layers)) {
            Verdict::NotLazy(not_lazy) => not_lazy.base.is_some(),
            Verdict::Lazy { .. } => false,
        };
        assert!(base(&["a", "m"], 2));
        assert!(!base(&["a", "r", "m"], 3));
    }
}
