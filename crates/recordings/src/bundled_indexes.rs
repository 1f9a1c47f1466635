//! The layer indexes that a recording's zone carries before its pages, so that a start on a host that has nothing of the
//! image needs no other artifact.
//!
//! They are the very indexes that the pages were read by, and the recording names their digests. So they have the
//! recording's root of trust, and a recording that is signed carries only those that this host would itself take
//! for as good as signed.

use std::collections::{BTreeSet, HashSet};

use xebec_cache::store::{LayerKey, Store};
use xebec_format::layer::{LayerIndex, Section};
use xebec_format::runtime_image::{BundledIndex, RecordedLayer, Recording, Zone};
use xebec_protocol::failure::{Failure, FailureKind};

/// Most bytes of indexes that one zone carries; the rest comes from the index artifact.
pub(crate) const MAX_CARRIED: u64 = 64 << 20;

/// The indexes that the zones of a new recording carry.
#[derive(Debug, Default)]
pub(crate) struct BundledIndexes {
    /// The bytes that its own zone begins with.
    pub front: Vec<u8>,
    /// Where they are. Zone 0 is the recording's own; those of earlier recordings count from 1.
    pub places: Vec<BundledIndex>,
}

impl BundledIndexes {
    /// The indexes in zones of earlier recordings that are used again, of those `layers` that `may` be carried.
    pub(crate) fn earlier(
        layers: &[RecordedLayer],
        earlier: &[Recording],
        reused: &[Zone],
        may: &dyn Fn(LayerKey) -> bool,
    ) -> Self {
        let mut places: Vec<BundledIndex> = Vec::new();
        for recording in earlier {
            for index in &recording.indexes {
                let named = recording.layers.get(usize::from(index.layer));
                let same = |layer: &RecordedLayer| {
                    named.is_some_and(|named| named.layer == layer.layer && named.index == layer.index)
                };
                let zone = recording.zones.get(usize::from(index.zone));
                let zone = reused.iter().position(|known| Some(known) == zone);
                let (Some(layer), Some(zone)) = (layers.iter().position(same), zone) else {
                    continue;
                };
                let place = BundledIndex {
                    layer: layer as u16,
                    zone: zone as u16 + 1,
                    ..*index
                };
                // One for a layer in a zone, whatever other recordings say.
                let is_known = |known: &BundledIndex| known.layer == place.layer && known.zone == place.zone;
                let is_allowed = layers.get(layer).is_some_and(|layer| may(layer.into()));
                if is_allowed && !places.iter().any(is_known) {
                    places.push(place);
                }
            }
        }
        Self {
            front: Vec::new(),
            places,
        }
    }

    /// The zones, counted from 1, that have the indexes of all layers that `may` be carried.
    pub(crate) fn whole(&self, layers: &[RecordedLayer], may: &dyn Fn(LayerKey) -> bool) -> HashSet<u16> {
        let wanted = |number: &u16| {
            layers
                .get(usize::from(*number))
                .is_some_and(|layer| may(layer.into()))
        };
        let wanted: Vec<u16> = (0..layers.len() as u16).filter(wanted).collect();
        let has = |zone: u16, layer: u16| {
            let there = |place: &BundledIndex| place.zone == zone && place.layer == layer;
            self.places.iter().any(there)
        };
        let zones: HashSet<u16> = self.places.iter().map(|place| place.zone).collect();
        let is_whole = |zone: &u16| wanted.iter().all(|layer| has(*zone, *layer));
        zones.into_iter().filter(is_whole).collect()
    }

    /// Lets the recording's own zone carry them, too.
    ///
    /// # Errors
    /// When an index cannot be read.
    pub(crate) fn add_own(
        &mut self,
        store: &Store,
        layers: &[RecordedLayer],
        may: &dyn Fn(LayerKey) -> bool,
    ) -> Result<(), Failure> {
        for (number, layer) in (0u16..).zip(layers) {
            if !may(layer.into()) {
                continue;
            }
            let bytes = store.index_bytes(layer.into())?;
            let (offset, length) = (self.front.len() as u64, bytes.len() as u64);
            if length > 0 && offset + length <= MAX_CARRIED {
                self.front.extend_from_slice(&bytes);
                self.places.push(BundledIndex {
                    layer: number,
                    zone: 0,
                    offset,
                    length,
                });
            }
        }
        Ok(())
    }
}

/// The blobs that the carried indexes need besides themselves: their windows, which a miss asks for in part. The
/// artifact lists them, so that its registry keeps them.
///
/// # Errors
/// When an index cannot be read.
pub(crate) fn windows(store: &Store, recording: &Recording) -> Result<Vec<(LayerKey, Section)>, Failure> {
    let mut windows = Vec::new();
    let carried: BTreeSet<u16> = recording.indexes.iter().map(|index| index.layer).collect();
    for layer in carried {
        let Some(layer) = recording.layers.get(usize::from(layer)) else {
            continue;
        };
        let key = layer.into();
        let index = LayerIndex::decode(&store.index_bytes(key)?)
            .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
        windows.extend(index.windows.map(|section| (key, section)));
    }
    Ok(windows)
}
