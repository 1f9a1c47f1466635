//! Reads a [`Recording`] from bytes that nobody vouches for. A returned recording keeps every promise that the types
//! make; a refusal names the defect. Memory is bounded by [`super::limits`].

mod error;
mod pages;
mod services;

pub use error::DecodeError;

use super::check::InvalidRecording;
use super::encode::{CARRIES_INDEXES, COMPRESSION_ZSTD, HEADER_SIZE, KINDS_OF_DIGESTS, MAGIC, VERSION};
use super::limits::{
    MAX_INDEXES, MAX_LAYERS, MAX_PLAIN, MAX_RECORDING, MAX_RUNS, MAX_SEGMENTS, MAX_SERVICES, MAX_ZONES,
};
use super::{BundledIndex, RecordedLayer, Recording, Zone};
use crate::PAGE_SIZE;
use crate::columns::{Column, ColumnError};
use crate::digest::Digest;
use crate::frame::decompress;
use crate::layer::limits::MAX_DATA;
use error::{fixed, length, limit};

impl Recording {
    /// Reads a recording that [`Recording::encode`] wrote, and checks everything that the types promise
    /// ([`Recording::check`]). The caller has compared the digest of `bytes` with the one that it trusts.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Recording, DecodeError> {
        let parts = split(bytes)?;
        let mut body = Column::new(&parts.numbers, "the numbers");
        let mut digests = Column::new(parts.digests, "the digests");
        let layers = body.count(MAX_LAYERS)?;
        let zones = body.count(MAX_ZONES)?;
        let segments = body.count(MAX_SEGMENTS)?;
        let zeros = body.count(MAX_RUNS)?;
        let services = body.count(MAX_SERVICES)?;
        let sizes = body.column("data spaces of layers")?;
        let indexes = match parts.carries_indexes {
            true => read_indexes(body.column("places of indexes")?)?,
            false => Vec::new(),
        };
        let layers = read_layers(layers, sizes, &mut digests)?;
        let zones = read_zones(zones, body.column("sizes of zones")?, &mut digests)?;
        let (segments, zeros) = pages::read(
            segments,
            zeros,
            parts.has_kinds_of_digests,
            &mut body,
            &mut digests,
        )?;
        digests.finish()?;
        let services = services::read(services, &mut body, &segments, &zeros)?;
        body.finish()?;
        let recording = Recording {
            image: parts.image,
            layers,
            services,
            zeros,
            zones,
            segments,
            indexes,
        };
        recording.check()?;
        // One meaning, one encoding.
        if parts.carries_indexes && recording.indexes.is_empty() {
            return Err(InvalidRecording::Recording("says that it carries indexes, and has none").into());
        }
        if parts.has_kinds_of_digests && !recording.has_kinds_of_digests() {
            return Err(InvalidRecording::Recording(
                "says of which kinds the digests of segments are, and all are SHA-256",
            )
            .into());
        }
        Ok(recording)
    }
}

/// The parts of a recording's bytes.
struct Parts<'a> {
    image: Digest,
    carries_indexes: bool,
    has_kinds_of_digests: bool,
    /// The plain bytes of the numbers.
    numbers: Vec<u8>,
    digests: &'a [u8],
}

fn split(bytes: &[u8]) -> Result<Parts<'_>, DecodeError> {
    if !bytes.starts_with(&MAGIC) {
        return Err(DecodeError::Magic);
    }
    limit("its size", bytes.len() as u64, MAX_RECORDING)?;
    let mut header = Column::new(bytes, "the header");
    header.bytes(MAGIC.len())?;
    match u16::from_le_bytes(fixed(&mut header)?) {
        VERSION => {}
        other => return Err(DecodeError::Version(other)),
    }
    let features = u16::from_le_bytes(fixed(&mut header)?);
    if features & !(CARRIES_INDEXES | KINDS_OF_DIGESTS) != 0 {
        return Err(DecodeError::Features(features));
    }
    match u32::from_le_bytes(fixed(&mut header)?) {
        COMPRESSION_ZSTD => {}
        other => {
            return Err(DecodeError::Unknown {
                what: "compression",
                value: other.into(),
            });
        }
    }
    let plain_size = u64::from_le_bytes(fixed(&mut header)?);
    let stored_size = u64::from_le_bytes(fixed(&mut header)?);
    let image = digest(&mut header)?;
    limit("the plain size of its numbers", plain_size, MAX_PLAIN)?;
    limit("the stored size of its numbers", stored_size, MAX_RECORDING)?;
    let rest = bytes.get(HEADER_SIZE..).unwrap_or_default();
    let (stored, digests) = rest
        .split_at_checked(stored_size as usize)
        .ok_or(ColumnError::Truncated("the numbers"))?;
    // At most the declared size (itself limited) is allocated; a longer content is an error of zstd's.
    let numbers = decompress(stored, plain_size as usize)
        .map_err(|error| DecodeError::Decompress(error.to_string()))?;
    if numbers.len() as u64 != plain_size {
        let reason = format!("{} bytes instead of {plain_size}", numbers.len());
        return Err(DecodeError::Decompress(reason));
    }
    Ok(Parts {
        image,
        carries_indexes: features & CARRIES_INDEXES != 0,
        has_kinds_of_digests: features & KINDS_OF_DIGESTS != 0,
        numbers,
        digests,
    })
}

fn digest(column: &mut Column<'_>) -> Result<Digest, ColumnError> {
    fixed(column).map(Digest::from_bytes)
}

fn read_layers(
    count: usize,
    mut sizes: Column<'_>,
    digests: &mut Column<'_>,
) -> Result<Vec<RecordedLayer>, ColumnError> {
    let mut layers = Vec::new();
    for _ in 0..count {
        layers.push(RecordedLayer {
            layer: digest(digests)?,
            index: digest(digests)?,
            data_size: sizes.count(MAX_DATA / PAGE_SIZE)? as u64 * PAGE_SIZE,
        });
    }
    sizes.finish()?;
    Ok(layers)
}

fn read_indexes(mut column: Column<'_>) -> Result<Vec<BundledIndex>, ColumnError> {
    let mut indexes = Vec::new();
    let mut end = 0;
    for _ in 0..column.count(MAX_INDEXES)? {
        let index = BundledIndex {
            layer: column.count(MAX_LAYERS)? as u16,
            zone: column.count(MAX_ZONES)? as u16,
            offset: column.difference(end)?,
            length: column.number()?,
        };
        end = index.end();
        indexes.push(index);
    }
    column.finish()?;
    Ok(indexes)
}

fn read_zones(
    count: usize,
    mut sizes: Column<'_>,
    digests: &mut Column<'_>,
) -> Result<Vec<Zone>, ColumnError> {
    let mut zones = Vec::new();
    for _ in 0..count {
        zones.push(Zone {
            digest: digest(digests)?,
            size: sizes.number()?,
        });
    }
    sizes.finish()?;
    Ok(zones)
}
