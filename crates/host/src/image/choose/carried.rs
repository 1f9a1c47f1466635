//! Layer indexes that travel in the zone of the recording by which a service is started: on a host that does not know the
//! image they come by the request that brings its pages, and no index artifact is asked for.

use std::collections::HashMap;

use bytes::Bytes;
use tracing::{debug, warn};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{CarriedIndex, PageRun, ranges, wanted};
use xebec_oci::Descriptor;

use super::{Choice, Outcome};
use crate::failure::Failure;
use crate::image::PreparedLayer;
use crate::runtime_image::carry::MAX_CARRIED;
use crate::runtime_image::find::FoundRecording;
use crate::runtime_image::kept::Evidence;
use crate::runtime_image::zone::{ZoneSource, ZoneStream};
use crate::trust::Record;

/// Indexes that came with a recording, and what vouches for them: what vouches for the recording, which names them.
#[derive(Default)]
pub(super) struct CarriedIndexes {
    evidence: Evidence,
    /// By layer; with its bytes unless the cache has them.
    indexes: HashMap<Digest, (LayerKey, Option<Bytes>)>,
}

impl Choice<'_> {
    /// Begins to fetch what the start by a recording needs, if the zone carries indexes of layers of which this host has
    /// none that it may use. Gives the rest of the answer, in which the pages follow.
    pub(in crate::image) async fn begin(
        &mut self,
        found: &FoundRecording,
        source: &ZoneSource,
    ) -> Option<ZoneStream> {
        self.carried.evidence = found.evidence.clone();
        if found.evidence.listed.is_none() && found.evidence.signed.is_none() {
            // That this host made the recording says nothing of the indexes by which it did.
            return None;
        }
        let store = &self.images.store;
        let recording = &found.recording;
        let mut missing: Vec<(LayerKey, CarriedIndex)> = Vec::new();
        for layer in &recording.layers {
            let key = LayerKey::from(layer);
            let Some(carried) = layer.carried else { continue };
            if matches!(self.choose_from_store(key.layer), Ok(Some(_))) {
                continue;
            }
            if store.index_bytes(key).is_ok() {
                self.carried.indexes.insert(key.layer, (key, None));
            } else {
                missing.push((key, carried));
            }
        }
        // Of one zone, by one request; the rest by the index artifact.
        let zone = missing.first()?.1.zone;
        missing.retain(|(_, carried)| carried.zone == zone);
        missing.sort_by_key(|(_, carried)| carried.offset);
        let begin = missing.first()?.1.offset;
        let end = missing.iter().map(|(_, carried)| carried.end()).max()?;
        if end - begin > MAX_CARRIED {
            return None;
        }
        let unknown: Vec<LayerKey> = missing.iter().map(|(key, _)| *key).collect();
        let end = self.end_of_first_pages(found, zone, &unknown, end, source.bridge());
        let opened = source.open(zone, begin..end).await;
        let mut stream = opened.inspect_err(|problem| warn!("{problem}")).ok()?;
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
                    return None;
                }
            }
        }
        Some(stream)
    }

    /// How far to ask at once in a zone whose indexes end at `end`: to the end of the first missing pages after them, if
    /// these are near. Of layers whose index is `unknown` all pages are missing.
    fn end_of_first_pages(
        &self,
        found: &FoundRecording,
        zone: u16,
        unknown: &[LayerKey],
        end: u64,
        bridge: u64,
    ) -> u64 {
        let recording = &found.recording;
        let layers = recording.layers.iter().map(LayerKey::from);
        let known = layers.map(|key| (!unknown.contains(&key)).then(|| self.images.store.look(key).ok()));
        let known: Vec<_> = known.map(Option::flatten).collect();
        let is_missing = |run: &PageRun| {
            let layer = known.get(usize::from(run.layer)).and_then(Option::as_ref);
            layer.is_none_or(|layer| !layer.presence().missing(run.first..run.end()).is_empty())
        };
        let pages = wanted(recording, &found.service, is_missing);
        let first = ranges(&recording.segments, &pages, bridge)
            .into_iter()
            .find(|range| range.zone == zone && range.bytes.start >= end);
        match first {
            Some(range) if range.bytes.start - end <= bridge => range.bytes.end,
            _ => end,
        }
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
        let encoded = match bytes {
            Some(bytes) => bytes.clone(),
            None => Bytes::from(self.images.store.index_bytes(*key)?),
        };
        let index = match self.decode(number, &encoded) {
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
                self.remember_origin(*key, index.windows.as_ref())?;
                debug!(layer = number, "its index came with the recording");
                Outcome::Chosen(Box::new(PreparedLayer::new(*key, index, root, false)))
            }
        }))
    }
}
