//! Layer indexes from a blob's own table of contents: no index of ours is needed, and none is trusted.
//!
//! eStargz and zstd:chunked layers end with a list of their entries and chunks, and the image manifest carries the
//! digest of that list, so a caller that trusts the manifest may trust the list. [`TableOfContents`] does no I/O: it says
//! which bytes of the blob it needs next ([`TableOfContents::wanted`]) and takes them
//! ([`TableOfContents::supply`]), once or twice, until it has a [`LayerIndex`].
//!
//! Entries obey the same rules as in [`crate::tar`] and give the same tree, with two exceptions that are lost when
//! such a layer is written: eStargz rounds times to seconds, and JSON cannot hold names that are not UTF-8. Every
//! span is a chunk with its own digest; a layer with chunks that have none cannot be verified and is refused.
//!
//! Another format with a list of its own is another variant of [`TableOfContents`]. SOCI's zTOC would be one whose
//! `wanted` range lies in a blob of its own, so it needs a way to name that blob, and gives gzip access points
//! instead of chunks ([`Codec::Gzip`] with windows).

mod blob;
mod entries;
mod entry;
mod error;
pub mod estargz;
mod json;
pub mod zstd_chunked;

use std::collections::BTreeMap;
use std::ops::Range;

pub use blob::{Blob, MAX_TOC};
pub use error::{TocError, TocProblem};
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, LayerIndex, Room};

use blob::{hold, parse_digest, verify};

/// A table of contents that is being fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOfContents {
    blob: Blob,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// The end of an eStargz blob, with the footer and perhaps all of the table.
    EstargzTail { digest: Digest },
    /// The part of an eStargz table that is missing, in front of the part that the tail already held.
    EstargzTable {
        digest: Digest,
        wanted: Range<u64>,
        held: Vec<u8>,
    },
    /// The manifest of a zstd:chunked blob.
    ZstdChunked(zstd_chunked::Position),
}

/// The result of [`TableOfContents::supply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Supplied {
    /// More bytes are [`TableOfContents::wanted`].
    More(TableOfContents),
    /// The layer's index; [`LayerIndex::check`] holds.
    Index(Box<LayerIndex>),
}

impl TableOfContents {
    /// Tells from the annotations of the layer's descriptor *in the manifest* whether it has a table of contents
    /// that the manifest vouches for.
    ///
    /// # Errors
    /// Annotations that are malformed or contradict the blob.
    pub fn detect(blob: Blob, annotations: &BTreeMap<String, String>) -> Result<Option<Self>, TocError> {
        // Layers that stargz-snapshotter writes as zstd:chunked also carry the digest of eStargz.
        if let Some(position) = zstd_chunked::Position::from_annotations(blob, annotations)? {
            let stage = Stage::ZstdChunked(position);
            return Ok(Some(Self { blob, stage }));
        }
        let Some(text) = annotations.get(estargz::DIGEST_ANNOTATION) else {
            return Ok(None);
        };
        let digest = parse_digest(estargz::DIGEST_ANNOTATION, text)?;
        if blob.size < estargz::LEGACY_FOOTER as u64 {
            return Err(TocError::BlobTooSmall(blob.size));
        }
        let stage = Stage::EstargzTail { digest };
        Ok(Some(Self { blob, stage }))
    }

    /// How the layer is encoded.
    pub fn codec(&self) -> Codec {
        match self.stage {
            Stage::EstargzTail { .. } | Stage::EstargzTable { .. } => Codec::Estargz,
            Stage::ZstdChunked(_) => Codec::ZstdChunked,
        }
    }

    /// The range of the blob that is needed next; never empty, never longer than [`MAX_TOC`].
    pub fn wanted(&self) -> Range<u64> {
        match &self.stage {
            Stage::EstargzTail { .. } => self.blob.size.saturating_sub(estargz::TAIL)..self.blob.size,
            Stage::EstargzTable { wanted, .. } => wanted.clone(),
            Stage::ZstdChunked(position) => position.range(),
        }
    }

    /// Takes the bytes of the [`Self::wanted`] range.
    ///
    /// # Errors
    /// Bytes of another length, a table whose digest is not what the manifest says, or one that cannot be used.
    pub fn supply(self, bytes: &[u8]) -> Result<Supplied, TocError> {
        self.supply_within(bytes, &mut |_| true)
    }

    /// The same, but `room` is asked before so many more bytes are held.
    ///
    /// # Errors
    /// Those of [`Self::supply`]; [`TocError::NoRoom`] if there is none.
    pub fn supply_within(self, bytes: &[u8], room: &mut Room<'_>) -> Result<Supplied, TocError> {
        let wanted = self.wanted();
        if bytes.len() as u64 != wanted.end - wanted.start {
            return Err(TocError::Length {
                expected: wanted.end - wanted.start,
                given: bytes.len() as u64,
            });
        }
        let index = match self.stage {
            Stage::EstargzTail { digest } => {
                return supply_tail(self.blob, digest, wanted.start, bytes, room);
            }
            Stage::EstargzTable { digest, wanted, held } => {
                let table = [bytes, &held].concat();
                estargz::parse_table(self.blob, wanted.start, &table, digest, room)?
            }
            Stage::ZstdChunked(position) => zstd_chunked::parse_manifest(self.blob, &position, bytes, room)?,
        };
        Ok(Supplied::Index(Box::new(index)))
    }
}

/// Finds an eStargz table by the footer at the end of `tail`, and parses it if the tail holds all of it.
fn supply_tail(
    blob: Blob,
    digest: Digest,
    tail_start: u64,
    tail: &[u8],
    room: &mut Room<'_>,
) -> Result<Supplied, TocError> {
    let table = estargz::table_range(blob.size, tail)?;
    let footer_at = usize::try_from(table.end - tail_start).unwrap_or(usize::MAX);
    let before_footer = tail.get(..footer_at).unwrap_or_default();
    if let Some(skip) = table.start.checked_sub(tail_start) {
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let bytes = before_footer.get(skip..).unwrap_or_default();
        let index = estargz::parse_table(blob, table.start, bytes, digest, room)?;
        return Ok(Supplied::Index(Box::new(index)));
    }
    let held = before_footer.to_vec();
    let wanted = table.start..tail_start;
    let stage = Stage::EstargzTable { digest, wanted, held };
    Ok(Supplied::More(TableOfContents { blob, stage }))
}
