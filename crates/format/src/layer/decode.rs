//! Reads a [`LayerIndex`] from bytes that nobody vouches for. What is returned keeps every promise that the types
//! make; what is refused is refused by name, in memory bounded by [`super::limits`].

use std::ops::Range;

use super::check::{self, InvalidIndex};
use super::columns::Column;
use super::encode::{
    COMPRESSION_ZSTD, EXPLICIT_EXTENTS, HAS_CONTENTS, HAS_DIFF_ID, HAS_FRAME, HAS_WINDOWS, HEADER_SIZE,
    MAGIC, SECTION_ENTRY_SIZE, SECTION_SPANS, SECTION_TREE, VERSION, expected_data, expected_plain,
};
use super::limits::{
    MAX_ENTRIES, MAX_EXTENTS, MAX_INDEX, MAX_PATH_BYTES, MAX_PIECES, MAX_SECTION, MAX_SPANS, MAX_SYMLINK,
    MAX_WINDOW, MAX_XATTR_BYTES, MAX_XATTR_NAME, MAX_XATTR_SET, MAX_XATTR_VALUE,
};
use super::{
    Codec, Entry, EntryKind, Extent, LayerIndex, Metadata, Piece, Section, Span, SpanTable, Window, Xattr,
};
use crate::PAGE_SIZE;
use crate::digest::Digest;
use crate::path::{LayerPath, MAX_PATH, PathError};

/// Why bytes are not a layer index that can be used.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes do not start as a layer index does.
    #[error("not a layer index: the first eight bytes are not \"XEBECIDX\"")]
    Magic,
    /// A version this program does not read.
    #[error(
        "the layer index has version {0}, this program reads version {VERSION}: use a newer xebec, or index the image again"
    )]
    Version(u16),
    /// Feature flags this program does not know.
    #[error("the layer index needs features {0:#06x} that this program does not know: use a newer xebec")]
    Features(u16),
    /// A numbered choice has a number that means nothing.
    #[error("the layer index has {what} {value}, which is not known")]
    Unknown {
        /// Which choice.
        what: &'static str,
        /// The number found.
        value: u64,
    },
    /// The bytes end inside something.
    #[error("the layer index ends inside {0}")]
    Truncated(&'static str),
    /// Bytes are left over.
    #[error("the layer index has bytes left over after {0}")]
    Trailing(&'static str),
    /// A variable-length number is longer than 64 bits.
    #[error("the layer index has a number over 64 bits in {0}")]
    Number(&'static str),
    /// A count or length is over its limit (see [`super::limits`]).
    #[error("the layer index declares {value} for {what}, over the limit of {limit}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// The value declared.
        value: u64,
        /// Its limit.
        limit: u64,
    },
    /// A section is not the zstd frame that it should be.
    #[error("cannot decompress the {section} section of a layer index: {reason}")]
    Decompress {
        /// Which section.
        section: &'static str,
        /// What zstd says.
        reason: String,
    },
    /// A path is not valid.
    #[error("the layer index holds a bad path")]
    Path(#[from] PathError),
    /// The values contradict each other.
    #[error(transparent)]
    Invalid(#[from] InvalidIndex),
}

impl LayerIndex {
    /// Reads an index that [`LayerIndex::encode`] wrote, and checks everything that the types promise
    /// ([`LayerIndex::check`]). The caller has compared the digest of `bytes` with the one that it trusts.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<LayerIndex, DecodeError> {
        let header = Header::read(bytes)?;
        let table = header.span_table()?;
        let tree = header.section(SECTION_TREE, "tree")?;
        let index = LayerIndex {
            layer: header.layer,
            layer_size: header.layer_size,
            diff_id: header.diff_id,
            codec: header.codec,
            plain_size: header.plain_size,
            data_size: header.data_size,
            entries: TreeReader::read(&tree)?,
            pieces: table.pieces,
            spans: table.spans,
            windows: header.windows,
            frame: header.frame,
            contents: header.contents,
        };
        index.check()?;
        Ok(index)
    }
}

impl SpanTable {
    /// Reads only what filling needs from an encoded [`LayerIndex`] and checks it; the tree is not looked at.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<SpanTable, DecodeError> {
        let table = Header::read(bytes)?.span_table()?;
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
    fn section(&self, kind: u32, section_name: &'static str) -> Result<Vec<u8>, DecodeError> {
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
        // At most the declared size (itself limited) is allocated; a longer content is an error of zstd's.
        let bytes = zstd::bulk::decompress(stored, plain_size as usize).map_err(|e| failed(e.to_string()))?;
        if bytes.len() as u64 != plain_size {
            return Err(failed(format!("{} bytes instead of {plain_size}", bytes.len())));
        }
        Ok(bytes)
    }

    fn span_table(&self) -> Result<SpanTable, DecodeError> {
        let plain = self.section(SECTION_SPANS, "spans")?;
        let (pieces, spans) = read_spans(&plain, self.codec.has_plain_stream())?;
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

fn limit(what: &'static str, value: u64, limit: u64) -> Result<(), DecodeError> {
    if value > limit {
        Err(DecodeError::Limit { what, value, limit })
    } else {
        Ok(())
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

fn read_spans(plain: &[u8], has_plain_stream: bool) -> Result<(Vec<Piece>, Vec<Span>), DecodeError> {
    let mut section = Column::new(plain, "the span section");
    let pieces = section.count(MAX_PIECES)?;
    let spans = section.count(MAX_SPANS)?;
    let pieces = read_pieces(&mut section, pieces)?;
    let spans = read_span_columns(&mut section, spans, has_plain_stream)?;
    section.finish()?;
    Ok((pieces, spans))
}

fn read_pieces(section: &mut Column<'_>, count: usize) -> Result<Vec<Piece>, DecodeError> {
    let mut plain = section.column("plain offsets of pieces")?;
    let mut data = section.column("data offsets of pieces")?;
    let mut length = section.column("lengths of pieces")?;
    let mut last = Piece {
        plain_offset: 0,
        data_offset: 0,
        length: 0,
    };
    let mut pieces = Vec::new();
    for _ in 0..count {
        last = Piece {
            plain_offset: plain.difference(expected_plain(&last))?,
            data_offset: data.difference(expected_data(last.data_offset, last.length))?,
            length: length.number()?,
        };
        pieces.push(last);
    }
    plain.finish()?;
    data.finish()?;
    length.finish()?;
    Ok(pieces)
}

/// A range that starts as a column says and has the length that another says.
fn range(
    starts: &mut Column<'_>,
    lengths: &mut Column<'_>,
    expected: u64,
) -> Result<Range<u64>, DecodeError> {
    let start = starts.difference(expected)?;
    let length = lengths.number()?;
    let end = start
        .checked_add(length)
        .ok_or(DecodeError::Number("a range of a span"))?;
    Ok(start..end)
}

fn digest(column: &mut Column<'_>) -> Result<Digest, DecodeError> {
    let bytes = column.bytes(32)?;
    let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| DecodeError::Truncated("a digest"))?;
    Ok(Digest::from_bytes(bytes))
}

fn read_span_columns(
    section: &mut Column<'_>,
    count: usize,
    has_plain_stream: bool,
) -> Result<Vec<Span>, DecodeError> {
    let mut source = section.column("source offsets of spans")?;
    let mut source_length = section.column("source lengths of spans")?;
    let mut bits = section.column("bit offsets of spans")?;
    let mut plain = section.column("plain offsets of spans")?;
    let mut plain_length = section.column("plain lengths of spans")?;
    let mut data = section.column("data offsets of spans")?;
    let mut data_length = section.column("data lengths of spans")?;
    let mut windows = section.column("offsets of windows")?;
    let mut window_length = section.column("lengths of windows")?;
    let mut window_digest = section.column("digests of windows")?;
    let mut digests = section.column("digests of spans")?;
    let mut spans: Vec<Span> = Vec::new();
    let (mut last_source, mut last_plain, mut last_data, mut last_window) = (0, 0, 0, 0u64);
    for _ in 0..count {
        let source_range = range(&mut source, &mut source_length, last_source)?;
        let bit_offset = bits.byte()?;
        let stream_range = match has_plain_stream {
            true => Some(range(&mut plain, &mut plain_length, last_plain)?),
            false => None,
        };
        let data_range = range(&mut data, &mut data_length, last_data)?;
        let plain_range = match stream_range {
            Some(range) => range,
            None => {
                let start = plain.number()?;
                start..start.saturating_add(data_range.end - data_range.start)
            }
        };
        let length = window_length.count(MAX_WINDOW)? as u32;
        let window = match length {
            0 => None,
            _ => Some(Window {
                offset: windows.difference(last_window)?,
                length,
                digest: digest(&mut window_digest)?,
            }),
        };
        if let Some(window) = &window {
            last_window = window.offset.wrapping_add(u64::from(length));
        }
        (last_source, last_plain, last_data) = (source_range.end, plain_range.end, data_range.end);
        spans.push(Span {
            source: source_range,
            bit_offset,
            plain: plain_range,
            data: data_range,
            window,
            digest: digest(&mut digests)?,
        });
    }
    for column in [
        source,
        source_length,
        bits,
        plain,
        plain_length,
        data,
        data_length,
        windows,
        window_length,
        window_digest,
        digests,
    ] {
        column.finish()?;
    }
    Ok(spans)
}

/// The columns of the tree section, and what each row is relative to.
struct TreeReader<'a> {
    kinds: Column<'a>,
    prefix_lengths: Column<'a>,
    suffix_lengths: Column<'a>,
    suffixes: Column<'a>,
    owners: Vec<(u16, u32, u32)>,
    owner_numbers: Column<'a>,
    seconds: Column<'a>,
    nanoseconds: Column<'a>,
    xattrs: Vec<Vec<Xattr>>,
    xattr_numbers: Column<'a>,
    sizes: Column<'a>,
    extents: Column<'a>,
    link_lengths: Column<'a>,
    links: Column<'a>,
    devices: Column<'a>,
    last_path: Vec<u8>,
    path_bytes: u64,
    xattr_bytes: u64,
    extent_count: u64,
    last_seconds: i64,
    next_data: u64,
}

impl<'a> TreeReader<'a> {
    fn read(plain: &'a [u8]) -> Result<Vec<Entry>, DecodeError> {
        let mut section = Column::new(plain, "the tree section");
        let count = section.count(MAX_ENTRIES)?;
        let (owners, xattrs) = (section.count(MAX_ENTRIES)?, section.count(MAX_ENTRIES)?);
        let mut reader = Self {
            kinds: section.column("kinds of entries")?,
            prefix_lengths: section.column("shared lengths of paths")?,
            suffix_lengths: section.column("own lengths of paths")?,
            suffixes: section.column("paths")?,
            owners: read_owners(section.column("owners and modes")?, owners)?,
            owner_numbers: section.column("numbers of owners")?,
            seconds: section.column("times")?,
            nanoseconds: section.column("nanoseconds")?,
            xattrs: read_xattrs(section.column("extended attributes")?, xattrs)?,
            xattr_numbers: section.column("numbers of extended attributes")?,
            sizes: section.column("sizes of files")?,
            extents: section.column("extents")?,
            link_lengths: section.column("lengths of link targets")?,
            links: section.column("link targets")?,
            devices: section.column("device numbers")?,
            last_path: Vec::new(),
            path_bytes: 0,
            xattr_bytes: 0,
            extent_count: 0,
            last_seconds: 0,
            next_data: 0,
        };
        section.finish()?;
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(reader.entry()?);
        }
        reader.finish()?;
        Ok(entries)
    }

    fn entry(&mut self) -> Result<Entry, DecodeError> {
        let path = self.path()?;
        let kind = self.kinds.byte()?;
        let kind = match kind & !EXPLICIT_EXTENTS {
            1 => self.file(kind & EXPLICIT_EXTENTS != 0)?,
            _ if kind & EXPLICIT_EXTENTS != 0 => {
                return Err(DecodeError::Unknown {
                    what: "kind of entry",
                    value: kind.into(),
                });
            }
            0 => EntryKind::Directory,
            2 => EntryKind::Symlink {
                target: self.link(MAX_SYMLINK)?,
            },
            3 => {
                let target = self.link(MAX_PATH)?;
                EntryKind::Hardlink {
                    target: LayerPath::from_normal_form(target)?,
                }
            }
            4 => self.device(|major, minor| EntryKind::CharDevice { major, minor })?,
            5 => self.device(|major, minor| EntryKind::BlockDevice { major, minor })?,
            6 => EntryKind::Fifo,
            7 => EntryKind::Whiteout,
            8 => EntryKind::Opaque,
            _ => {
                return Err(DecodeError::Unknown {
                    what: "kind of entry",
                    value: kind.into(),
                });
            }
        };
        let metadata = match kind {
            EntryKind::Whiteout | EntryKind::Opaque => Metadata::default(),
            _ => self.metadata()?,
        };
        Ok(Entry { path, metadata, kind })
    }

    fn path(&mut self) -> Result<LayerPath, DecodeError> {
        let shared = self.prefix_lengths.count(MAX_PATH as u64)?;
        let own = self.suffix_lengths.count(MAX_PATH as u64)?;
        if shared > self.last_path.len() {
            return Err(DecodeError::Truncated("a path's shared part"));
        }
        self.path_bytes += (shared + own) as u64;
        limit("the bytes of all paths", self.path_bytes, MAX_PATH_BYTES)?;
        self.last_path.truncate(shared);
        self.last_path.extend_from_slice(self.suffixes.bytes(own)?);
        Ok(LayerPath::from_normal_form(self.last_path.clone())?)
    }

    fn file(&mut self, explicit: bool) -> Result<EntryKind, DecodeError> {
        let size = self.sizes.number()?;
        let extents = match (explicit, size) {
            (true, _) => self.explicit_extents()?,
            (false, 0) => Vec::new(),
            (false, _) => vec![Extent {
                file_offset: 0,
                data_offset: self.next_data,
                length: size,
            }],
        };
        self.extent_count += extents.len() as u64;
        limit("extents", self.extent_count, MAX_EXTENTS)?;
        if let Some(last) = extents.last() {
            self.next_data = expected_data(last.data_offset, last.length);
        }
        Ok(EntryKind::File { size, extents })
    }

    fn explicit_extents(&mut self) -> Result<Vec<Extent>, DecodeError> {
        let count = self.extents.count(MAX_EXTENTS)?;
        let (mut file_end, mut data_end) = (0, self.next_data);
        let mut extents = Vec::new();
        for _ in 0..count {
            let mut pages = |expected: u64| {
                let found = self.extents.difference(expected / PAGE_SIZE)?;
                found.checked_mul(PAGE_SIZE).ok_or(DecodeError::Number("extents"))
            };
            let (file_offset, data_offset) = (pages(file_end)?, pages(data_end)?);
            let length = self.extents.number()?;
            extents.push(Extent {
                file_offset,
                data_offset,
                length,
            });
            file_end = expected_data(file_offset, length);
            data_end = expected_data(data_offset, length);
        }
        Ok(extents)
    }

    fn link(&mut self, limit: usize) -> Result<Vec<u8>, DecodeError> {
        let length = self.link_lengths.count(limit as u64)?;
        Ok(self.links.bytes(length)?.to_vec())
    }

    fn device(&mut self, make: impl Fn(u32, u32) -> EntryKind) -> Result<EntryKind, DecodeError> {
        let (major, minor) = (
            self.devices.count(u32::MAX.into())?,
            self.devices.count(u32::MAX.into())?,
        );
        Ok(make(major as u32, minor as u32))
    }

    fn metadata(&mut self) -> Result<Metadata, DecodeError> {
        let owner = self.owner_numbers.number()?;
        let &(mode, uid, gid) = pick(&self.owners, owner, "owner")?;
        self.last_seconds = self.seconds.difference(self.last_seconds as u64)? as i64;
        let mtime_nanoseconds = self.nanoseconds.count(999_999_999)? as u32;
        let xattrs = match self.xattr_numbers.number()? {
            0 => Vec::new(),
            number => {
                let set = pick(&self.xattrs, number - 1, "set of extended attributes")?;
                self.xattr_bytes += check::xattr_bytes(set);
                limit(
                    "the bytes of all extended attributes",
                    self.xattr_bytes,
                    MAX_XATTR_BYTES,
                )?;
                set.clone()
            }
        };
        Ok(Metadata {
            mode,
            uid,
            gid,
            mtime: self.last_seconds,
            mtime_nanoseconds,
            xattrs,
        })
    }

    fn finish(self) -> Result<(), DecodeError> {
        for column in [
            self.kinds,
            self.prefix_lengths,
            self.suffix_lengths,
            self.suffixes,
            self.owner_numbers,
            self.seconds,
            self.nanoseconds,
            self.xattr_numbers,
            self.sizes,
            self.extents,
            self.link_lengths,
            self.links,
            self.devices,
        ] {
            column.finish()?;
        }
        Ok(())
    }
}

fn pick<'t, T>(table: &'t [T], number: u64, what: &'static str) -> Result<&'t T, DecodeError> {
    usize::try_from(number)
        .ok()
        .and_then(|at| table.get(at))
        .ok_or(DecodeError::Unknown { what, value: number })
}

fn read_owners(mut column: Column<'_>, count: usize) -> Result<Vec<(u16, u32, u32)>, DecodeError> {
    let mut owners = Vec::new();
    for _ in 0..count {
        let mode = column.count(0o7777)? as u16;
        let uid = column.count(u32::MAX.into())? as u32;
        let gid = column.count(u32::MAX.into())? as u32;
        owners.push((mode, uid, gid));
    }
    column.finish()?;
    Ok(owners)
}

fn read_xattrs(mut column: Column<'_>, count: usize) -> Result<Vec<Vec<Xattr>>, DecodeError> {
    let mut sets = Vec::new();
    for _ in 0..count {
        let mut set = Vec::new();
        // The least attribute takes three bytes: two lengths and one byte of name.
        for _ in 0..column.count(MAX_XATTR_SET as u64 / 3)? {
            let length = column.count(MAX_XATTR_NAME as u64)?;
            let name = column.bytes(length)?.to_vec();
            let length = column.count(MAX_XATTR_VALUE as u64)?;
            let value = column.bytes(length)?.to_vec();
            set.push(Xattr { name, value });
        }
        sets.push(set);
    }
    column.finish()?;
    Ok(sets)
}
