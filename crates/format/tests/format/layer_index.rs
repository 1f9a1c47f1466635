//! The encoding of layer indexes: what goes in comes out, what comes from outside is checked.

use proptest::prelude::*;
use proptest::sample::Index;
use xebec_format::digest::Digest;
use xebec_format::layer::limits::MAX_SECTION;
use xebec_format::layer::{
    Codec, DecodeError, Entry, EntryKind, Extent, InvalidIndex, LayerIndex, Metadata, Piece, Section, Span,
    SpanTable, Xattr,
};
use xebec_format::path::LayerPath;

use crate::support::indexes::index;

/// Where the section directory is, and the fields of its entries (`docs/formats/layer-index.md`).
const DIRECTORY: usize = 224;
const ENTRY: usize = 32;

proptest! {
    #[test]
    fn any_index_comes_back(index in index()) {
        prop_assert_eq!(index.check(), Ok(()));
        let bytes = index.encode();
        prop_assert_eq!(&bytes, &index.encode());
        prop_assert_eq!(&LayerIndex::decode(&bytes).unwrap(), &index);
        prop_assert_eq!(SpanTable::decode(&bytes).unwrap(), index.span_table());
    }

    /// An index that is read back from damaged bytes keeps the promises, or decoding fails with an error; nothing panics.
    #[test]
    fn damaged_bytes_are_refused_or_sound(
        index in index(),
        damage in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in proptest::option::weighted(0.2, any::<Index>()),
    ) {
        let mut bytes = index.encode();
        apply(&mut bytes, &damage, cut);
        sound(&bytes)?;
    }

    /// The same with the damage inside the sections, which compression would mostly shield.
    #[test]
    fn damaged_sections_are_refused_or_sound(
        index in index(),
        tree in any::<bool>(),
        damage in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..4),
        cut in proptest::option::weighted(0.2, any::<Index>()),
    ) {
        let mut sections = plain_sections(&index.encode());
        apply(&mut sections[usize::from(tree)], &damage, cut);
        sound(&with_sections(&index.encode(), &sections))?;
    }
}

fn apply(bytes: &mut Vec<u8>, damage: &[(Index, u8)], cut: Option<Index>) {
    for (place, value) in damage {
        let place = place.index(bytes.len());
        bytes[place] = *value;
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(bytes.len()));
    }
}

fn sound(bytes: &[u8]) -> Result<(), TestCaseError> {
    let _ = SpanTable::decode(bytes);
    if let Ok(index) = LayerIndex::decode(bytes) {
        prop_assert_eq!(index.check(), Ok(()));
        prop_assert_eq!(LayerIndex::decode(&index.encode()).unwrap(), index);
    }
    Ok(())
}

fn field(bytes: &[u8], section: usize, at: usize) -> u64 {
    let at = DIRECTORY + section * ENTRY + at;
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The plain bytes of the span section and of the tree section.
fn plain_sections(bytes: &[u8]) -> [Vec<u8>; 2] {
    [0, 1].map(|n| {
        let (start, length) = (field(bytes, n, 8) as usize, field(bytes, n, 16) as usize);
        zstd::bulk::decompress(&bytes[start..start + length], field(bytes, n, 24) as usize).unwrap()
    })
}

/// An encoded index with other sections.
fn with_sections(bytes: &[u8], sections: &[Vec<u8>; 2]) -> Vec<u8> {
    let mut out = bytes[..DIRECTORY + 2 * ENTRY].to_vec();
    for (number, plain) in sections.iter().enumerate() {
        let stored = zstd::bulk::compress(plain, 1).unwrap();
        let fields = [out.len() as u64, stored.len() as u64, plain.len() as u64];
        for (n, value) in fields.into_iter().enumerate() {
            let at = DIRECTORY + number * ENTRY + 8 + n * 8;
            out[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&stored);
    }
    out
}

fn path(text: &str) -> LayerPath {
    LayerPath::normalize(text.as_bytes()).unwrap()
}

/// Two files and a link, in one span of a tar file.
fn small() -> LayerIndex {
    let metadata = Metadata {
        mode: 0o644,
        uid: 1,
        gid: 2,
        mtime: -3,
        mtime_nanoseconds: 4,
        xattrs: Vec::new(),
    };
    let xattrs = vec![Xattr {
        name: b"user.x".to_vec(),
        value: b"y".to_vec(),
    }];
    let file = |size, data_offset| EntryKind::File {
        size,
        extents: vec![Extent {
            file_offset: 0,
            data_offset,
            length: size,
        }],
    };
    let entries = vec![
        Entry {
            path: path("etc"),
            metadata: Metadata {
                mode: 0o755,
                ..metadata.clone()
            },
            kind: EntryKind::Directory,
        },
        Entry {
            path: path("etc/hostname"),
            metadata: metadata.clone(),
            kind: file(5, 0),
        },
        Entry {
            path: path("etc/hosts"),
            metadata: Metadata {
                xattrs,
                ..metadata.clone()
            },
            kind: file(5000, 4096),
        },
        Entry {
            path: path("etc/link"),
            metadata,
            kind: EntryKind::Symlink {
                target: b"hosts".to_vec(),
            },
        },
        Entry {
            path: path("gone"),
            metadata: Metadata::default(),
            kind: EntryKind::Whiteout,
        },
    ];
    let pieces = vec![
        Piece {
            plain_offset: 1024,
            data_offset: 0,
            length: 5,
        },
        Piece {
            plain_offset: 2048,
            data_offset: 4096,
            length: 5000,
        },
    ];
    let span = Span {
        source: 0..10240,
        bit_offset: 0,
        plain: 0..10240,
        data: 0..9096,
        window: None,
        digest: Digest::of(b"span"),
    };
    LayerIndex {
        layer: Digest::of(b"layer"),
        layer_size: 10240,
        diff_id: Some(Digest::of(b"layer")),
        codec: Codec::Tar,
        plain_size: 10240,
        data_size: 12288,
        entries,
        pieces,
        spans: vec![span],
        windows: None,
        frame: Some(Section {
            digest: Digest::of(b"frame"),
            size: 77,
        }),
        contents: Some(Section {
            digest: Digest::of(b"contents"),
            size: 64,
        }),
    }
}

#[test]
fn version_1_is_read_for_ever() {
    let committed = include_bytes!("../data/layer-index-1.bin");
    assert_eq!(LayerIndex::decode(committed).unwrap(), small());
}

#[test]
fn the_bytes_of_an_index_do_not_change() {
    let digest = LayerIndex::digest_of_encoded(&small().encode());
    assert_eq!(digest, Digest::of(include_bytes!("../data/layer-index-1.bin")));
}

#[test]
fn sizes_that_lie_are_refused_by_name() {
    let bytes = small().encode();
    let with = |at: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        LayerIndex::decode(&bytes).unwrap_err()
    };
    assert!(matches!(with(0, b"GZIP"), DecodeError::Magic));
    assert!(matches!(with(8, &[2, 0]), DecodeError::Version(2)));
    assert!(matches!(with(10, &[0, 1]), DecodeError::Features(256)));
    assert!(matches!(
        with(12, &[9]),
        DecodeError::Unknown {
            what: "codec",
            value: 9
        }
    ));
    let plain_size = DIRECTORY + 24;
    let huge = with(plain_size, &(MAX_SECTION + 1).to_le_bytes());
    assert!(
        matches!(
            huge,
            DecodeError::Limit {
                limit: MAX_SECTION,
                ..
            }
        ),
        "{huge}"
    );
    let short = with(plain_size, &3u64.to_le_bytes());
    assert!(
        matches!(short, DecodeError::Decompress { section: "spans", .. }),
        "{short}"
    );
    let long = with(plain_size, &MAX_SECTION.to_le_bytes());
    assert!(
        matches!(long, DecodeError::Decompress { section: "spans", .. }),
        "{long}"
    );
    let outside = with(DIRECTORY + 16, &u32::MAX.to_le_bytes());
    assert!(matches!(outside, DecodeError::Limit { .. }), "{outside}");
    assert!(matches!(
        LayerIndex::decode(&[&bytes[..], b"more"].concat()),
        Err(DecodeError::Trailing(_))
    ));
    assert!(matches!(
        LayerIndex::decode(&bytes[..100]),
        Err(DecodeError::Truncated(_))
    ));
    // A billion entries in a section of a few bytes.
    let count = [0x80, 0x94, 0xeb, 0xdc, 0x03, 0, 0];
    let sections = [plain_sections(&bytes)[0].clone(), count.to_vec()];
    let many = LayerIndex::decode(&with_sections(&bytes, &sections)).unwrap_err();
    assert!(
        matches!(
            many,
            DecodeError::Limit {
                value: 1_000_000_000,
                ..
            }
        ),
        "{many}"
    );
}

/// Variable-length numbers as the format has them.
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[test]
fn few_bytes_of_attributes_do_not_become_many() {
    // An attribute takes three bytes in the section, nothing to speak of compressed, and a hundred in memory.
    let attributes = (256 << 10) / 3;
    let set = [number(attributes), b"\x01a\0".repeat(attributes)].concat();
    let sets = 64;
    let column = set.repeat(sets);
    let tree = [vec![0, 0], number(sets), vec![0; 8], number(column.len()), column].concat();
    let bytes = small().encode();
    let bytes = with_sections(&bytes, &[plain_sections(&bytes)[0].clone(), tree]);
    assert!(bytes.len() < 64 << 10, "{} bytes", bytes.len());
    let refused = LayerIndex::decode(&bytes).unwrap_err();
    assert!(matches!(refused, DecodeError::Limit { .. }), "{refused}");
}

#[test]
fn no_room_is_made_for_rows_that_are_not_there() {
    let bytes = small().encode();
    let [spans, _] = plain_sections(&bytes);
    let tree = [number(4 << 20), vec![0; 16]].concat();
    let truncated = LayerIndex::decode(&with_sections(&bytes, &[spans, tree])).unwrap_err();
    assert!(matches!(truncated, DecodeError::Truncated(_)), "{truncated}");
}

proptest! {
    #[test]
    fn decoding_keeps_to_its_room(index in index()) {
        let bytes = index.encode();
        let mut asked = 0;
        LayerIndex::decode_within(&bytes, &mut |more| { asked += more; true }).unwrap();
        prop_assert!(asked >= index.weight(), "{asked} bytes were asked for, {} are held", index.weight());
        let mut left = asked - 1;
        let refused = LayerIndex::decode_within(&bytes, &mut |more| match left.checked_sub(more) {
            Some(less) => { left = less; true }
            None => false,
        });
        prop_assert!(matches!(refused, Err(DecodeError::NoRoom)));
    }
}

/// A way to break an index, and what must be said of it.
type Break = (fn(&mut LayerIndex), &'static str);

fn file_of(index: &mut LayerIndex, number: usize) -> (&mut u64, &mut Vec<Extent>) {
    match &mut index.entries[number].kind {
        EntryKind::File { size, extents } => (size, extents),
        other => panic!("{other:?}"),
    }
}

/// Has the first span give so many bytes of a data space that is large enough.
fn long_span(index: &mut LayerIndex, length: u64) {
    index.data_size = 1 << 40;
    index.spans[0].data.end = index.spans[0].data.start + length;
}

#[test]
fn every_broken_promise_is_named() {
    let cases: &[Break] = &[
        (|i| i.data_size += 1, "ends inside a page"),
        (
            |i| i.data_size = 4096,
            "over the end of the plain stream or the data",
        ),
        (|i| i.layer_size = 100, "outside the blob"),
        (|i| i.plain_size = 5000, "over the end of the plain stream"),
        (|i| i.codec = Codec::Estargz, "table of contents"),
        (
            |i| {
                i.windows = Some(Section {
                    digest: Digest::of(b""),
                    size: 1,
                })
            },
            "which only gzip needs",
        ),
        (
            |i| i.contents.as_mut().unwrap().size = 32,
            "32 bytes for each file",
        ),
        (|i| i.pieces[1].length = 0, "is empty"),
        (|i| i.pieces[1].length = u64::MAX, "longer than 64 bits"),
        (|i| i.pieces[1].plain_offset = 1026, "overlaps the one before"),
        (|i| i.pieces[1].data_offset = 3, "overlaps the one before"),
        (|i| i.spans.clear(), "is not inside the spans"),
        (|i| i.spans[0].data.end -= 1, "another range of the data space"),
        (|i| i.spans[0].data.start += 1, "another range of the data space"),
        (
            |i| i.spans[0].plain.start = 1025,
            "file contents that no span before it has",
        ),
        (|i| i.spans[0].plain.end = 20000, "ends after the plain stream"),
        // The longest range that a span may give, which these pieces do not need, and one byte more.
        (|i| long_span(i, 256 << 20), "another range of the data space"),
        (
            |i| long_span(i, (256 << 20) + 1),
            "longer range of the data space",
        ),
        (|i| i.spans[0].bit_offset = 8, "bit offset"),
        (|i| i.spans[0].source.end = 0, "empty source range"),
        (|i| i.spans[0].plain.end = 1 << 40, "more than a span may"),
        (|i| i.spans.push(i.spans[0].clone()), "overlaps the one before"),
        (|i| *file_of(i, 1).0 = 4, "reaches over its end"),
        (|i| file_of(i, 1).1[0].data_offset = 1, "page boundary"),
        (
            |i| file_of(i, 1).1[0].data_offset = 8192 + 4096,
            "outside the layer's data space",
        ),
        (
            |i| {
                i.data_size += 8192;
                file_of(i, 2).1[0].data_offset = 12288;
            },
            "contents that no span gives",
        ),
        (|i| *file_of(i, 2).0 = 6000, "ends inside a page"),
        (
            |i| {
                let (_, e) = file_of(i, 2);
                e.push(e[0])
            },
            "overlap",
        ),
        (|i| *file_of(i, 1).0 = u64::MAX, "larger than a file can be"),
        (|i| i.entries[1].metadata.mode = 0o10000, "mode bits"),
        (
            |i| i.entries[1].metadata.mtime_nanoseconds = 1_000_000_000,
            "a billion nanoseconds",
        ),
        (
            |i| {
                i.entries[2].metadata.xattrs.push(Xattr {
                    name: b"a".to_vec(),
                    value: vec![],
                })
            },
            "ascend by name",
        ),
        (
            |i| i.entries[2].metadata.xattrs[0].name = vec![b'a'; 256],
            "bad name",
        ),
        (
            |i| i.entries[2].metadata.xattrs[0].value = vec![0; 65537],
            "too long",
        ),
        (
            |i| i.entries[3].kind = EntryKind::Symlink { target: vec![] },
            "symbolic link",
        ),
        (
            |i| {
                i.entries[3].kind = EntryKind::Symlink {
                    target: vec![b'a'; 4096],
                }
            },
            "symbolic link",
        ),
        (|i| i.entries[4].path = LayerPath::root(), "whiteout of the root"),
        (|i| i.entries[1].path = LayerPath::root(), "root but no directory"),
        (|i| i.entries[4].metadata.uid = 1, "whiteout with metadata"),
    ];
    assert_eq!(small().check(), Ok(()));
    for (number, (damage, message)) in cases.iter().enumerate() {
        let mut index = small();
        damage(&mut index);
        let error: InvalidIndex = index.check().expect_err(&format!("case {number}: {message}"));
        assert!(
            error.to_string().contains(message),
            "case {number}: {error:?} does not say {message:?}"
        );
        // These two have no encoding: what is written is the entry without the fault.
        let unwritable = message.contains("whiteout with metadata") || message.contains("page boundary");
        assert_eq!(
            LayerIndex::decode(&index.encode()).is_ok(),
            unwritable,
            "case {number}: {message}"
        );
    }
}

#[test]
fn spans_and_pieces_are_found_by_range() {
    let table = small().span_table();
    assert_eq!(table.spans_of(0..1), 0..1);
    assert_eq!(table.spans_of(9096..12288), 1..1);
    assert_eq!(table.pieces_of(0..1025).len(), 1);
    assert_eq!(table.pieces_of(1029..2048).len(), 0);
    assert_eq!(table.pieces_of(1028..2049).len(), 2);
}
