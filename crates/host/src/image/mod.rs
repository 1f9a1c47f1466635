//! From a reference to layers that can be mounted: the image is resolved, and for each layer an index is found
//! that the policy admits.
//!
//! * [`record`]: what was found is written down, so that the next start asks the registry for the tag only.
//! * [`resolve`]: reference → manifest and configuration, from the registry or, when it is down, the record.
//! * `budget`: how much memory the indexes of images may take.
//! * [`admission`]: which layers of an image could be lazy, without making any so.
//! * `decoded`: indexes that are in memory already.
//! * [`choose`]: for each layer the first index that is admitted: one used before, one that is in the cache, the
//!   blob's own table of contents, one that the service's recording carries, the image's index artifact.
//! * `referrers`: what the registry lists beside the image, asked for once, and the configuration that comes with it.
//! * `keeping`: what is written down while a start goes on; `unsynced`: and comes to the disk after it.
//! * `turns`: of starts at the same moment one fetches what all of them lack.
//! * [`streaming`]: a layer that has none of these is read whole and indexed while it streams in.
//! * [`publish`]: indexes go to the registry as an artifact that refers to the image.

pub mod admission;
pub mod budget;
pub mod choose;
mod decoded;
pub(crate) mod keeping;
pub mod publish;
pub mod record;
pub(crate) mod referrers;
pub mod resolve;
pub mod streaming;
pub(crate) mod unsynced;

use std::sync::Arc;
use std::time::Instant;

use xebec_cache::store::{LayerKey, Store};
use xebec_format::digest::Digest;
use xebec_format::layer::LayerIndex;
use xebec_kernel::file::write_for_this_boot;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::paths::Paths;
use xebec_protocol::wire::{ImageRequest, Reply};
use xebec_trust::{Policy, Root};

use crate::artifact::{BlobRef, CONTENTS_TYPE};
use crate::clients::Clients;
use crate::image::budget::{Account, Budget};
use crate::image::choose::Choice;
use crate::image::decoded::DecodedIndexes;
use crate::image::keeping::Keeping;
use crate::image::record::{ImageRecord, KeptFor, LayerRecord, Records};
use crate::image::referrers::Referrers;
use crate::image::resolve::FoundImage;
use crate::image::unsynced::Unsynced;

/// Largest section of content digests that is fetched: two million files.
const MAX_CONTENTS: u64 = 64 << 20;

/// How long content digests may take: what they save must be worth it.
const CONTENTS_TIME: std::time::Duration = std::time::Duration::from_secs(3);

/// Where progress and notices go. Called from any thread.
pub type Report = Arc<dyn Fn(Reply) + Send + Sync>;

/// The images of one installation.
#[derive(Clone)]
pub struct Images {
    pub(crate) paths: Paths,
    pub(crate) store: Arc<Store>,
    pub(crate) clients: Arc<Clients>,
    pub(crate) records: Records,
    decoded: Arc<DecodedIndexes>,
    budget: Arc<Budget>,
    pub(crate) unsynced: Unsynced,
}

/// A layer with the index by which it is used.
#[derive(Clone)]
pub struct PreparedLayer {
    /// Which layer, which index.
    pub key: LayerKey,
    /// The index.
    pub index: Arc<LayerIndex>,
    /// What its admission rests on.
    pub root: Root,
    /// Whether it had to be read whole just now.
    pub read_whole: bool,
    /// The index's content digests where they are at hand, else empty.
    pub contents: Arc<Vec<u8>>,
    /// By which it is counted that the index is held.
    _account: Arc<Account>,
}

impl PreparedLayer {
    fn new(
        key: LayerKey,
        index: impl Into<Arc<LayerIndex>>,
        root: Root,
        read_whole: bool,
        account: &Arc<Account>,
    ) -> Self {
        Self {
            key,
            index: index.into(),
            root,
            read_whole,
            contents: Arc::default(),
            _account: account.clone(),
        }
    }
}

/// An image whose layers all have an admitted index.
pub struct PreparedImage {
    /// The image.
    pub found: FoundImage,
    /// Its layers, bottom to top.
    pub layers: Vec<PreparedLayer>,
    /// How long resolving took, how long finding the recording and beginning to fetch it, and how long finding (or
    /// making) the indexes.
    pub stages_ms: Vec<(&'static str, f64)>,
    /// Its record is being written.
    keeping: Keeping,
}

impl PreparedImage {
    /// The image, its layers, and what [`Choice::prepare`] is writing down of it.
    pub(crate) fn new(
        found: FoundImage,
        layers: Vec<PreparedLayer>,
        keeping: Keeping,
        stages_ms: Vec<(&'static str, f64)>,
    ) -> Self {
        Self {
            found,
            layers,
            stages_ms,
            keeping,
        }
    }

    /// Waits until its record is written, by which it is found again without its registry.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn written(&mut self) -> Result<(), Failure> {
        std::mem::take(&mut self.keeping).end().await
    }
}

impl Images {
    /// The images of the installation at `paths`.
    ///
    /// # Errors
    /// When the store cannot be opened.
    pub fn open(paths: &Paths) -> Result<Self, Failure> {
        Ok(Self {
            paths: paths.clone(),
            store: Arc::new(Store::open(&paths.layers())?),
            clients: Arc::new(Clients::new(paths)),
            records: Records::new(paths.images()),
            decoded: Arc::default(),
            budget: Arc::default(),
            unsynced: Unsynced::default(),
        })
    }

    /// The blob cache.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The same, but registries are asked with logins of pulls that are under way.
    pub(crate) fn trying_logins(&self) -> Self {
        Self {
            clients: Arc::new(self.clients.trying()),
            ..self.clone()
        }
    }

    /// The registry clients.
    pub fn clients(&self) -> &Arc<Clients> {
        &self.clients
    }

    /// What is known of images.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The policy, read anew: a key taken out of `trust.toml` stops counting at once.
    ///
    /// # Errors
    /// When `trust.toml` cannot be used.
    pub fn policy(&self) -> Result<Policy, Failure> {
        Policy::load(&self.paths.trust()).map_err(|error| Failure::new(FailureKind::Trust, error))
    }

    /// Resolves an image and finds an admitted index for each of its layers.
    ///
    /// # Errors
    /// When it cannot be resolved, when an index is refused, and with `require_lazy` when a layer has none.
    pub async fn prepare(
        &self,
        request: &ImageRequest,
        require_lazy: bool,
        report: &Report,
    ) -> Result<PreparedImage, Failure> {
        let start = Instant::now();
        let found = self.resolve(request, report).await?;
        let resolved = Instant::now();
        let client = self.clients.get(request.docker_config.as_deref())?;
        let referrers = Referrers::by_type(client, found.reference.repository(), found.manifest_digest);
        let choice = Choice::new(self, request, &found, &referrers)?;
        let (layers, keeping) = choice.prepare(require_lazy, report).await?;
        let stages_ms = vec![
            ("resolve", (resolved - start).as_secs_f64() * 1e3),
            ("find", 0.0),
            ("index", resolved.elapsed().as_secs_f64() * 1e3),
        ];
        Ok(PreparedImage::new(found, layers, keeping, stages_ms))
    }

    /// Gets a layer's content digests, from the cache or the image's repository. They are only of use for sharing
    /// files, so what goes wrong here is no failure.
    pub(crate) async fn fetch_contents(
        &self,
        request: &ImageRequest,
        found: &FoundImage,
        layer: &mut PreparedLayer,
    ) {
        let Some(section) = layer.index.contents.clone() else {
            return;
        };
        let path = self.store.directory().join(layer.key.folder()).join("contents");
        if let Ok(bytes) = std::fs::read(&path)
            && Digest::of(&bytes) == section.digest
        {
            layer.contents = Arc::new(bytes);
            return;
        }
        if found.offline {
            return;
        }
        let Ok(client) = self.clients.get(request.docker_config.as_deref()) else {
            return;
        };
        let client = client.hasty(CONTENTS_TIME);
        let descriptor = BlobRef {
            digest: section.digest,
            size: section.size,
        }
        .descriptor(CONTENTS_TYPE);
        if let Ok(bytes) = client
            .blob(found.reference.repository(), &descriptor, MAX_CONTENTS)
            .await
        {
            let _ = write_for_this_boot(&path, &bytes);
            layer.contents = Arc::new(bytes.to_vec());
        }
    }

    /// What is to be kept of an image, beside what is known of it already ([`Records::put`]).
    pub(crate) fn record_of(found: &FoundImage, layers: Vec<LayerRecord>, kept_for: KeptFor) -> ImageRecord {
        let reference = found.reference.to_string();
        let index = found.image_index.as_ref();
        ImageRecord {
            indexes: index
                .map(|(digest, _)| (reference.clone(), *digest))
                .into_iter()
                .collect(),
            platforms: found.platform.iter().cloned().collect(),
            references: [reference].into(),
            manifest_digest: found.manifest_digest,
            media_type: found.media_type.clone(),
            manifest: String::from_utf8_lossy(&found.manifest_bytes).into_owned(),
            config: String::from_utf8_lossy(&found.config_bytes).into_owned(),
            layers,
            last_used: seconds_since_1970(),
            pinned: false,
            kept_for: Some(kept_for),
            user: found.user.clone(),
        }
    }
}

/// Now, for records.
pub fn seconds_since_1970() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs())
}
