//! Reads a [`LayerIndex`] from bytes that nobody vouches for. A returned index keeps every promise that the types
//! make; a refusal names the defect. Memory is bounded by [`super::limits`].

mod error;
mod spans;
mod tree;

pub use error::DecodeError;

use super::check;
use super::encode::{
    COMPRESSION_ZSTD, HAS_CONTENTS, HAS_DIFF_ID, HAS_FRAME, HAS_WINDOWS, HEADER_SIZE, MAGIC,
    SECTION_ENTRY_SIZE, SECTION_SPANS, SECTION_TREE, VERSION,
};
use super::limits::{MAX_INDEX, MAX_SECTION};
use super::weight::{self, Room};
use super::{Codec, LayerIndex, Section, SpanTable};
use error::{hold, limit};

use crate::digest::Digest;
use crate::frame::decompress;

impl LayerIndex {
    /// Reads an index that [`LayerIndex::encode`] wrote, and checks everything that the types promise
    /// ([`LayerIndex::check`]). The caller has compared the digest of `bytes` with the one that it trusts.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<LayerIndex, DecodeError> {
        Self::decode_within(bytes, &mut |_| true)
    }

    /// The same, but `room` is asked before so many more bytes are held. It is asked for [`LayerIndex::weight`] in all, and for
    /// what decoding takes on the way, which is held no more when this returns.
    ///
    /// # Errors
    /// See [`DecodeError`]; [`DecodeError::NoRoom`] as soon as there is none.
    pub fn decode_within(bytes: &[u8], room: &mut Room<'_>) -> Result<LayerIndex, DecodeError> {
        let header = Header::read(bytes)?;
        hold(room, weight::of_data(header.data_size))?;
        let table = header.span_table(room)?;
        let tree = header.section(SECTION_TREE, "tree", room)?;
        let index = LayerIndex {
            layer: header.layer,
            layer_size: header.layer_size,
            diff_id: header.diff_id,
            codec: header.codec,
            plain_size: header.plain_size,
            data_size: header.data_size,
            entries: tree::read(&tree, room)?,
            pieces: table.pieces,
            spans: table.spans,
            windows: header.windows,
            frame: header.frame,
            contents: header.contents,
        };
        index.check()?;
        Ok(index)
    }

    /// Reads only [`LayerIndex::data_size`] from an encoded index; nothing but the header is looked at.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn data_size_of(bytes: &[u8]) -> Result<u64, DecodeError> {
        Ok(Header::read(bytes)?.data_size)
    }

    /// The same of [`LayerIndex::diff_id`].
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn diff_id_of(bytes: &[u8]) -> Result<Option<Digest>, DecodeError> {
        Ok(Header::read(bytes)?.diff_id)
    }
}

impl SpanTable {
    /// Reads only what filling needs from an encoded [`LayerIndex`] and checks it; the tree is not looked at.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<SpanTable, DecodeError> {
        let table = Header::read(bytes)?.span_table(&mut |_| true)?;
        check::spans(&table)?;
        Ok(table)
    }
}

/// The fixed header and the section directory.
struct Header<'a> {
    codec: Codec,
    layer: Digest,
    layer_size: u64,
    plain_size: u64,
    data_size: u64,
    diff_id: Option<Digest>,
    windows: Option<Section>,
    frame: Option<Section>,
    contents: Option<Section>,
    sections: Vec<StoredSection<'a>>,
}

/// A section as the directory lists it.
struct StoredSection<'a> {
    kind: u32,
    stored: &'a [u8],
    plain_size: u64,
}

/// Reads fixed-width little-endian fields one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Truncated("the header"))?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_le_bytes)
    }

    /// A digest and a size; all zero when absent.
    fn section(&mut self, present: bool) -> Result<Option<Section>, DecodeError> {
        let (digest, size) = (self.take::<32>()?, self.u64()?);
        if !present && (digest != [0; 32] || size != 0) {
            return Err(DecodeError::Trailing("an absent section"));
        }
        Ok(present.then(|| Section {
            digest: Digest::from_bytes(digest),
            size,
        }))
    }
}

impl<'a> Header<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(DecodeError::Magic);
        }
        limit("its size", bytes.len() as u64, MAX_INDEX)?;
        let mut fields = Fields(bytes);
        let _magic: [u8; 8] = fields.take()?;
        match fields.u16()? {
            VERSION => {}
            other => return Err(DecodeError::Version(other)),
        }
        match fields.u16()? {
            0 => {}
            features => return Err(DecodeError::Features(features)),
        }
        let [codec, present] = fields.take()?;
        let codec = codec_of(codec)?;
        if present & !(HAS_DIFF_ID | HAS_WINDOWS | HAS_FRAME | HAS_CONTENTS) != 0 {
            return Err(DecodeError::Unknown {
                what: "presence bits",
                value: present.into(),
            });
        }
        let count = fields.u16()?;
        let (layer_size, plain_size, data_size) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let layer = Digest::from_bytes(fields.take()?);
        let diff_id: [u8; 32] = fields.take()?;
        if present & HAS_DIFF_ID == 0 && diff_id != [0; 32] {
            return Err(DecodeError::Trailing("an absent diff ID"));
        }
        Ok(Self {
            codec,
            layer,
            layer_size,
            plain_size,
            data_size,
            diff_id: (present & HAS_DIFF_ID != 0).then(|| Digest::from_bytes(diff_id)),
            windows: fields.section(present & HAS_WINDOWS != 0)?,
            frame: fields.section(present & HAS_FRAME != 0)?,
            contents: fields.section(present & HAS_CONTENTS != 0)?,
            sections: directory(bytes, &mut fields, count)?,
        })
    }

    /// The plain bytes of a section.
    fn section(
        &self,
        kind: u32,
        section_name: &'static str,
        room: &mut Room<'_>,
    ) -> Result<Vec<u8>, DecodeError> {
        let Some(section) = self.sections.iter().find(|section| section.kind == kind) else {
            return Err(DecodeError::Truncated("the section directory"));
        };
        let StoredSection {
            stored, plain_size, ..
        } = *section;
        let failed = |reason: String| DecodeError::Decompress {
            section: section_name,
            reason,
        };
        hold(room, plain_size)?;
        // At most the declared size (itself limited) is allocated; a longer content is an error of zstd's.
        let bytes = decompress(stored, plain_size as usize).map_err(|e| failed(e.to_string()))?;
        if bytes.len() as u64 != plain_size {
            return Err(failed(format!("{} bytes instead of {plain_size}", bytes.len())));
        }
        Ok(bytes)
    }

    fn span_table(&self, room: &mut Room<'_>) -> Result<SpanTable, DecodeError> {
        let plain = self.section(SECTION_SPANS, "spans", room)?;
        let (pieces, spans) = spans::read(&plain, self.codec.has_plain_stream(), room)?;
        Ok(SpanTable {
            codec: self.codec,
            layer: self.layer,
            layer_size: self.layer_size,
            plain_size: self.plain_size,
            data_size: self.data_size,
            pieces,
            spans,
            windows: self.windows.clone(),
        })
    }
}

fn codec_of(number: u8) -> Result<Codec, DecodeError> {
    Ok(match number {
        0 => Codec::Tar,
        1 => Codec::Gzip,
        2 => Codec::Zstd,
        3 => Codec::Estargz,
        4 => Codec::ZstdChunked,
        _ => {
            return Err(DecodeError::Unknown {
                what: "codec",
                value: number.into(),
            });
        }
    })
}

/// Reads the section directory: the sections must follow it and each other without gaps, up to the end.
fn directory<'a>(
    bytes: &'a [u8],
    fields: &mut Fields<'a>,
    count: u16,
) -> Result<Vec<StoredSection<'a>>, DecodeError> {
    if count != 2 {
        return Err(DecodeError::Unknown {
            what: "number of sections",
            value: count.into(),
        });
    }
    let mut sections: Vec<StoredSection<'a>> = Vec::new();
    let mut next = (HEADER_SIZE + usize::from(count) * SECTION_ENTRY_SIZE) as u64;
    for _ in 0..count {
        let (kind, compression) = (fields.u32()?, fields.u32()?);
        let (offset, stored_size, plain_size) = (fields.u64()?, fields.u64()?, fields.u64()?);
        if !matches!(kind, SECTION_SPANS | SECTION_TREE) || sections.iter().any(|s| s.kind == kind) {
            return Err(DecodeError::Unknown {
                what: "section",
                value: kind.into(),
            });
        }
        if compression != COMPRESSION_ZSTD {
            return Err(DecodeError::Unknown {
                what: "compression",
                value: compression.into(),
            });
        }
        limit("the plain size of a section", plain_size, MAX_SECTION)?;
        limit("the stored size of a section", stored_size, MAX_INDEX)?;
        if offset != next {
            return Err(DecodeError::Unknown {
                what: "section offset",
                value: offset,
            });
        }
        next += stored_size;
        let stored = bytes
            .get(offset as usize..next as usize)
            .ok_or(DecodeError::Truncated("a section"))?;
        sections.push(StoredSection {
            kind,
            stored,
            plain_size,
        });
    }
    if next != bytes.len() as u64 {
        return Err(DecodeError::Trailing("the last section"));
    }
    Ok(sections)
}
