//! Random layer indexes that keep every promise of their types.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use xebec_format::digest::Digest;
use xebec_format::layer::{
    Codec, Entry, EntryKind, Extent, LayerIndex, Metadata, Piece, Section, Span, Window, Xattr,
};
use xebec_format::path::LayerPath;

const PAGE: u64 = 4096;

fn path() -> impl Strategy<Value = LayerPath> {
    vec(
        vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0xfe), Just(b'.')], 1..5),
        1..5,
    )
    .prop_filter_map("dots", |names| {
        LayerPath::normalize(&names.join(&b'/'))
            .ok()
            .filter(|path| !path.is_root())
    })
}

pub(crate) fn metadata() -> impl Strategy<Value = Metadata> {
    let xattrs = btree_map(vec(1u8.., 1..20), vec(any::<u8>(), 0..40), 0..3).prop_map(|set| {
        set.into_iter()
            .map(|(name, value)| Xattr { name, value })
            .collect()
    });
    let xattrs = prop_oneof![3 => Just(Vec::new()), 1 => xattrs];
    (
        0u16..0o10000,
        any::<u32>(),
        any::<u32>(),
        any::<i64>(),
        0u32..1_000_000_000,
        xattrs,
    )
        .prop_map(|(mode, uid, gid, mtime, mtime_nanoseconds, xattrs)| Metadata {
            mode,
            uid,
            gid,
            mtime,
            mtime_nanoseconds,
            xattrs,
        })
}

/// An entry; files have their size, and their extents are laid out later, with holes where `true`.
fn entry() -> impl Strategy<Value = (Entry, Vec<(bool, u64)>)> {
    let plain = |kind: EntryKind| Just((kind, Vec::new()));
    let file = vec((any::<bool>(), 1u64..20_000), 0..4).prop_map(|runs| {
        (
            EntryKind::File {
                size: 0,
                extents: Vec::new(),
            },
            runs,
        )
    });
    let kind = prop_oneof![
        6 => file,
        2 => plain(EntryKind::Directory),
        1 => vec(1u8.., 1..60).prop_map(|target| (EntryKind::Symlink { target }, Vec::new())),
        1 => path().prop_map(|target| (EntryKind::Hardlink { target }, Vec::new())),
        1 => (any::<u32>(), any::<u32>())
            .prop_map(|(major, minor)| (EntryKind::CharDevice { major, minor }, Vec::new())),
        1 => (any::<u32>(), any::<u32>())
            .prop_map(|(major, minor)| (EntryKind::BlockDevice { major, minor }, Vec::new())),
        1 => plain(EntryKind::Fifo),
        1 => plain(EntryKind::Whiteout),
        1 => plain(EntryKind::Opaque),
    ];
    (path(), metadata(), kind).prop_map(|(path, metadata, (kind, runs))| {
        let bare = matches!(kind, EntryKind::Whiteout | EntryKind::Opaque);
        let metadata = if bare { Metadata::default() } else { metadata };
        (Entry { path, metadata, kind }, runs)
    })
}

fn section() -> impl Strategy<Value = Option<Section>> {
    option::of(any::<u64>().prop_map(|size| Section {
        digest: Digest::of(&size.to_le_bytes()),
        size,
    }))
}

pub(crate) fn index() -> impl Strategy<Value = LayerIndex> {
    let codec = prop_oneof![
        Just(Codec::Tar),
        Just(Codec::Gzip),
        Just(Codec::Zstd),
        Just(Codec::Estargz),
        Just(Codec::ZstdChunked),
    ];
    (
        codec,
        vec(entry(), 0..40),
        any::<bool>(),
        section(),
        500u64..50_000,
    )
        .prop_map(|(codec, entries, whole, frame, step)| {
            let mut layout = Layout::default();
            let entries: Vec<Entry> = entries
                .into_iter()
                .map(|(entry, runs)| layout.entry(entry, &runs))
                .collect();
            let files = entries
                .iter()
                .filter(|e| matches!(e.kind, EntryKind::File { size: 1.., .. }))
                .count();
            let contents = Section {
                digest: Digest::of(b"contents"),
                size: files as u64 * 32,
            };
            let stream = codec.has_plain_stream();
            let spans = if stream {
                layout.stream_spans(codec, step)
            } else {
                layout.chunks(step)
            };
            let windows = spans
                .iter()
                .filter_map(|s| s.window.as_ref())
                .map(|w| w.offset + u64::from(w.length));
            let windows = windows.max().map(|size| Section {
                digest: Digest::of(b"windows"),
                size,
            });
            LayerIndex {
                layer: Digest::of(b"layer"),
                layer_size: 1 << 40,
                diff_id: (whole && stream).then(|| Digest::of(b"plain")),
                codec,
                plain_size: if stream { layout.plain } else { 0 },
                data_size: layout.data,
                pieces: if stream { layout.pieces } else { Vec::new() },
                entries,
                spans,
                windows,
                frame,
                contents: whole.then_some(contents),
            }
        })
}

/// Where contents go in the plain stream and in the data space.
#[derive(Default)]
struct Layout {
    plain: u64,
    data: u64,
    pieces: Vec<Piece>,
}

impl Layout {
    fn entry(&mut self, entry: Entry, runs: &[(bool, u64)]) -> Entry {
        let EntryKind::File { .. } = entry.kind else {
            return entry;
        };
        self.plain += 512 + runs.len() as u64 / 2 * 512;
        let mut extents: Vec<Extent> = Vec::new();
        let mut size = 0;
        for (number, &(hole, length)) in runs.iter().enumerate() {
            if hole {
                size += length;
                continue;
            }
            size = u64::next_multiple_of(size, PAGE);
            // Only the last run may end inside a page.
            let last = number + 1 == runs.len();
            let length = if last {
                length
            } else {
                length.next_multiple_of(PAGE)
            };
            extents.push(Extent {
                file_offset: size,
                data_offset: self.data,
                length,
            });
            self.pieces.push(Piece {
                plain_offset: self.plain,
                data_offset: self.data,
                length,
            });
            self.plain += length;
            self.data = (self.data + length).next_multiple_of(PAGE);
            size += length;
        }
        self.plain = self.plain.next_multiple_of(512);
        Entry {
            kind: EntryKind::File { size, extents },
            ..entry
        }
    }

    /// Cuts the plain stream every `step` bytes.
    fn stream_spans(&self, codec: Codec, step: u64) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut windows = 0;
        for start in (0..self.plain).step_by(step as usize) {
            let end = (start + step).min(self.plain);
            let inside: Vec<(u64, u64)> = self
                .pieces
                .iter()
                .filter(|p| p.plain_offset < end && p.plain_offset + p.length > start)
                .map(|p| {
                    let from = start.max(p.plain_offset);
                    let to = end.min(p.plain_offset + p.length);
                    let place = |at: u64| p.data_offset + (at - p.plain_offset);
                    (place(from), place(to))
                })
                .collect();
            let (Some(first), Some(last)) = (inside.first(), inside.last()) else {
                continue;
            };
            let gzip = codec == Codec::Gzip;
            let window = (gzip && start > 0).then(|| Window {
                offset: windows,
                length: 1000 + spans.len() as u32,
                digest: Digest::of(&start.to_be_bytes()),
            });
            windows += window.as_ref().map_or(0, |w| u64::from(w.length));
            spans.push(Span {
                source: start / 3..end / 3 + 1,
                bit_offset: if gzip { (start % 8) as u8 } else { 0 },
                plain: start..end,
                data: first.0..last.1,
                window,
                digest: Digest::of(&start.to_le_bytes()),
            });
        }
        spans
    }

    /// Chunks of each run of contents, each a blob range of its own.
    fn chunks(&self, step: u64) -> Vec<Span> {
        let step = step.next_multiple_of(PAGE);
        let mut spans = Vec::new();
        for piece in &self.pieces {
            for start in (0..piece.length).step_by(step as usize) {
                let length = step.min(piece.length - start);
                let at = piece.data_offset + start;
                spans.push(Span {
                    source: at / 2..at / 2 + length,
                    bit_offset: 0,
                    plain: 0..length,
                    data: at..at + length,
                    window: None,
                    digest: Digest::of(&at.to_le_bytes()),
                });
            }
        }
        spans
    }
}
