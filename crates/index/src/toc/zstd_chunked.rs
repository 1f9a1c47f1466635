//! zstd:chunked: a zstd layer in which every chunk of a file is a frame, with a manifest in a skippable frame at the
//! end (containers/storage, `pkg/chunked`).
//!
//! Annotations say where the manifest is and what the digest of its *compressed* bytes is. It is JSON as eStargz has
//! it, without inner offsets but with the end of each file's last chunk, and with chunks of zeros. The tar-split
//! frame behind it is for putting the tar together again and is not read.

use std::collections::BTreeMap;
use std::ops::Range;

use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, LayerIndex, Room};

use super::entries::IndexBuilder;
use super::error::TocError;
use super::estargz;
use super::json::read_table;
use super::{Blob, MAX_TOC, hold, parse_digest, verify};

/// Annotation of a layer's descriptor: digest of the compressed manifest.
pub const CHECKSUM_ANNOTATION: &str = "io.github.containers.zstd-chunked.manifest-checksum";
/// Annotation of a layer's descriptor: `offset:length:uncompressed length:type` of the manifest.
pub const POSITION_ANNOTATION: &str = "io.github.containers.zstd-chunked.manifest-position";
/// The same two as stargz-snapshotter writes them.
pub const STARGZ_CHECKSUM_ANNOTATION: &str = "io.containers.zstd-chunked.manifest-checksum";
/// See [`STARGZ_CHECKSUM_ANNOTATION`].
pub const STARGZ_POSITION_ANNOTATION: &str = "io.containers.zstd-chunked.manifest-position";

/// The only type of manifest there is.
const TYPE_CRFS: u64 = 1;
/// Magic number and length in front of the manifest, which make its frame skippable (RFC 8878, 3.1.2).
const SKIPPABLE_HEADER: u64 = 8;

/// The place of a manifest in the blob, and the digests and lengths that it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    checksum: Digest,
    offset: u64,
    length: u64,
    plain_length: u64,
    /// Digest of the JSON, which stargz-snapshotter adds; checked, too, if it is there.
    json: Option<Digest>,
}

impl Position {
    /// Reads the annotations of a layer's descriptor; `None` if it has none of this format.
    ///
    /// # Errors
    /// Malformed annotations, and positions outside the blob.
    pub fn from_annotations(
        blob: Blob,
        annotations: &BTreeMap<String, String>,
    ) -> Result<Option<Self>, TocError> {
        let pairs = [
            (CHECKSUM_ANNOTATION, POSITION_ANNOTATION),
            (STARGZ_CHECKSUM_ANNOTATION, STARGZ_POSITION_ANNOTATION),
        ];
        let both = |(checksum, position)| Some((annotations.get(checksum)?, annotations.get(position)?));
        let Some(((checksum_key, position_key), (checksum, position))) =
            pairs.into_iter().find_map(|keys| Some((keys, both(keys)?)))
        else {
            return Ok(None);
        };
        let checksum = parse_digest(checksum_key, checksum)?;
        let json = annotations.get(estargz::DIGEST_ANNOTATION);
        let json = json
            .map(|text| parse_digest(estargz::DIGEST_ANNOTATION, text))
            .transpose()?;
        let malformed = || TocError::Annotation {
            annotation: position_key,
            value: position.chars().take(200).collect(),
        };
        let numbers: Option<Vec<u64>> = position.split(':').map(number).collect();
        let Some(&[offset, length, plain_length, TYPE_CRFS]) = numbers.as_deref() else {
            return Err(malformed());
        };
        let end = offset.checked_add(length);
        if offset < SKIPPABLE_HEADER || length == 0 || end.is_none_or(|end| end > blob.size) {
            return Err(malformed());
        }
        if length > MAX_TOC || plain_length > MAX_TOC {
            return Err(TocError::TooLarge { limit: MAX_TOC });
        }
        Ok(Some(Self {
            checksum,
            offset,
            length,
            plain_length,
            json,
        }))
    }

    /// The manifest's bytes in the blob.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.length
    }
}

/// A decimal number without a sign.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| !text.starts_with('+'))
}

/// Makes an index of a manifest (the bytes of [`Position::range`]).
///
/// # Errors
/// The manifest is not the one that the annotations name, or cannot be used.
pub fn parse_manifest(
    blob: Blob,
    position: &Position,
    manifest: &[u8],
    room: &mut Room<'_>,
) -> Result<LayerIndex, TocError> {
    verify(position.checksum, manifest)?;
    hold(room, position.plain_length)?;
    let json = decompress(manifest, position.plain_length)?;
    if let Some(expected) = position.json {
        verify(expected, &json)?;
    }
    let mut builder = IndexBuilder::new();
    read_table(&json, &mut builder)?;
    builder.finish(
        blob,
        Codec::ZstdChunked,
        position.offset.saturating_sub(SKIPPABLE_HEADER),
    )
}

fn decompress(manifest: &[u8], plain_length: u64) -> Result<Vec<u8>, TocError> {
    let capacity = usize::try_from(plain_length).map_err(|_| TocError::TooLarge { limit: MAX_TOC })?;
    let json =
        zstd::bulk::decompress(manifest, capacity).map_err(|error| TocError::Zstd(error.to_string()))?;
    if json.len() != capacity {
        let found = json.len();
        return Err(TocError::Zstd(format!("{found} bytes instead of {plain_length}")));
    }
    Ok(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(text: &str) -> Result<Option<Position>, TocError> {
        let checksum = Digest::of(b"");
        let blob = Blob {
            digest: checksum,
            size: 1000,
        };
        let annotations = [
            (CHECKSUM_ANNOTATION, checksum.to_string()),
            (POSITION_ANNOTATION, text.to_owned()),
        ];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value));
        Position::from_annotations(blob, &annotations.into())
    }

    #[test]
    fn positions() {
        let found = position("100:50:500:1").unwrap().unwrap();
        assert_eq!((found.range(), found.plain_length), (100..150, 500));
        for bad in [
            "",
            "1:2:3",
            "100:50:500:2",
            "100:50:500:1:1",
            "-1:50:500:1",
            "+100:50:500:1",
            "100:901:500:1",
            "18446744073709551615:1:1:1",
            "7:50:500:1",
            "100:0:500:1",
            "100:50:x:1",
        ] {
            assert!(matches!(position(bad), Err(TocError::Annotation { .. })), "{bad}");
        }
        assert!(matches!(
            position("100:50:157286401:1"),
            Err(TocError::TooLarge { .. })
        ));
    }
}
