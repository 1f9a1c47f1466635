//! The layer indexes that a recording's zone carries before its pages, so that a start on a host that has nothing of the
//! image needs no other artifact.
//!
//! They are the very indexes that the pages were read by, and the recording names their digests. So they are worth what
//! the recording is worth, and a recording that is signed carries only those that this host would take for a signature's
//! worth itself.

use xebec_cache::store::{LayerKey, Store};
use xebec_format::digest::Digest;
use xebec_format::layer::{LayerIndex, Section};
use xebec_format::runtime_image::{CarriedIndex, RecordedLayer, Recording, Zone};
use xebec_oci::Descriptor;

use crate::artifact::{BlobRef, LAYER_ANNOTATION, WINDOWS_TYPE};
use crate::failure::{Failure, FailureKind};

/// Most bytes of indexes that one zone carries; what is more is had from the index artifact.
pub const MAX_CARRIED: u64 = 64 << 20;

/// The indexes that a new recording names.
#[derive(Debug, Default)]
pub struct Carried {
    /// What its own zone begins with.
    pub front: Vec<u8>,
    /// For each layer where its index is. Zone 0 is the recording's own; those of earlier recordings count from 1.
    pub places: Vec<Option<CarriedIndex>>,
}

impl Carried {
    /// Chooses what to carry of `layers`: nothing of its own if zones that are used anyway (`zones`) have all of it,
    /// else everything that `may` be carried.
    ///
    /// # Errors
    /// When an index cannot be read.
    pub fn choose(
        store: &Store,
        layers: &[RecordedLayer],
        earlier: &[Recording],
        zones: &[Zone],
        may: &dyn Fn(LayerKey) -> bool,
    ) -> Result<Self, Failure> {
        let wanted = |layer: &&RecordedLayer| may((*layer).into());
        let known = |layer: &RecordedLayer| carried_before(layer, earlier, zones);
        if layers.iter().filter(wanted).all(|layer| known(layer).is_some()) {
            let places = layers.iter().map(|layer| known(layer).filter(|_| wanted(&layer)));
            return Ok(Self {
                front: Vec::new(),
                places: places.collect(),
            });
        }
        let mut carried = Self::default();
        for layer in layers {
            let bytes = match wanted(&layer) {
                true => store.index_bytes(layer.into())?,
                false => Vec::new(),
            };
            let fits = !bytes.is_empty() && (carried.front.len() + bytes.len()) as u64 <= MAX_CARRIED;
            carried.places.push(fits.then_some(CarriedIndex {
                zone: 0,
                offset: carried.front.len() as u64,
                length: bytes.len() as u64,
            }));
            if fits {
                carried.front.extend_from_slice(&bytes);
            }
        }
        Ok(carried)
    }
}

/// Where one of `zones` has a layer's index, as an earlier recording says; zones count from 1.
fn carried_before(layer: &RecordedLayer, earlier: &[Recording], zones: &[Zone]) -> Option<CarriedIndex> {
    earlier.iter().find_map(|recording| {
        let same = |other: &&RecordedLayer| other.layer == layer.layer && other.index == layer.index;
        let carried = recording.layers.iter().find(same)?.carried?;
        let zone = recording.zones.get(usize::from(carried.zone))?;
        let place = zones.iter().position(|known| known == zone)?;
        Some(CarriedIndex {
            zone: u16::try_from(place + 1).ok()?,
            ..carried
        })
    })
}

/// The blobs that the carried indexes need besides themselves: their windows, which a miss asks for in part. The
/// artifact lists them, so that its registry keeps them.
///
/// # Errors
/// When an index cannot be read.
pub fn windows(store: &Store, recording: &Recording) -> Result<Vec<(LayerKey, Section)>, Failure> {
    let mut windows = Vec::new();
    for layer in recording.layers.iter().filter(|layer| layer.carried.is_some()) {
        let key = layer.into();
        let index = LayerIndex::decode(&store.index_bytes(key)?)
            .map_err(|error| Failure::new(FailureKind::Integrity, error))?;
        windows.extend(index.windows.map(|section| (key, section)));
    }
    Ok(windows)
}

/// How an artifact lists a layer's windows.
pub fn windows_descriptor(layer: Digest, windows: &Section) -> Descriptor {
    let blob = BlobRef {
        digest: windows.digest,
        size: windows.size,
    };
    let mut descriptor = blob.descriptor(WINDOWS_TYPE);
    descriptor
        .annotations
        .insert(LAYER_ANNOTATION.to_owned(), layer.to_string());
    descriptor
}
