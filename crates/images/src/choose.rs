//! For each layer, the first index that the policy admits: one that this host knows (`known`), the layer's own table of
//! contents (`contents_table`), one that came with the service's recording (`offered`), one that an artifact brings
//! (`artifacts`). A layer that is here from another repository is used only if the image's own has it, too (`access`). Layers
//! that are read whole for want of an index are reported once (`whole`).

mod access;
mod artifacts;
mod choice;
mod contents_table;
mod known;
mod offered;
mod stored;
mod whole;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use tracing::warn;
use xebec_artifact::own_table::has_table_of_contents;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::{DecodeError, LayerIndex, MERGED_ENTRY};
use xebec_oci::Descriptor;
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::ImageRequest;
use xebec_trust::{Record, Refusal, Root};

use crate::background_write::BackgroundWrite;
use crate::budget::{Account, Held};
use crate::facts;
use crate::found_image::FoundImage;
use crate::images::{Images, Report};
use crate::lazy;
use crate::origin::{self, Origin};
use crate::prepared_layer::PreparedLayer;
use crate::record::{KeptFor, LayerRecord};
use crate::referrers::Referrers;
use crate::thread_priority::RaisedPriority;
pub use choice::{Choice, NotChosen};
use choice::{FoundArtifact, Outcome};

/// Layers whose indexes are looked for at the same time: as many as Docker's overlay2 can stack, so that usual images have them in as
/// many round trips as one layer takes.
const AT_ONCE: usize = 128;

impl Images {
    /// The index that is found for each layer without reading any whole; the reason where there is none.
    pub async fn find_indexes(
        &self,
        request: &ImageRequest,
        found: &FoundImage,
    ) -> Result<Vec<Result<PreparedLayer, NotChosen>>, Failure> {
        let client = self.clients.get(request.docker_config.as_deref())?;
        let (repository, manifest) = (found.reference.repository(), found.manifest_digest);
        let referrers = Referrers::by_type(client, repository, manifest);
        let choice = Choice::new(self, request, found, &referrers)?;
        let indexes = choice.without_reading().await?;
        let layers = indexes.iter().flatten().map(|layer| layer.key);
        self.synced(layers, None).await?;
        Ok(indexes)
    }
}

/// Indexes of a layer that a search has found and not chosen at once.
#[derive(Default)]
struct Search {
    /// Why an index may not be used.
    refusal: Option<Refusal>,
    /// One that only a registry's listing vouches for, to be used if there is no stronger one.
    listed: Option<(LayerKey, Root)>,
}

impl<'a> Choice<'a> {
    /// Finds an admitted index for each layer, and begins to write the image's record now. Before that, the caller of the
    /// start learns which image it is.
    pub async fn prepare(
        &self,
        require_lazy: bool,
        report: &Report,
    ) -> Result<(Vec<PreparedLayer>, BackgroundWrite), Failure> {
        self.found.tell(report);
        let layers = self.layers(require_lazy, report).await?;
        for layer in &layers {
            self.images.decoded.note(layer.key, &layer.index);
        }
        if self.found.is_part {
            return Ok((layers, BackgroundWrite::default()));
        }
        let records = layers.iter().map(|layer| LayerRecord {
            layer: layer.key.layer,
            index: layer.key.index,
            root: layer.root,
        });
        let (kept, unsynced) = (self.images.records.clone(), self.images.unsynced.clone());
        // A part of an image is what a snapshot of containerd's shows.
        let kept_for = match self.request.part {
            Some(_) => KeptFor::Containerd,
            None => KeptFor::Commands,
        };
        let record = self.found.record(records.collect(), kept_for);
        let manifest = self.found.manifest_digest;
        let keeping = BackgroundWrite::begin(move || {
            let is_synced = kept.keep(record)?;
            if !is_synced {
                unsynced.add_image(manifest);
            }
            Ok(())
        });
        Ok((layers, keeping))
    }

    /// Finds an admitted index for each layer; layers without one are read whole, unless laziness is required.
    pub(super) async fn layers(
        &self,
        require_lazy: bool,
        report: &Report,
    ) -> Result<Vec<PreparedLayer>, Failure> {
        let outcomes = self.outcomes().await?;
        let mut found: Vec<Result<PreparedLayer, String>> = Vec::with_capacity(outcomes.len());
        for (number, outcome) in outcomes.into_iter().enumerate() {
            let reason = match outcome {
                Outcome::Chosen(layer) => {
                    found.push(Ok(*layer));
                    continue;
                }
                Outcome::Refused(refusal) if require_lazy => {
                    return Err(Failure::new(FailureKind::Trust, refusal));
                }
                // It names the ways itself.
                Outcome::Refused(refusal) => refusal.to_string(),
                Outcome::Missing(reason) => self.with_remedy(&reason),
                Outcome::Whole(reason) => reason,
            };
            if require_lazy {
                return Err(self.not_lazy(number, &reason));
            }
            found.push(Err(reason));
        }
        let missing = found.iter().enumerate();
        let missing = missing.filter_map(|(number, found)| Some((number, found.as_ref().err()?.as_str())));
        self.tell_whole(missing.collect(), report);
        let mut layers: Vec<PreparedLayer> = Vec::with_capacity(found.len());
        for (number, found) in found.into_iter().enumerate() {
            let layer = match found {
                Ok(layer) => layer,
                Err(reason) => match self.read_already(number, &layers)? {
                    Some(layer) => layer,
                    None => self.read_whole(number, &reason, report).await?,
                },
            };
            layers.push(layer);
        }
        Ok(layers)
    }

    /// A layer that was read whole just now, since the image has it further below as well.
    fn read_already(&self, number: usize, below: &[PreparedLayer]) -> Result<Option<PreparedLayer>, Failure> {
        let digest = self.found.layers.get(number).map(|layer| layer.digest);
        let mut read = below.iter().filter(|layer| layer.read_whole);
        let read = read.find(|layer| Some(layer.key.layer) == digest);
        let Some(layer) = read.filter(|layer| self.check(number, &layer.index).is_ok()) else {
            return Ok(None);
        };
        self.count_again(&layer.index)?;
        Ok(Some(layer.clone()))
    }

    /// The index that is found for each layer without reading any whole; the reason where there is none.
    pub async fn without_reading(&self) -> Result<Vec<Result<PreparedLayer, NotChosen>>, Failure> {
        let not_chosen = |is_refused, reason| Err(NotChosen { is_refused, reason });
        let outcomes = self.outcomes().await?.into_iter();
        let found = outcomes.map(|outcome| match outcome {
            Outcome::Chosen(layer) => Ok(*layer),
            Outcome::Refused(refusal) => not_chosen(true, refusal.to_string()),
            Outcome::Missing(reason) | Outcome::Whole(reason) => not_chosen(false, reason),
        });
        Ok(found.collect())
    }

    /// The outcome for each layer; a layer that the image lists again has that of its first place.
    async fn outcomes(&self) -> Result<Vec<Outcome>, Failure> {
        let firsts = self.firsts();
        let distinct: Vec<usize> = (0..firsts.len())
            .filter(|number| firsts[*number] == *number)
            .collect();
        let mut found: HashMap<usize, Outcome> = HashMap::new();
        for some in distinct.chunks(AT_ONCE) {
            let outcomes = try_join_all(some.iter().map(|number| self.choose(*number))).await?;
            self.account.check()?;
            found.extend(some.iter().copied().zip(outcomes));
        }
        let mut outcomes = Vec::with_capacity(firsts.len());
        for (number, first) in firsts.into_iter().enumerate() {
            let missing = || Outcome::Missing("there is no such layer".to_owned());
            let outcome = found.get(&first).cloned().unwrap_or_else(missing);
            outcomes.push(match outcome {
                Outcome::Chosen(layer) if number != first => match self.check(number, &layer.index) {
                    Ok(()) => {
                        self.count_again(&layer.index)?;
                        Outcome::Chosen(layer)
                    }
                    Err(reason) => Outcome::Missing(reason),
                },
                outcome => outcome,
            });
        }
        Ok(outcomes)
    }

    /// For each layer, the place of the first that the manifest describes in the same way.
    fn firsts(&self) -> Vec<usize> {
        let mut known: HashMap<Digest, Vec<usize>> = HashMap::new();
        let layers = &self.found.layers;
        let first = |(number, layer): (usize, &Descriptor)| {
            let same = known.entry(layer.digest).or_default();
            let first = same.iter().find(|first| layers.get(**first) == Some(layer));
            let first = first.copied();
            if first.is_none() {
                same.push(number);
            }
            first.unwrap_or(number)
        };
        layers.iter().enumerate().map(first).collect()
    }

    /// An index is decoded once, however often its layer is in the image, but its tree is merged as often.
    fn count_again(&self, index: &LayerIndex) -> Result<(), Failure> {
        self.account.take(index.entries.len() as u64 * MERGED_ENTRY);
        self.account.check()
    }

    /// The index of a layer; one whose spans are too large to be fetched for a reader only if all of it is local.
    async fn choose(&self, number: usize) -> Result<Outcome, Failure> {
        self.account.check()?;
        let outcome = self.choose_any(number).await?;
        if let Outcome::Chosen(layer) = &outcome {
            if let Err(reason) = self.have_access(layer).await {
                return Ok(Outcome::Missing(reason));
            }
            // Where its windows are as well, should `origins.json` have been lost.
            self.remember_origin(layer.key, layer.index.windows.as_ref())?;
        }
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
        let mut search = Search::default();
        if let Some(layer) = self.search_here(number, descriptor, &mut search).await? {
            return Ok(Outcome::Chosen(layer));
        }
        for found in self.artifacts_for(&search).await? {
            let Some(blobs) = found.artifact.layers.get(&descriptor.digest) else {
                continue;
            };
            match self.take_from_artifact(number, descriptor, found, blobs).await? {
                Outcome::Chosen(layer) => return Ok(Outcome::Chosen(layer)),
                Outcome::Refused(error) => search.refusal = Some(error),
                Outcome::Missing(reason) | Outcome::Whole(reason) => {
                    warn!(layer = %descriptor.digest, "{reason}");
                }
            }
        }
        if let Some((key, root)) = search.listed {
            match self.open_from_store(number, key, root) {
                Ok(layer) => return Ok(Outcome::Chosen(Box::new(layer))),
                // Damaged in the cache: it is made anew, as one that is missing.
                Err(error) => warn!("{error}"),
            }
        }
        Ok(match search.refusal {
            Some(refusal) => Outcome::Refused(refusal),
            None => Outcome::Missing("no index of it was found".to_owned()),
        })
    }

    /// Takes an index that the registry need not be asked for: from the cache, from the blob's own table of contents, or one
    /// that was offered.
    async fn search_here(
        &self,
        number: usize,
        descriptor: &Descriptor,
        search: &mut Search,
    ) -> Result<Option<Box<PreparedLayer>>, Failure> {
        match self.choose_from_store(descriptor.digest) {
            // There may be a stronger one than what the registry listed once; an attacker could have been first.
            Ok(Some((key, root))) if !root.holds_for_digest() && self.could_be_stronger(descriptor) => {
                search.listed = Some((key, root));
            }
            Ok(Some((key, root))) => match self.open_from_store(number, key, root) {
                Ok(layer) => return Ok(Some(Box::new(layer))),
                Err(error) => warn!("{error}"),
            },
            Ok(None) => {}
            Err(error) => search.refusal = Some(error),
        }
        match self.read_table_of_contents(number, descriptor).await {
            Ok(Some(layer)) => return Ok(Some(Box::new(layer))),
            Ok(None) => {}
            Err(reason) => {
                warn!(layer = %descriptor.digest, "its table of contents cannot be used: {reason}")
            }
        }
        match self.take_offered(number, descriptor).await? {
            Some(Outcome::Chosen(layer))
                if layer.root.holds_for_digest() || !self.could_be_stronger(descriptor) =>
            {
                return Ok(Some(layer));
            }
            Some(Outcome::Chosen(layer)) => search.listed = Some((layer.key, layer.root)),
            Some(Outcome::Refused(error)) => search.refusal = Some(error),
            Some(Outcome::Missing(reason) | Outcome::Whole(reason)) => {
                warn!(layer = %descriptor.digest, "{reason}");
            }
            None => {}
        }
        Ok(None)
    }

    /// The image's index artifacts, from the registry.
    async fn artifacts_for(&self, search: &Search) -> Result<&[FoundArtifact], Failure> {
        if self.found.offline {
            return Ok(&[]);
        }
        match self.artifacts.get_or_try_init(|| self.find_artifacts()).await {
            Ok(artifacts) => Ok(artifacts),
            // A refusal or a listed index is a better answer than that the registry does not respond.
            Err(failure) if search.refusal.is_some() || search.listed.is_some() => {
                warn!("{failure}");
                Ok(&[])
            }
            Err(failure) => Err(failure),
        }
    }

    /// Whether something on this image's way may vouch for another index than the one that was only listed.
    fn could_be_stronger(&self, descriptor: &Descriptor) -> bool {
        if self.found.offline {
            return false;
        }
        let binds = self.found.image_index.as_ref().is_some_and(|(_, bytes)| {
            matches!(
                xebec_trust::bound_artifact(bytes, self.found.manifest_digest),
                Ok(Some(_))
            )
        });
        binds || has_table_of_contents(descriptor) || self.policy.has_keys_for(&self.repository)
    }

    /// Decodes an index and checks that it speaks of this image's layer.
    fn decode(&self, number: usize, bytes: &[u8]) -> Result<LayerIndex, String> {
        let index = decoded(bytes, &self.account)?;
        self.check(number, &index)?;
        Ok(index)
    }

    /// An encoded index that is here, or nothing. It counts as held until the second part goes: many may be read before one of them is
    /// decoded.
    async fn kept_index(&self, key: LayerKey) -> Result<Option<(Bytes, Held)>, String> {
        let (store, account) = (self.images.store.clone(), self.account.clone());
        let read = move || {
            let Some(size) = store.index_size(key) else {
                return Ok(None);
            };
            let held = account.hold(size).ok_or("its index is too large")?;
            let bytes = store.index_bytes(key).ok();
            Ok(bytes.map(|bytes| (Bytes::from(bytes), held)))
        };
        let read = tokio::task::spawn_blocking(read).await;
        read.map_err(|error| error.to_string())?
    }

    /// The same in a thread for that, beside those of the image's other layers.
    async fn decode_new(&self, number: usize, bytes: &Bytes) -> Result<LayerIndex, String> {
        let (bytes, account) = (bytes.clone(), self.account.clone());
        let decode = move || {
            let _urgent = RaisedPriority::begin();
            decoded(&bytes, &account)
        };
        let index = tokio::task::spawn_blocking(decode).await;
        let index = index.map_err(|error| error.to_string())??;
        self.check(number, &index)?;
        Ok(index)
    }

    /// Checks that an index speaks of this image's layer.
    fn check(&self, number: usize, index: &LayerIndex) -> Result<(), String> {
        let (descriptor, diff_id) = match (self.found.layers.get(number), self.found.diff_ids.get(number)) {
            (Some(descriptor), Some(diff_id)) => (descriptor, diff_id),
            _ => return Err("there is no such layer".to_owned()),
        };
        let fits = index.layer == descriptor.digest
            && index.layer_size == descriptor.size
            && index.diff_id.is_none_or(|found| found == *diff_id);
        if !fits {
            return Err(format!(
                "the index found for layer {} describes another layer",
                descriptor.digest
            ));
        }
        Ok(())
    }

    /// Writes new facts about an index down and judges it. The layer's folder is made if need be; it comes to the disk later
    /// ([`Images::sync`]).
    async fn admit(
        &self,
        key: LayerKey,
        encoded: impl AsRef<[u8]> + Send + 'static,
        learn: impl FnOnce(&mut Record) + Send + 'static,
    ) -> Result<Result<Root, Refusal>, Failure> {
        let (store, repository) = (self.images.store.clone(), self.repository.clone());
        let kept = tokio::task::spawn_blocking(move || {
            let is_new = store.add_soon(key, encoded.as_ref())?;
            match is_new {
                true => facts::begin(&store, key, |record| {
                    learn(record);
                    record.add_reader(&repository);
                })?,
                false => facts::update(&store, key, learn)?,
            };
            Ok::<_, Failure>(is_new)
        });
        let is_new = kept
            .await
            .map_err(|error| Failure::host(format!("keep the index of {key}"), error))??;
        if is_new {
            self.images.unsynced.add_layer(key);
        }
        Ok(self
            .policy
            .admits(&self.repository, self.found.naming(), &self.roots(key)))
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
        let key = self
            .images
            .index_layer(&self.client, self.found, number, Some(&self.account), report)
            .await
            .map_err(|failure| Failure {
                message: format!("layer {}: {failure}", descriptor.digest),
                ..failure
            })?;
        self.remember_origin(key, None)?;
        let bytes = self.images.store.index_bytes(key)?;
        let index = self
            .decode(number, &bytes)
            .map_err(|reason| Failure::new(FailureKind::Integrity, reason));
        self.account.check()?;
        Ok(PreparedLayer::new(key, index?, Root::Proven, true, &self.account))
    }

    /// The reason, and the command that makes the next start lazy, if only the index is missing.
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

/// Decodes an index as far as its image may hold the result, which then counts as held.
fn decoded(bytes: &[u8], account: &Arc<Account>) -> Result<LayerIndex, String> {
    let held = account.hold(bytes.len() as u64);
    let mut held = held.ok_or_else(|| format!("the index cannot be used: {}", DecodeError::NoRoom))?;
    let index = LayerIndex::decode_within(bytes, &mut |more| held.grow(more));
    let index = index.map_err(|error| format!("the index cannot be used: {error}"))?;
    held.keep(index.weight());
    Ok(index)
}
