//! Layer indexes that travel in the zone of the recording by which a service is started: on a host that does not know the
//! image they come by the request that brings its pages, and no index artifact is asked for.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use tracing::{debug, warn};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{CarriedIndex, PageRun, Recording, ZoneRange, ranges, wanted};
use xebec_oci::Descriptor;
use xebec_trust::Record;

use super::{Choice, Outcome};
use crate::failure::Failure;
use crate::image::PreparedLayer;
use crate::image::turns::Turn;
use crate::runtime_image::carry::MAX_CARRIED;
use crate::runtime_image::find::FoundRecording;
use crate::runtime_image::kept::Evidence;
use crate::runtime_image::zone::{ZoneSource, ZoneStream};

/// How long a start waits for another to bring what both need. One that succeeds takes seconds at most.
const TURN: Duration = Duration::from_secs(30);

/// Indexes that came with a recording, and what vouches for them: what vouches for the recording, which names them.
#[derive(Default)]
pub(super) struct CarriedIndexes {
    evidence: Evidence,
    /// By layer; with its bytes unless the cache has them.
    indexes: HashMap<Digest, (LayerKey, Option<Bytes>)>,
}

impl Choice<'_> {
    /// Begins to fetch what the start by a recording needs, if the zone carries indexes of layers of which this host has
    /// none that it may use. Gives the rest of the answer, in which the pages follow; and the turn, if another start might
    /// do the same meanwhile.
    pub(in crate::image) async fn begin(
        &mut self,
        found: &FoundRecording,
        source: &ZoneSource,
    ) -> (Option<Turn>, Option<ZoneStream>) {
        self.carried.evidence = found.evidence.clone();
        if found.evidence.listed.is_none() && found.evidence.signed.is_none() {
            // That this host made the recording says nothing of the indexes by which it did.
            return (None, None);
        }
        // In this order: who has just brought the indexes has the turn until it is known which pages are on their way.
        let is_unknown = !self.unknown_indexes(found).is_empty();
        let name = (found.name, self.found.reference.to_string());
        if !is_unknown && !self.images.turns.is_taken(&name) {
            return (None, None);
        }
        // Who has waited that long does it, too, rather than fail after all the others did.
        let turn = tokio::time::timeout(TURN, self.images.turns.take(name))
            .await
            .ok();
        let unknown = self.unknown_indexes(found);
        if unknown.is_empty() {
            return (None, None);
        }
        let open = self.begin_to_fetch(found, source, unknown).await;
        (turn, open)
    }

    /// Layers that the recording's zones carry indexes of, of which this host has none. Takes those that it has, and may not
    /// use yet.
    fn unknown_indexes(&mut self, found: &FoundRecording) -> Vec<LayerKey> {
        let store = &self.images.store;
        let recording = &found.recording;
        let mut unknown: Vec<LayerKey> = Vec::new();
        let carried: HashSet<u16> = recording.indexes.iter().map(|index| index.layer).collect();
        for (number, layer) in (0u16..).zip(&recording.layers) {
            let key = LayerKey::from(layer);
            // One that it names and does not carry it does not vouch for.
            if !carried.contains(&number) {
                continue;
            }
            if matches!(self.choose_from_store(key.layer), Ok(Some(_))) {
                continue;
            }
            if store.index_bytes(key).is_ok() {
                self.carried.indexes.insert(key.layer, (key, None));
            } else {
                unknown.push(key);
            }
        }
        unknown
    }

    async fn begin_to_fetch(
        &mut self,
        found: &FoundRecording,
        source: &ZoneSource,
        unknown: Vec<LayerKey>,
    ) -> Option<ZoneStream> {
        let recording = &found.recording;
        let pages = self.missing_pages(found, &unknown);
        let missing = of_one_zone(recording, &unknown, &pages);
        let zone = missing.first()?.1.zone;
        let begin = missing.first()?.1.offset;
        let end = missing.iter().map(|(_, carried)| carried.end()).max()?;
        if end - begin > MAX_CARRIED {
            return None;
        }
        // The first pages come in the same answer if they are near, else in one of their own at the same time.
        let bridge = source.bridge();
        let first = ranges(&recording.segments, &pages, bridge).into_iter().next();
        let is_near = |range: &ZoneRange| {
            let gap = range.bytes.start.checked_sub(end);
            range.zone == zone && gap.is_some_and(|gap| gap <= bridge)
        };
        let (asked, apart) = match first {
            Some(range) if is_near(&range) => (begin..range.bytes.end, None),
            other => (begin..end, other),
        };
        let apart = async {
            let range = apart?;
            source.open(range.zone, range.bytes).await.ok()
        };
        let (opened, apart) = tokio::join!(source.open(zone, asked), apart);
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(problem) => {
                warn!("{problem}");
                return apart;
            }
        };
        for (key, carried) in missing {
            match stream.piece(&(carried.offset..carried.end())).await {
                Ok(Some(bytes)) if Digest::of(&bytes) == key.index => {
                    self.carried.indexes.insert(key.layer, (key, Some(bytes)));
                }
                Ok(Some(_)) => warn!(
                    "{}: the zone carries another index than its recording names",
                    found.name
                ),
                Ok(None) => break,
                Err(problem) => {
                    warn!("{problem}");
                    return apart;
                }
            }
        }
        apart.or(Some(stream))
    }

    /// The segments with pages of the service that are missing: all of those of layers whose index is `unknown`.
    fn missing_pages(&self, found: &FoundRecording, unknown: &[LayerKey]) -> Vec<usize> {
        let layers = found.recording.layers.iter().map(LayerKey::from);
        let known = layers.map(|key| match unknown.contains(&key) {
            true => None,
            false => self.images.store.look(key).ok(),
        });
        let known: Vec<_> = known.collect();
        wanted(&found.recording, &found.service, |run: &PageRun| {
            let layer = known.get(usize::from(run.layer)).and_then(Option::as_ref);
            layer.is_none_or(|layer| !layer.presence().missing(run.first..run.end()).is_empty())
        })
    }

    /// The index of a layer that came with the recording, if there is one.
    pub(super) async fn take_carried(
        &self,
        number: usize,
        descriptor: &Descriptor,
    ) -> Result<Option<Outcome>, Failure> {
        let Some((key, bytes)) = self.carried.indexes.get(&descriptor.digest) else {
            return Ok(None);
        };
        let (encoded, _held) = match bytes {
            Some(bytes) => (bytes.clone(), None),
            None => match self.kept_index(*key).await {
                Ok(Some((bytes, held))) => (bytes, Some(held)),
                Ok(None) => return Ok(None),
                Err(reason) => return Ok(Some(Outcome::Missing(reason))),
            },
        };
        let index = match self.decode_new(number, &encoded).await {
            Ok(index) => index,
            Err(reason) => return Ok(Some(Outcome::Missing(reason))),
        };
        let Evidence { listed, signed, .. } = self.carried.evidence.clone();
        let learn = move |record: &mut Record| {
            signed.into_iter().for_each(|signing| record.add_signing(signing));
            listed.into_iter().for_each(|listing| record.add_listing(listing));
        };
        Ok(Some(match self.admit(*key, encoded, learn).await? {
            Err(refusal) => Outcome::Refused(refusal),
            Ok(root) => {
                debug!(layer = number, "its index came with the recording");
                Outcome::Chosen(Box::new(PreparedLayer::new(
                    *key,
                    index,
                    root,
                    false,
                    &self.account,
                )))
            }
        }))
    }
}

/// The places of indexes of `unknown` layers in one zone, ascending: in the one that has most of them, of equals the one
/// that the first missing pages are in. The rest is had from the index artifact.
fn of_one_zone(
    recording: &Recording,
    unknown: &[LayerKey],
    pages: &[usize],
) -> Vec<(LayerKey, CarriedIndex)> {
    let first = pages.first().and_then(|number| recording.segments.get(*number));
    let key = |index: &CarriedIndex| {
        let layer = recording.layers.get(usize::from(index.layer))?;
        Some(LayerKey::from(layer)).filter(|key| unknown.contains(key))
    };
    let of = |zone: u16| -> Vec<(LayerKey, CarriedIndex)> {
        let there = recording.indexes.iter().filter(|index| index.zone == zone);
        there.filter_map(|index| Some((key(index)?, *index))).collect()
    };
    let is_first = |zone: u16| first.is_some_and(|segment| segment.zone == zone);
    let zones = (0..recording.zones.len() as u16).map(|zone| (of(zone), is_first(zone)));
    let best = zones.max_by_key(|(indexes, is_first)| (indexes.len(), *is_first));
    let mut best = best.map(|(indexes, _)| indexes).unwrap_or_default();
    best.sort_by_key(|(_, index)| index.offset);
    best
}
