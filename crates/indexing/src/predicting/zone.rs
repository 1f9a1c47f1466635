//! Predicted pages become a zone and the artifact that lists it.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;
use xebec_artifact::artifact::EMPTY_CONFIG;
use xebec_artifact::recording::{self, MAX_INLINE_CONFIG, PREDICTED_FROM};
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{BundledIndex, PageRun, RecordedLayer, Recording, Service, Zone, lay_out};
use xebec_oci::Descriptor;
use xebec_prediction::services;
use xebec_store::{RepositoryName, Store};

use super::decoded::{Decoded, unnamed};
use super::layers::Read;
use super::sources::Source;
use super::wanted::Wanted;
use crate::layer::LayerError;
use crate::publish;

/// Most bytes of indexes that the zone carries, as hosts have it; a start takes the others from the index artifact.
const MAX_CARRIED: u64 = 64 << 20;
/// A zone is put into the store in parts of so many bytes.
const PART: u64 = 1 << 20;

/// Makes the artifact and puts it into the store, signed where it is to be. Returns its digest.
pub(super) async fn publish(
    store: &Store,
    wanted: &Wanted,
    source: &Source,
    layers: &[Read],
    services: Vec<Service>,
    decoded: &Decoded,
) -> Result<Digest, LayerError> {
    let repository = &wanted.repository;
    let file = unnamed(&store.config().root)?;
    let recording = record(wanted.image.descriptor.digest, layers, services, decoded, &file)?;
    publish::keep(store, repository, Bytes::from_static(EMPTY_CONFIG)).await?;
    let encoded = recording.encode();
    publish::keep(store, repository, Bytes::copy_from_slice(&encoded)).await?;
    for zone in &recording.zones {
        keep(store, repository, zone, &file).await?;
    }
    let carried = layers.iter().enumerate().filter(|(number, _)| {
        let mut indexes = recording.indexes.iter();
        indexes.any(|index| usize::from(index.layer) == *number)
    });
    let windows = carried.filter_map(|(_, layer)| {
        let windows = layer.table.windows.as_ref()?;
        Some(recording::windows_descriptor(layer.layer, windows))
    });
    let config = &wanted.config;
    let config = (config.len() <= MAX_INLINE_CONFIG)
        .then(|| Descriptor::embedding(&wanted.image.config().media_type, config));
    let mut manifest = recording::encode(
        wanted.image.descriptor.clone(),
        &encoded,
        &recording.zones,
        windows.chain(config),
    );
    let from = source.image.descriptor.digest.to_string();
    manifest.annotations.insert(PREDICTED_FROM.to_owned(), from);
    let content = serde_json::to_vec(&manifest).map_err(|error| LayerError::Never(error.to_string()))?;
    let digest = Digest::of(&content);
    // Before the artifact: one that is there and not signed would stay so if the process ended now.
    if let Some(signer) = &wanted.signer {
        publish::sign(store, repository, signer, digest).await?;
    }
    publish::put(store, repository, content, &[]).await?;
    Ok(digest)
}

/// The recording. Writes its zone.
fn record(
    image: Digest,
    layers: &[Read],
    services: Vec<Service>,
    decoded: &Decoded,
    zone: &File,
) -> Result<Recording, LayerError> {
    let recorded: Vec<RecordedLayer> = layers
        .iter()
        .map(|layer| RecordedLayer {
            layer: layer.layer,
            index: layer.index,
            data_size: layer.table.data_size,
        })
        .collect();
    let (mut front, mut indexes) = (Vec::new(), Vec::new());
    for (number, layer) in (0u16..).zip(layers) {
        let (offset, length) = (front.len() as u64, layer.encoded.len() as u64);
        if offset + length <= MAX_CARRIED {
            front.extend_from_slice(&layer.encoded);
            indexes.push(BundledIndex {
                layer: number,
                zone: 0,
                offset,
                length,
            });
        }
    }
    let pages = services.iter().flat_map(services::pages);
    let order = pages.map(|(layer, first)| PageRun {
        layer,
        first,
        pages: 1,
    });
    let mut out = BufWriter::new(zone);
    let laid_out = lay_out(&recorded, 0, &front, order, &mut out, |layer, page, bytes| {
        decoded.read((layer, page), bytes)
    });
    let laid_out = laid_out.and_then(|laid_out| out.flush().map(|()| laid_out));
    let laid_out = laid_out.map_err(|error| LayerError::Now(format!("write pages: {error}")))?;
    let recording = Recording {
        image,
        layers: recorded,
        services,
        zeros: laid_out.zeros,
        zones: (laid_out.zone.size > 0)
            .then_some(laid_out.zone)
            .into_iter()
            .collect(),
        segments: laid_out.segments,
        indexes,
    };
    recording
        .check()
        .map_err(|error| LayerError::Never(error.to_string()))?;
    Ok(recording)
}

/// Keeps the zone as a blob of the repository.
async fn keep(
    store: &Store,
    repository: &RepositoryName,
    zone: &Zone,
    file: &File,
) -> Result<(), LayerError> {
    let file = file
        .try_clone()
        .map_err(|error| LayerError::Now(error.to_string()))?;
    let size = zone.size;
    let parts = (0..size.div_ceil(PART)).map(move |number| {
        let at = number * PART;
        let mut part = vec![0; (size - at).min(PART) as usize];
        file.read_exact_at(&mut part, at)?;
        Ok::<_, io::Error>(Bytes::from(part))
    });
    publish::keep_parts(store, repository, zone.digest, futures_util::stream::iter(parts)).await
}
