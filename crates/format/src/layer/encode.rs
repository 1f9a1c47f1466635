//! Writes a [`LayerIndex`] as bytes: `docs/formats/layer-index.md` has the byte map.

use std::collections::HashMap;

use super::{Codec, Entry, EntryKind, Extent, LayerIndex, Piece, Section, Span, Xattr};
use crate::columns::{ColumnWriter, join};
use crate::digest::Digest;
use crate::{PAGE_SIZE, round_up_to_page};

pub(super) const MAGIC: [u8; 8] = *b"XEBECIDX";
pub(super) const VERSION: u16 = 1;
/// The fixed header: everything before the section directory.
pub(super) const HEADER_SIZE: usize = 224;
/// One entry of the section directory.
pub(super) const SECTION_ENTRY_SIZE: usize = 32;
pub(super) const SECTION_SPANS: u32 = 1;
pub(super) const SECTION_TREE: u32 = 2;
pub(super) const COMPRESSION_ZSTD: u32 = 1;
pub(super) const HAS_DIFF_ID: u8 = 1;
pub(super) const HAS_WINDOWS: u8 = 2;
pub(super) const HAS_FRAME: u8 = 4;
pub(super) const HAS_CONTENTS: u8 = 8;
pub(super) const EXPLICIT_EXTENTS: u8 = 0x10;

/// Levels above gain under two percent on trees of Debian images and take twice the time.
const ZSTD_LEVEL: i32 = 9;

impl LayerIndex {
    /// The index as bytes. The same index gives the same bytes with the same version of this crate (another version
    /// of zstd may compress differently).
    ///
    /// Only an index that passes [`LayerIndex::check`] comes back from [`LayerIndex::decode`] as it was: of others, the
    /// bytes are refused or say something else.
    pub fn encode(&self) -> Vec<u8> {
        let sections = [
            (SECTION_SPANS, encode_spans(self)),
            (SECTION_TREE, encode_tree(&self.entries)),
        ];
        let mut out = encode_header(self, sections.len() as u16);
        let mut offset = (HEADER_SIZE + sections.len() * SECTION_ENTRY_SIZE) as u64;
        let mut bodies = Vec::new();
        for (kind, plain) in &sections {
            let stored = compress(plain);
            out.extend_from_slice(&kind.to_le_bytes());
            out.extend_from_slice(&COMPRESSION_ZSTD.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(&(stored.len() as u64).to_le_bytes());
            out.extend_from_slice(&(plain.len() as u64).to_le_bytes());
            offset += stored.len() as u64;
            bodies.extend_from_slice(&stored);
        }
        out.extend_from_slice(&bodies);
        out
    }

    /// The identity of an encoded index: the digest of its bytes, which is what manifests name and what is trusted.
    pub fn digest_of_encoded(bytes: &[u8]) -> Digest {
        Digest::of(bytes)
    }
}

#[expect(
    clippy::expect_used,
    reason = "zstd fails only without memory or with wrong parameters"
)]
fn compress(plain: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(plain, ZSTD_LEVEL).expect("zstd compresses what is in memory")
}

fn encode_header(index: &LayerIndex, sections: u16) -> Vec<u8> {
    let mut present = 0;
    for (bit, there) in [
        (HAS_DIFF_ID, index.diff_id.is_some()),
        (HAS_WINDOWS, index.windows.is_some()),
        (HAS_FRAME, index.frame.is_some()),
        (HAS_CONTENTS, index.contents.is_some()),
    ] {
        present |= if there { bit } else { 0 };
    }
    let mut out = Vec::with_capacity(HEADER_SIZE);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&0u16.to_le_bytes());
    out.push(codec_number(index.codec));
    out.push(present);
    out.extend_from_slice(&sections.to_le_bytes());
    for size in [index.layer_size, index.plain_size, index.data_size] {
        out.extend_from_slice(&size.to_le_bytes());
    }
    out.extend_from_slice(index.layer.as_bytes());
    out.extend_from_slice(&index.diff_id.as_ref().map_or([0; 32], |id| *id.as_bytes()));
    for section in [&index.windows, &index.frame, &index.contents] {
        let absent = Section {
            digest: Digest::from_bytes([0; 32]),
            size: 0,
        };
        let section = section.as_ref().unwrap_or(&absent);
        out.extend_from_slice(section.digest.as_bytes());
        out.extend_from_slice(&section.size.to_le_bytes());
    }
    debug_assert_eq!(out.len(), HEADER_SIZE);
    out
}

fn codec_number(codec: Codec) -> u8 {
    match codec {
        Codec::Tar => 0,
        Codec::Gzip => 1,
        Codec::Zstd => 2,
        Codec::Estargz => 3,
        Codec::ZstdChunked => 4,
    }
}

fn encode_spans(index: &LayerIndex) -> Vec<u8> {
    let mut columns = encode_pieces(&index.pieces);
    columns.extend(encode_span_columns(&index.spans, index.codec.has_plain_stream()));
    join(&[index.pieces.len() as u64, index.spans.len() as u64], &columns)
}

fn encode_pieces(pieces: &[Piece]) -> Vec<ColumnWriter> {
    let [mut plain, mut data, mut length] = <[ColumnWriter; 3]>::default();
    let mut last = Piece {
        plain_offset: 0,
        data_offset: 0,
        length: 0,
    };
    for piece in pieces {
        plain.difference(piece.plain_offset, expected_plain(&last));
        data.difference(piece.data_offset, expected_data(last.data_offset, last.length));
        length.number(piece.length);
        last = *piece;
    }
    vec![plain, data, length]
}

/// Where the contents after `last` start in a tar file of short names: after the padding and one header.
pub(super) fn expected_plain(last: &Piece) -> u64 {
    const TAR_BLOCK: u64 = 512;
    let end = last.plain_offset.wrapping_add(last.length);
    end.wrapping_add(end.wrapping_neg() % TAR_BLOCK)
        .wrapping_add(TAR_BLOCK)
}

/// Where the next file's contents start in the data space: at the next page boundary.
pub(super) fn expected_data(last_offset: u64, last_length: u64) -> u64 {
    round_up_to_page(last_offset.wrapping_add(last_length)).unwrap_or(0)
}

fn encode_span_columns(spans: &[Span], has_plain_stream: bool) -> [ColumnWriter; 11] {
    let mut columns = <[ColumnWriter; 11]>::default();
    let [
        source,
        source_length,
        bits,
        plain,
        plain_length,
        data,
        data_length,
        window,
        window_length,
        window_digest,
        digest,
    ] = &mut columns;
    let (mut last_source, mut last_plain, mut last_data, mut last_window) = (0, 0, 0, 0);
    for span in spans {
        source.difference(span.source.start, last_source);
        source_length.number(span.source.end.wrapping_sub(span.source.start));
        bits.byte(span.bit_offset);
        if has_plain_stream {
            plain.difference(span.plain.start, last_plain);
            plain_length.number(span.plain.end.wrapping_sub(span.plain.start));
        } else {
            // As long as `data`; its start says which part of the decoded chunk it is.
            plain.number(span.plain.start);
        }
        data.difference(span.data.start, last_data);
        data_length.number(span.data.end.wrapping_sub(span.data.start));
        window_length.number(span.window.as_ref().map_or(0, |w| u64::from(w.length)));
        if let Some(found) = &span.window {
            window.difference(found.offset, last_window);
            window_digest.bytes(found.digest.as_bytes());
            last_window = found.offset.wrapping_add(u64::from(found.length));
        }
        digest.bytes(span.digest.as_bytes());
        (last_source, last_plain, last_data) = (span.source.end, span.plain.end, span.data.end);
    }
    columns
}

/// The columns of the tree section, in their order in it.
#[derive(Default)]
struct TreeWriter<'a> {
    kinds: ColumnWriter,
    prefix_lengths: ColumnWriter,
    suffix_lengths: ColumnWriter,
    suffixes: ColumnWriter,
    owners: Table<(u16, u32, u32)>,
    owner_numbers: ColumnWriter,
    seconds: ColumnWriter,
    nanoseconds: ColumnWriter,
    xattrs: Table<&'a [Xattr]>,
    xattr_numbers: ColumnWriter,
    sizes: ColumnWriter,
    extents: ColumnWriter,
    link_lengths: ColumnWriter,
    links: ColumnWriter,
    devices: ColumnWriter,
    last_path: &'a [u8],
    last_seconds: i64,
    next_data: u64,
}

/// Distinct values in the order in which they were first seen.
struct Table<T> {
    values: Vec<T>,
    numbers: HashMap<T, u64>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

impl<T: std::hash::Hash + Eq + Copy> Table<T> {
    fn number(&mut self, value: T) -> u64 {
        *self.numbers.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u64 - 1
        })
    }
}

fn encode_tree(entries: &[Entry]) -> Vec<u8> {
    let mut writer = TreeWriter::default();
    for entry in entries {
        writer.entry(entry);
    }
    writer.finish(entries.len() as u64)
}

impl<'a> TreeWriter<'a> {
    fn entry(&mut self, entry: &'a Entry) {
        self.path(entry.path.as_bytes());
        let mut kind = kind_number(&entry.kind);
        match &entry.kind {
            EntryKind::File { size, extents } => {
                self.sizes.number(*size);
                if !extents_are_implied(*size, extents, self.next_data) {
                    kind |= EXPLICIT_EXTENTS;
                    self.explicit_extents(extents);
                }
                if let Some(last) = extents.last() {
                    self.next_data = expected_data(last.data_offset, last.length);
                }
            }
            EntryKind::Symlink { target } => self.link(target),
            EntryKind::Hardlink { target } => self.link(target.as_bytes()),
            EntryKind::CharDevice { major, minor } | EntryKind::BlockDevice { major, minor } => {
                self.devices.number(u64::from(*major));
                self.devices.number(u64::from(*minor));
            }
            EntryKind::Directory | EntryKind::Fifo | EntryKind::Whiteout | EntryKind::Opaque => {}
        }
        self.kinds.byte(kind);
        if !matches!(entry.kind, EntryKind::Whiteout | EntryKind::Opaque) {
            self.metadata(entry);
        }
    }

    fn path(&mut self, path: &'a [u8]) {
        let shared = path
            .iter()
            .zip(self.last_path)
            .take_while(|(a, b)| a == b)
            .count();
        self.prefix_lengths.number(shared as u64);
        self.suffix_lengths.number((path.len() - shared) as u64);
        self.suffixes.bytes(&path[shared..]);
        self.last_path = path;
    }

    fn metadata(&mut self, entry: &'a Entry) {
        let metadata = &entry.metadata;
        let owner = self.owners.number((metadata.mode, metadata.uid, metadata.gid));
        self.owner_numbers.number(owner);
        self.seconds
            .difference(metadata.mtime as u64, self.last_seconds as u64);
        self.last_seconds = metadata.mtime;
        self.nanoseconds.number(u64::from(metadata.mtime_nanoseconds));
        let set = match metadata.xattrs.is_empty() {
            true => 0,
            false => 1 + self.xattrs.number(&metadata.xattrs),
        };
        self.xattr_numbers.number(set);
    }

    fn explicit_extents(&mut self, extents: &[Extent]) {
        self.extents.number(extents.len() as u64);
        let (mut file_end, mut data_end) = (0, self.next_data);
        for extent in extents {
            let pages = |bytes: u64| bytes / PAGE_SIZE;
            self.extents
                .difference(pages(extent.file_offset), pages(file_end));
            self.extents
                .difference(pages(extent.data_offset), pages(data_end));
            self.extents.number(extent.length);
            file_end = expected_data(extent.file_offset, extent.length);
            data_end = expected_data(extent.data_offset, extent.length);
        }
    }

    fn link(&mut self, target: &[u8]) {
        self.link_lengths.number(target.len() as u64);
        self.links.bytes(target);
    }

    fn finish(self, count: u64) -> Vec<u8> {
        let mut owners = ColumnWriter::default();
        for (mode, uid, gid) in &self.owners.values {
            owners.number(u64::from(*mode));
            owners.number(u64::from(*uid));
            owners.number(u64::from(*gid));
        }
        let mut xattrs = ColumnWriter::default();
        for set in &self.xattrs.values {
            xattrs.number(set.len() as u64);
            for xattr in *set {
                xattrs.number(xattr.name.len() as u64);
                xattrs.bytes(&xattr.name);
                xattrs.number(xattr.value.len() as u64);
                xattrs.bytes(&xattr.value);
            }
        }
        join(
            &[
                count,
                self.owners.values.len() as u64,
                self.xattrs.values.len() as u64,
            ],
            &[
                self.kinds,
                self.prefix_lengths,
                self.suffix_lengths,
                self.suffixes,
                owners,
                self.owner_numbers,
                self.seconds,
                self.nanoseconds,
                xattrs,
                self.xattr_numbers,
                self.sizes,
                self.extents,
                self.link_lengths,
                self.links,
                self.devices,
            ],
        )
    }
}

fn kind_number(kind: &EntryKind) -> u8 {
    match kind {
        EntryKind::Directory => 0,
        EntryKind::File { .. } => 1,
        EntryKind::Symlink { .. } => 2,
        EntryKind::Hardlink { .. } => 3,
        EntryKind::CharDevice { .. } => 4,
        EntryKind::BlockDevice { .. } => 5,
        EntryKind::Fifo => 6,
        EntryKind::Whiteout => 7,
        EntryKind::Opaque => 8,
    }
}

/// Whether a file's extents are what a reader assumes: all of it in one, next in the data space.
fn extents_are_implied(size: u64, extents: &[Extent], next_data: u64) -> bool {
    match extents {
        [] => size == 0,
        [only] => only.file_offset == 0 && only.data_offset == next_data && only.length == size,
        _ => false,
    }
}
