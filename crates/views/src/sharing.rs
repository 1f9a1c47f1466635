//! File sharing between layers: a file whose contents are already complete in another cached layer is read there.
//!
//! Only layers that this host proved take part as givers: it has itself hashed every file of theirs. A taker
//! relies on its own index (admitted by the policy) for the file's digest. So a lying index can point its
//! own image to other contents, which it could anyway, and never changes what another image reads.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

use parking_lot::Mutex;
use xebec_cache::fill::LocalContents;
use xebec_cache::layer::CachedLayer;
use xebec_cache::store::{LayerKey, Store};
use xebec_format::digest::Digest;
use xebec_format::image::{FileExtent, ImageTree};
use xebec_format::layer::{EntryKind, LayerIndex};

use xebec_images::facts;
use xebec_images::prepared_layer::PreparedLayer;

/// Where contents are that this host has hashed.
#[derive(Default)]
pub struct SharedContents {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Counts changes.
    state: u64,
    layers: HashMap<LayerKey, u64>,
    contents: HashMap<Digest, Place>,
}

#[derive(Clone, Copy)]
struct Place {
    key: LayerKey,
    data_offset: u64,
    length: u64,
}

impl SharedContents {
    /// Takes in a layer if it is complete and proven, and every page was compared. Nobody may evict it meanwhile.
    pub fn learn(&self, store: &Store, key: LayerKey) {
        let mut known = self.known.lock();
        if known.layers.contains_key(&key) {
            return;
        }
        let is_whole = |layer: CachedLayer| layer.is_complete() && !layer.has_unverified();
        if !facts::is_proven(store, key) || !store.look(key).is_ok_and(is_whole) {
            return;
        }
        let directory = store.directory().join(key.folder());
        let (Ok(bytes), Ok(digests)) = (store.index_bytes(key), fs::read(directory.join("contents"))) else {
            return;
        };
        let Ok(index) = LayerIndex::decode(&bytes) else {
            return;
        };
        if index.contents.as_ref().map(|section| section.digest) != Some(Digest::of(&digests)) {
            return;
        }
        known.state += 1;
        known.layers.insert(key, index.data_size);
        for (extent, _, digest) in whole_files(&index, &digests) {
            let place = Place {
                key,
                data_offset: extent.data_offset,
                length: extent.length,
            };
            known.contents.entry(digest).or_insert(place);
        }
    }

    /// Forgets a layer whose data is about to go.
    pub fn forget(&self, key: LayerKey) {
        let mut known = self.known.lock();
        if known.layers.remove(&key).is_none() {
            return;
        }
        known.state += 1;
        known.contents.retain(|_, place| place.key != key);
    }

    /// A number that is another one after each change.
    pub fn state(&self) -> u64 {
        self.known.lock().state
    }

    /// Whether a layer's files are read by others that are built now.
    pub fn knows(&self, key: LayerKey) -> bool {
        let known = self.known.lock();
        known.layers.contains_key(&key)
    }

    /// Whether any contents are known at all.
    pub fn is_empty(&self) -> bool {
        self.known.lock().contents.is_empty()
    }

    /// The contents of a layer that other layers have, of which this host has hashed each file. `digests` is the layer's contents
    /// section.
    pub fn local_contents(
        &self,
        store: &Store,
        key: LayerKey,
        index: &LayerIndex,
        digests: &[u8],
    ) -> LocalContents {
        let mut places: Vec<(Range<u64>, Place)> = {
            let known = self.known.lock();
            let files = whole_files(index, digests);
            let files = files.filter_map(|(extent, _, digest)| {
                let place = *known.contents.get(&digest)?;
                let is_it = place.length == extent.length && place.key != key;
                is_it.then_some((extent.data_offset..extent.data_offset + extent.length, place))
            });
            files.collect()
        };
        places.sort_unstable_by_key(|(range, _)| range.start);
        let mut numbers: HashMap<LayerKey, usize> = HashMap::new();
        let mut givers = Vec::new();
        for (_, place) in &places {
            numbers.entry(place.key).or_insert_with(|| {
                givers.push(store.data_path(place.key));
                givers.len() - 1
            });
        }
        let mut local = LocalContents::new(givers);
        for (range, place) in places {
            if let Some(giver) = numbers.get(&place.key) {
                local.add(range, *giver, place.data_offset);
            }
        }
        local
    }

    /// Points files of incomplete layers to where their contents are known; new devices are appended.
    pub fn redirect(
        &self,
        layers: &[PreparedLayer],
        tree: &mut ImageTree,
        devices: &mut Vec<(LayerKey, u64)>,
    ) {
        let known = self.known.lock();
        let mut moves: HashMap<(u16, u64), (u16, u64)> = HashMap::new();
        for (number, layer) in layers.iter().enumerate() {
            if known.layers.contains_key(&layer.key) || layer.contents.is_empty() {
                continue;
            }
            let Ok(from) = u16::try_from(number) else { return };
            for (extent, _, digest) in whole_files(&layer.index, &layer.contents) {
                let Some(place) = known
                    .contents
                    .get(&digest)
                    .filter(|place| place.length == extent.length)
                else {
                    continue;
                };
                let position = devices
                    .iter()
                    .position(|(key, _)| *key == place.key)
                    .unwrap_or_else(|| {
                        devices.push((place.key, known.layers.get(&place.key).copied().unwrap_or(0)));
                        devices.len() - 1
                    });
                let Ok(to) = u16::try_from(position) else { return };
                moves.insert((from, extent.data_offset), (to, place.data_offset));
            }
        }
        if !moves.is_empty() {
            tree.redirect_extents(|extent| match moves.get(&(extent.device, extent.data_offset)) {
                Some(&(device, data_offset)) => FileExtent {
                    device,
                    data_offset,
                    ..extent
                },
                None => extent,
            });
        }
    }
}

/// The files of a layer that are one extent, with their digests. `digests` is the layer's contents section.
fn whole_files<'a>(
    index: &'a LayerIndex,
    digests: &'a [u8],
) -> impl Iterator<Item = (xebec_format::layer::Extent, u64, Digest)> + 'a {
    let files = index.entries.iter().filter_map(|entry| match &entry.kind {
        EntryKind::File { size, extents } if *size > 0 => Some((*size, extents)),
        _ => None,
    });
    files
        .zip(digests.chunks_exact(32))
        .filter_map(|((size, extents), digest)| {
            let digest = Digest::from_bytes(digest.try_into().ok()?);
            match extents.as_slice() {
                [extent] if extent.length == size => Some((*extent, size, digest)),
                _ => None,
            }
        })
}
