//! For each layer, the first index that the policy admits.

use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use tokio::sync::OnceCell;
use tracing::{debug, warn};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::LayerIndex;
use xebec_index::toc::{Blob, Supplied, TableOfContents};
use xebec_oci::media_type::ACCEPT_IMAGE;
use xebec_oci::{Client, ClientError, Descriptor};

use crate::artifact::{ARTIFACT_TYPE, Artifact, INDEX_TYPE, LayerBlobs, MAX_INDEX};
use crate::facts;
use crate::failure::{Failure, FailureKind};
use crate::image::resolve::{FoundImage, registry_failure};
use crate::image::{Images, PreparedLayer, Report};
use crate::lazy;
use crate::origin::{self, Origin};
use crate::protocol::{ImageRequest, Reply};
use crate::trust::{self, Binding, Listing, Policy, Record, Refusal, RepositoryName, Root, Roots, Signing};

/// Index artifacts of one image that are looked at. Anyone who may push can attach any number; who wants to hide a
/// good one behind many can, but that costs laziness, never truth.
const MAX_ARTIFACTS: usize = 32;

/// What choosing needs to know of one image.
struct Choice<'a> {
    images: &'a Images,
    client: Client,
    found: &'a FoundImage,
    request: &'a ImageRequest,
    policy: Policy,
    repository: RepositoryName,
    artifacts: OnceCell<Vec<FoundArtifact>>,
}

/// An index artifact of the image and what vouches for it.
struct FoundArtifact {
    artifact: Artifact,
    binding: Option<Binding>,
    signing: Option<Signing>,
    listed: bool,
}

/// How a layer's index was found, or what stands in the way.
enum Outcome {
    Chosen(Box<PreparedLayer>),
    /// There is an index, but it is not trusted enough.
    Refused(Refusal),
    /// There is none.
    Missing(String),
    /// There is one, but no index makes this layer lazy.
    Whole(String),
}

impl Images {
    /// What is found for each layer without reading any whole; the reason where there is nothing.
    pub(crate) async fn find_indexes(
        &self,
        request: &ImageRequest,
        found: &FoundImage,
    ) -> Result<Vec<Result<PreparedLayer, String>>, Failure> {
        let choice = Choice::new(self, request, found)?;
        let outcomes = try_join_all((0..found.layers.len()).map(|number| choice.choose(number))).await?;
        Ok(outcomes
            .into_iter()
            .map(|outcome| match outcome {
                Outcome::Chosen(layer) => Ok(*layer),
                Outcome::Refused(refusal) => Err(refusal.to_string()),
                Outcome::Missing(reason) | Outcome::Whole(reason) => Err(reason),
            })
            .collect())
    }

    /// Finds an admitted index for each layer; layers without one are read whole, unless laziness is required.
    pub(crate) async fn choose(
        &self,
        request: &ImageRequest,
        found: &FoundImage,
        require_lazy: bool,
        report: &Report,
    ) -> Result<Vec<PreparedLayer>, Failure> {
        let choice = Choice::new(self, request, found)?;
        let outcomes = try_join_all((0..found.layers.len()).map(|number| choice.choose(number))).await?;
        let mut layers = Vec::with_capacity(outcomes.len());
        for (number, outcome) in outcomes.into_iter().enumerate() {
            let layer = match outcome {
                Outcome::Chosen(layer) => *layer,
                Outcome::Refused(refusal) if require_lazy => {
                    return Err(Failure::new(FailureKind::Trust, refusal));
                }
                Outcome::Refused(refusal) => {
                    // It names the ways itself.
                    choice.read_whole(number, &refusal.to_string(), report).await?
                }
                Outcome::Missing(reason) => {
                    let reason = choice.with_remedy(&reason);
                    if require_lazy {
                        return Err(choice.not_lazy(number, &reason));
                    }
                    choice.read_whole(number, &reason, report).await?
                }
                Outcome::Whole(reason) if require_lazy => return Err(choice.not_lazy(number, &reason)),
                Outcome::Whole(reason) => choice.read_whole(number, &reason, report).await?,
            };
            layers.push(layer);
        }
        Ok(layers)
    }
}

impl<'a> Choice<'a> {
    fn new(images: &'a Images, request: &'a ImageRequest, found: &'a FoundImage) -> Result<Self, Failure> {
        let repository = RepositoryName::new(found.reference.registry(), found.reference.repository().name())
            .map_err(|error| Failure::new(FailureKind::Usage, error))?;
        Ok(Self {
            images,
            client: images.clients.get(request.docker_config.as_deref())?,
            found,
            request,
            policy: images.policy()?,
            repository,
            artifacts: OnceCell::new(),
        })
    }

    /// The index of a layer; one whose spans are too large to be fetched for a reader only if all of it is local.
    async fn choose(&self, number: usize) -> Result<Outcome, Failure> {
        let outcome = self.choose_any(number).await?;
        if let Outcome::Chosen(layer) = &outcome
            && let Some(reason) = lazy::why_not(&layer.index)
            && !self.images.store.is_complete(layer.key)
        {
            return Ok(Outcome::Whole(reason));
        }
        Ok(outcome)
    }

    async fn choose_any(&self, number: usize) -> Result<Outcome, Failure> {
        let Some(descriptor) = self.found.layers.get(number) else {
            return Ok(Outcome::Missing("there is no such layer".to_owned()));
        };
        let mut refusal = None;
        let mut listed = None;
        match self.choose_from_store(descriptor.digest) {
            // There may be a stronger one than what the registry listed once; an attacker could have been first.
            Ok(Some((key, root))) if !root.holds_for_digest() && self.could_be_stronger(descriptor) => {
                listed = Some((key, root));
            }
            Ok(Some((key, root))) => match self.open_from_store(number, key, root) {
                Ok(layer) => return Ok(Outcome::Chosen(Box::new(layer))),
                Err(error) => warn!("{error}"),
            },
            Ok(None) => {}
            Err(error) => refusal = Some(error),
        }
        match self.read_table_of_contents(number, descriptor).await {
            Ok(Some(layer)) => return Ok(Outcome::Chosen(Box::new(layer))),
            Ok(None) => {}
            Err(reason) => {
                warn!(layer = %descriptor.digest, "its table of contents cannot be used: {reason}")
            }
        }
        let artifacts = match self.found.offline {
            true => &[][..],
            false => match self.artifacts.get_or_try_init(|| self.find_artifacts()).await {
                Ok(artifacts) => artifacts,
                // What is known already is the better answer than that the registry does not speak.
                Err(failure) if refusal.is_some() || listed.is_some() => {
                    warn!("{failure}");
                    &[][..]
                }
                Err(failure) => return Err(failure),
            },
        };
        for found in artifacts {
            let Some(blobs) = found.artifact.layers.get(&descriptor.digest) else {
                continue;
            };
            match self.take_from_artifact(number, descriptor, found, blobs).await? {
                Outcome::Chosen(layer) => return Ok(Outcome::Chosen(layer)),
                Outcome::Refused(error) => refusal = Some(error),
                Outcome::Missing(reason) | Outcome::Whole(reason) => {
                    warn!(layer = %descriptor.digest, "{reason}");
                }
            }
        }
        if let Some((key, root)) = listed {
            match self.open_from_store(number, key, root) {
                Ok(layer) => return Ok(Outcome::Chosen(Box::new(layer))),
                // Damaged in the cache: it is made anew, as one that is missing.
                Err(error) => warn!("{error}"),
            }
        }
        Ok(match refusal {
            Some(refusal) => Outcome::Refused(refusal),
            None => Outcome::Missing("no index of it was found".to_owned()),
        })
    }

    /// Whether something on this image's way may vouch for another index than the one that was only listed.
    fn could_be_stronger(&self, descriptor: &Descriptor) -> bool {
        if self.found.offline {
            return false;
        }
        let binds = self.found.image_index.as_ref().is_some_and(|(_, bytes)| {
            matches!(
                trust::bound_artifact(bytes, self.found.manifest_digest),
                Ok(Some(_))
            )
        });
        binds || lazy::has_table_of_contents(descriptor) || self.policy.has_keys_for(&self.repository)
    }

    /// The strongest admitted index of the cache; of equals the one that this image was used with before, so that
    /// its data is found again.
    fn choose_from_store(&self, layer: Digest) -> Result<Option<(LayerKey, Root)>, Refusal> {
        let used = self.images.records.get(self.found.manifest_digest);
        let used: Vec<LayerKey> = used
            .iter()
            .flat_map(|record| &record.layers)
            .map(|layer| layer.key())
            .collect();
        let mut keys = self.images.store.indexes_of(layer);
        keys.sort_by_key(|key| !used.contains(key));
        let roots = keys.into_iter().map(|key| (key, self.roots(key)));
        match self.policy.choose(&self.repository, self.found.naming(), roots) {
            Ok(chosen) => Ok(Some(chosen)),
            Err(None) => Ok(None),
            Err(Some(refusal)) => Err(refusal),
        }
    }

    /// What vouches for an index, for this image.
    fn roots(&self, key: LayerKey) -> Roots {
        facts::load(&self.images.store, key).roots(&self.repository, &self.found.path())
    }

    fn open_from_store(&self, number: usize, key: LayerKey, root: Root) -> Result<PreparedLayer, Failure> {
        let bytes = self.images.store.index_bytes(key)?;
        let index = self
            .decode(number, &bytes)
            .map_err(|reason| Failure::new(FailureKind::Integrity, reason))?;
        // Where its windows are as well, should `origins.json` have been lost.
        self.remember_origin(key, index.windows.as_ref())?;
        Ok(PreparedLayer {
            key,
            index: Arc::new(index),
            root,
            read_whole: false,
            contents: Arc::default(),
        })
    }

    /// Decodes an index and checks that it speaks of this image's layer.
    fn decode(&self, number: usize, bytes: &[u8]) -> Result<LayerIndex, String> {
        let index =
            LayerIndex::decode(bytes).map_err(|error| format!("the index cannot be used: {error}"))?;
        let (descriptor, diff_id) = match (self.found.layers.get(number), self.found.diff_ids.get(number)) {
            (Some(descriptor), Some(diff_id)) => (descriptor, diff_id),
            _ => return Err("there is no such layer".to_owned()),
        };
        let fits = index.layer == descriptor.digest
            && index.layer_size == descriptor.size
            && index.diff_id.is_none_or(|found| found == *diff_id);
        if !fits {
            return Err(format!(
                "the index found for layer {} speaks of another layer",
                descriptor.digest
            ));
        }
        Ok(index)
    }

    async fn read_table_of_contents(
        &self,
        number: usize,
        descriptor: &Descriptor,
    ) -> Result<Option<PreparedLayer>, String> {
        let repository = self.found.reference.repository();
        let blob = Blob {
            digest: descriptor.digest,
            size: descriptor.size,
        };
        let found =
            TableOfContents::detect(blob, &descriptor.annotations).map_err(|error| error.to_string())?;
        let Some(mut toc) = found else { return Ok(None) };
        let index = loop {
            let fetched = self
                .client
                .blob_range(repository, &descriptor.digest, toc.wanted())
                .await;
            let bytes = fetched.map_err(|error| error.to_string())?;
            match toc.supply(&bytes).map_err(|error| error.to_string())? {
                Supplied::More(more) => toc = more,
                Supplied::Index(index) => break *index,
            }
        };
        let encoded = index.encode();
        let key = LayerKey {
            layer: descriptor.digest,
            index: Digest::of(&encoded),
        };
        let binding = Binding::TableOfContents {
            manifest: self.found.manifest_digest,
        };
        let root = self.admit(key, encoded, |record| record.add_binding(binding));
        let root = root
            .await
            .map_err(|failure| failure.to_string())?
            .map_err(|refusal| refusal.to_string())?;
        self.remember_origin(key, None)
            .map_err(|failure| failure.to_string())?;
        debug!(layer = number, "used by its own table of contents");
        let layer = PreparedLayer {
            key,
            index: Arc::new(index),
            root,
            read_whole: false,
            contents: Arc::default(),
        };
        Ok(Some(layer))
    }

    /// Writes new facts about an index down and judges it. The layer's folder is made if need be.
    ///
    /// Each file is synced, which takes a millisecond or more; in threads of their own the layers of an image do
    /// that together, and one commit of the file system's journal serves several.
    async fn admit(
        &self,
        key: LayerKey,
        encoded: impl AsRef<[u8]> + Send + 'static,
        learn: impl FnOnce(&mut Record) + Send + 'static,
    ) -> Result<Result<Root, Refusal>, Failure> {
        let store = self.images.store.clone();
        let kept = tokio::task::spawn_blocking(move || {
            store.add(key, encoded.as_ref())?;
            facts::update(&store, key, learn)
        });
        kept.await
            .map_err(|error| Failure::host(format!("keep the index of {key}"), error))??;
        Ok(self
            .policy
            .admits(&self.repository, self.found.naming(), &self.roots(key)))
    }

    async fn take_from_artifact(
        &self,
        number: usize,
        descriptor: &Descriptor,
        found: &FoundArtifact,
        blobs: &LayerBlobs,
    ) -> Result<Outcome, Failure> {
        if blobs.index.size > MAX_INDEX {
            let reason = format!(
                "its index claims {} bytes, more than {MAX_INDEX}",
                blobs.index.size
            );
            return Ok(Outcome::Missing(reason));
        }
        let repository = self.found.reference.repository();
        let wanted = blobs.index.descriptor(INDEX_TYPE);
        let encoded = match self.client.blob(repository, &wanted, MAX_INDEX).await {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Outcome::Missing(format!("its index cannot be fetched: {error}"))),
        };
        let index = match self.decode(number, &encoded) {
            Ok(index) => index,
            Err(reason) => return Ok(Outcome::Missing(reason)),
        };
        let listed = |section: &Option<xebec_format::layer::Section>,
                      blob: &Option<crate::artifact::BlobRef>| {
            section.as_ref().map(|s| s.digest) == blob.as_ref().map(|b| b.digest) || section.is_none()
        };
        if !listed(&index.windows, &blobs.windows) {
            return Ok(Outcome::Missing(
                "the artifact lacks the windows that its index names".to_owned(),
            ));
        }
        let key = LayerKey {
            layer: descriptor.digest,
            index: blobs.index.digest,
        };
        let (binding, signing) = (found.binding.clone(), found.signing.clone());
        let listing = found
            .listed
            .then(|| Listing::new(&self.repository, self.found.manifest_digest));
        let learn = move |record: &mut Record| {
            binding
                .into_iter()
                .for_each(|binding| record.add_binding(binding));
            signing
                .into_iter()
                .for_each(|signing| record.add_signing(signing));
            listing
                .into_iter()
                .for_each(|listing| record.add_listing(listing));
        };
        match self.admit(key, encoded, learn).await? {
            Err(refusal) => Ok(Outcome::Refused(refusal)),
            Ok(root) => {
                self.remember_origin(key, index.windows.as_ref())?;
                let layer = PreparedLayer {
                    key,
                    index: Arc::new(index),
                    root,
                    read_whole: false,
                    contents: Arc::default(),
                };
                Ok(Outcome::Chosen(Box::new(layer)))
            }
        }
    }

    /// The image's index artifacts: what an image index on the way binds, then what the registry lists.
    async fn find_artifacts(&self) -> Result<Vec<FoundArtifact>, Failure> {
        let mut artifacts = Vec::new();
        let repository = self.found.reference.repository();
        if let Some((_, bytes)) = &self.found.image_index
            && let Ok(Some((bound, binding))) = trust::bound_artifact(bytes, self.found.manifest_digest)
        {
            artifacts.extend(self.fetch_artifact(bound.artifact, Some(binding), false).await);
        }
        if !artifacts.is_empty() {
            // What the name itself covers is the strongest there is: nothing the registry lists could add to it.
            return Ok(artifacts);
        }
        let referrers = self
            .client
            .referrers(repository, &self.found.manifest_digest, Some(ARTIFACT_TYPE))
            .await;
        let referrers = match referrers {
            Ok(referrers) => referrers,
            Err(ClientError::NotFound { .. }) => Vec::new(),
            // To take a registry's bad moment for "there is none" would make this start silently slow.
            Err(error) => return Err(registry_failure(&error)),
        };
        let listed = referrers.into_iter().take(MAX_ARTIFACTS);
        let listed =
            listed.map(|referrer| async move { self.fetch_artifact(referrer.digest, None, true).await });
        artifacts.extend(join_all(listed).await.into_iter().flatten());
        // Signed ones before others: of two indexes that are both admitted, the better vouched for is taken.
        artifacts.sort_by_key(|found| found.signing.is_none());
        Ok(artifacts)
    }

    async fn fetch_artifact(
        &self,
        digest: Digest,
        binding: Option<Binding>,
        listed: bool,
    ) -> Option<FoundArtifact> {
        let repository = self.found.reference.repository();
        let fetched = self
            .client
            .manifest(repository, &digest.to_string(), ACCEPT_IMAGE)
            .await;
        let manifest = fetched
            .inspect_err(|error| warn!("index artifact {digest}: {error}"))
            .ok()?
            .parse()
            .inspect_err(|error| warn!("index artifact {digest}: {error}"))
            .ok()?;
        let artifact = Artifact::decode(manifest, self.found.manifest_digest)
            .inspect_err(|error| warn!("index artifact {digest}: {error}"))
            .ok()?;
        let signing = self.signing(digest).await;
        Some(FoundArtifact {
            artifact,
            binding,
            signing,
            listed,
        })
    }

    /// The signature of an artifact by a key that counts here. Not asked for when no key does.
    async fn signing(&self, artifact: Digest) -> Option<Signing> {
        if !self.policy.has_keys_for(&self.repository) {
            return None;
        }
        let repository = self.found.reference.repository();
        crate::signatures::find(&self.client, repository, &self.repository, &self.policy, artifact).await
    }

    fn remember_origin(
        &self,
        key: LayerKey,
        windows: Option<&xebec_format::layer::Section>,
    ) -> Result<(), Failure> {
        let directory = self.images.store.directory().join(key.folder());
        let known = origin::read(&directory);
        let repository = self.found.reference.repository().to_string();
        let same = known.iter().find(|origin| origin.repository == repository);
        let origin = Origin {
            repository,
            docker_config: self.request.docker_config.clone(),
            windows: windows
                .map(|section| section.digest)
                .or(same.and_then(|origin| origin.windows)),
            windows_size: windows.map_or(same.map_or(0, |origin| origin.windows_size), |section| {
                section.size
            }),
        };
        origin::remember(&directory, origin).map_err(|error| Failure::host("write origins.json", error))
    }

    async fn read_whole(
        &self,
        number: usize,
        reason: &str,
        report: &Report,
    ) -> Result<PreparedLayer, Failure> {
        let descriptor = self
            .found
            .layers
            .get(number)
            .ok_or_else(|| self.not_lazy(number, reason))?;
        let text = format!(
            "layer {} of {} ({}) is read whole now, so this start is not lazy: {reason}",
            number + 1,
            self.found.layers.len(),
            descriptor.digest.short()
        );
        report(Reply::Notice { text });
        let key = self
            .images
            .index_layer(&self.client, self.found, number, true, report)
            .await
            .map_err(|failure| Failure {
                message: format!("layer {}: {failure}", descriptor.digest),
                ..failure
            })?;
        self.remember_origin(key, None)?;
        let bytes = self.images.store.index_bytes(key)?;
        let index = self
            .decode(number, &bytes)
            .map_err(|reason| Failure::new(FailureKind::Integrity, reason))?;
        Ok(PreparedLayer {
            key,
            index: Arc::new(index),
            root: Root::Proven,
            read_whole: true,
            contents: Arc::default(),
        })
    }

    /// What makes the next start lazy, if only the index is missing.
    fn with_remedy(&self, reason: &str) -> String {
        format!(
            "{reason}. `xebec index --push {}` makes the next start lazy, on every host",
            self.found.reference
        )
    }

    fn not_lazy(&self, number: usize, reason: &str) -> Failure {
        let message = format!(
            "{} cannot start lazily: layer {}: {reason}. Leave --require-lazy out to read it whole first",
            self.found.reference,
            number + 1
        );
        Failure::new(FailureKind::NotLazy, message)
    }
}
