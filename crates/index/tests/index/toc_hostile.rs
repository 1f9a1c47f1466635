//! Hand-made tables of contents: what is unusual but sound is understood, what lies is refused by name.

use std::collections::BTreeMap;
use std::io::Write;

use proptest::prelude::*;
use serde_json::{Value, json};
use xebec_format::digest::Digest;
use xebec_format::layer::{EntryKind, LayerIndex};
use xebec_index::toc::{Blob, Supplied, TableOfContents, TocError, TocProblem, estargz, zstd_chunked};

use crate::tar_support::Block;

const PAYLOAD: usize = 10_000;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An eStargz blob with `PAYLOAD` bytes of nothing in front of `table`.
fn estargz_blob(table: &[u8]) -> Vec<u8> {
    let mut blob = vec![0; PAYLOAD];
    blob.extend(table);
    blob.extend([0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, 26, 0, b'S', b'G', 22, 0]);
    blob.extend(format!("{PAYLOAD:016x}STARGZ").as_bytes());
    blob.extend([1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    blob
}

fn estargz_table(json: &[u8]) -> Vec<u8> {
    let mut tar = Block::new(b'0', b"stargz.index.json", json.len() as u64).member(json);
    tar.extend([0; 1024]);
    gzip(&tar)
}

fn supply_all(blob: &[u8], annotations: &BTreeMap<String, String>) -> Result<LayerIndex, TocError> {
    let described = Blob {
        digest: Digest::of(blob),
        size: blob.len() as u64,
    };
    let mut table = TableOfContents::detect(described, annotations)?.expect("annotated");
    for _ in 0..2 {
        let wanted = table.wanted();
        match table.supply(&blob[wanted.start as usize..wanted.end as usize])? {
            Supplied::More(more) => table = more,
            Supplied::Index(index) => return Ok(*index),
        }
    }
    panic!("more than two requests");
}

fn estargz(json: &[u8]) -> Result<LayerIndex, TocError> {
    let digest = Digest::of(json).to_string();
    let annotations = [(estargz::DIGEST_ANNOTATION.to_owned(), digest)].into();
    supply_all(&estargz_blob(&estargz_table(json)), &annotations)
}

fn zstd_chunked(json: &[u8]) -> Result<LayerIndex, TocError> {
    let manifest = zstd::bulk::compress(json, 3).unwrap();
    let mut blob = vec![0; PAYLOAD + 8];
    blob.extend(&manifest);
    let position = format!("{}:{}:{}:1", PAYLOAD + 8, manifest.len(), json.len());
    let annotations = [
        (
            zstd_chunked::CHECKSUM_ANNOTATION.to_owned(),
            Digest::of(&manifest).to_string(),
        ),
        (zstd_chunked::POSITION_ANNOTATION.to_owned(), position),
    ];
    supply_all(&blob, &annotations.into())
}

fn table(entries: &[Value]) -> Vec<u8> {
    json!({"version": 1, "entries": entries}).to_string().into_bytes()
}

fn digest() -> String {
    Digest::of(b"chunk").to_string()
}

/// A file of one chunk, with `fields` on top.
fn file(fields: Value) -> Value {
    let mut file = json!({"type": "reg", "name": "file", "size": 100, "offset": 50, "chunkDigest": digest()});
    for (key, value) in fields.as_object().unwrap() {
        file[key] = value.clone();
    }
    file
}

/// The problem that both formats report for a table that holds `entries`.
fn problem(entries: &[Value]) -> TocProblem {
    let json = table(entries);
    let problems = [estargz(&json), zstd_chunked(&json)].map(|result| match result {
        Err(TocError::Entry { problem, .. }) => problem,
        other => panic!("{other:?}"),
    });
    let [first, second] = problems;
    assert_eq!(first, second);
    first
}

fn sound(entries: &[Value]) -> LayerIndex {
    let json = table(entries);
    let index = zstd_chunked(&json).unwrap();
    assert_eq!(estargz(&json).unwrap().entries, index.entries);
    index
}

#[test]
fn entries_mean_what_they_mean_in_tar() {
    let index = sound(&[
        json!({"type": "dir", "name": "./", "mode": 0o755}),
        json!({"type": "reg", "name": "stargz.index.json", "size": 5, "offset": 1, "digest": digest()}),
        json!({"type": "reg", "name": ".prefetch.landmark", "size": 1, "offset": 20, "digest": digest()}),
        json!({"type": "reg", "name": "a/.prefetch.landmark", "offset": 0}),
        json!({"type": "reg", "name": "a/.wh.b", "size": 0}),
        json!({"type": "reg", "name": "a/.wh..wh..opq"}),
        json!({"type": "hardlink", "name": "/link", "linkName": "./a/x"}),
        json!({"type": "char", "name": "null", "devMajor": 1, "devMinor": 3, "modtime": "2020-01-01T00:00:00.5+01:00",
               "xattrs": {"user.a": "YQ==", "security.b": "", "trusted.c": "YQ=="}, "userName": "root"}),
    ]);
    let shown: Vec<String> = index
        .entries
        .iter()
        .map(|entry| format!("{} {:?}", entry.path, entry.kind))
        .collect();
    let expected = [
        "/ Directory",
        "/a/.prefetch.landmark File { size: 0, extents: [] }",
        "/a/b Whiteout",
        "/a Opaque",
        "/link Hardlink { target: /a/x }",
        "/null CharDevice { major: 1, minor: 3 }",
    ];
    assert_eq!(shown, expected);
    let null = &index.entries[5].metadata;
    assert_eq!((null.mtime, null.mtime_nanoseconds), (1_577_833_200, 500_000_000));
    assert_eq!(null.xattrs.len(), 1, "neither trusted.* nor user.* on a device");
}

#[test]
fn go_writes_an_empty_list_as_null() {
    assert!(
        estargz(br#"{"version":1,"entries":null}"#)
            .unwrap()
            .entries
            .is_empty()
    );
    assert!(
        estargz(br#"{"version":1,"entries":[],"tarSplitDigest":"x"}"#)
            .unwrap()
            .entries
            .is_empty()
    );
}

#[test]
fn chunks_end_where_the_next_one_starts() {
    let index = sound(&[
        file(json!({"name": "a", "size": 10_000, "chunkSize": 6000, "offset": 100})),
        json!({"type": "chunk", "name": "a", "chunkOffset": 6000, "offset": 900, "chunkDigest": digest()}),
        file(json!({"name": "b", "offset": 400, "innerOffset": 7})),
        file(json!({"name": "c", "offset": 400, "innerOffset": 700})),
        file(json!({"name": "d", "offset": 5000, "chunkDigest": "", "digest": digest(), "endOffset": 6000})),
    ]);
    let spans: Vec<_> = index
        .spans
        .iter()
        .map(|s| (s.source.clone(), s.plain.clone(), s.data.clone()))
        .collect();
    let expected = [
        (100..400, 0..6000, 0..6000),
        (900..5000, 0..4000, 6000..10_000),
        (400..900, 7..107, 12_288..12_388),
        (400..900, 700..800, 16_384..16_484),
        (5000..6000, 0..100, 20_480..20_580),
    ];
    assert_eq!(spans, expected);
    assert_eq!(index.data_size, 24_576);
}

#[test]
fn zeros_are_holes() {
    let zeros = json!({"type": "chunk", "name": "file", "chunkOffset": 5000, "chunkSize": 20_000, "offset": 90,
                       "chunkType": "zeros"});
    let tail = json!({"type": "chunk", "name": "file", "chunkOffset": 25_000, "chunkSize": 1000, "offset": 95,
                      "chunkDigest": digest()});
    let index = sound(&[
        file(json!({"size": 26_000, "chunkSize": 5000})),
        zeros.clone(),
        tail,
    ]);
    let EntryKind::File { extents, .. } = &index.entries[0].kind else {
        panic!()
    };
    let extents: Vec<_> = extents
        .iter()
        .map(|e| (e.file_offset, e.data_offset, e.length))
        .collect();
    assert_eq!(extents, [(0, 0, 8192), (24_576, 8192, 1424)]);
    let spans: Vec<_> = index
        .spans
        .iter()
        .map(|s| (s.source.clone(), s.data.clone()))
        .collect();
    assert_eq!(spans, [(50..90, 0..5000), (95..PAYLOAD as u64, 8616..9616)]);
    // Nothing but zeros takes no space at all.
    let all = file(json!({"size": 1u64 << 40, "chunkType": "zeros", "chunkDigest": ""}));
    let index = sound(&[all]);
    assert_eq!((index.data_size, index.spans.len()), (0, 0));
    assert!(
        matches!(&index.entries[0].kind, EntryKind::File { size, extents } if *size == 1u64 << 40 && extents.is_empty())
    );
}

#[test]
fn entries_that_lie() {
    let with = |fields| problem(&[file(fields)]);
    assert!(matches!(
        with(json!({"name": "../etc/passwd"})),
        TocProblem::Entry(_)
    ));
    assert!(matches!(with(json!({"name": "a\0b"})), TocProblem::Entry(_)));
    assert!(matches!(with(json!({"uid": 1u64 << 33})), TocProblem::Entry(_)));
    assert_eq!(
        with(json!({"type": "socket"})),
        TocProblem::Type("socket".to_owned())
    );
    assert_eq!(
        with(json!({"modtime": "yesterday"})),
        TocProblem::Time("yesterday".to_owned())
    );
    assert_eq!(
        with(json!({"xattrs": {"user.a": "?"}})),
        TocProblem::Xattr("user.a".to_owned())
    );
    assert_eq!(with(json!({"size": -1})), TocProblem::Negative("size"));
    assert_eq!(with(json!({"offset": -1})), TocProblem::Negative("offset"));
    assert_eq!(
        with(json!({"innerOffset": -1})),
        TocProblem::Negative("innerOffset")
    );
    assert_eq!(with(json!({"chunkDigest": ""})), TocProblem::NoDigest(0));
    assert_eq!(
        with(json!({"chunkDigest": "md5:1"})),
        TocProblem::Digest("md5:1".to_owned())
    );
    assert_eq!(
        with(json!({"chunkType": "ones"})),
        TocProblem::ChunkType("ones".to_owned())
    );
    assert!(matches!(with(json!({"chunkSize": 99})), TocProblem::Chunks(_)));
    assert!(matches!(with(json!({"chunkSize": 101})), TocProblem::Chunks(_)));
    assert!(matches!(with(json!({"chunkOffset": 1})), TocProblem::Chunks(_)));
    assert_eq!(with(json!({"offset": 0})), TocProblem::Offset(0));
    assert_eq!(
        with(json!({"offset": PAYLOAD})),
        TocProblem::Offset(PAYLOAD as u64)
    );
    assert_eq!(
        with(json!({"offset": i64::MAX})),
        TocProblem::Offset(i64::MAX as u64)
    );
    assert_eq!(with(json!({"endOffset": PAYLOAD + 1})), TocProblem::Offset(50));
    assert_eq!(with(json!({"endOffset": 50})), TocProblem::Offset(50));
    assert_eq!(
        with(json!({"innerOffset": i64::MAX})),
        TocProblem::ChunkTooLarge(0)
    );
    assert_eq!(
        with(json!({"size": (64 << 20) + 1})),
        TocProblem::ChunkTooLarge(0)
    );
    let chunk =
        json!({"type": "chunk", "name": "file", "chunkOffset": 50, "offset": 60, "chunkDigest": digest()});
    assert_eq!(problem(std::slice::from_ref(&chunk)), TocProblem::StrayChunk);
    assert_eq!(
        problem(&[json!({"type": "dir", "name": "file"}), chunk.clone()]),
        TocProblem::StrayChunk
    );
    assert_eq!(
        problem(&[file(json!({"name": "other"})), chunk.clone()]),
        TocProblem::StrayChunk
    );
    assert!(matches!(
        problem(&[file(json!({"chunkSize": 60})), chunk.clone()]),
        TocProblem::Chunks(_)
    ));
    assert!(matches!(
        problem(&[file(json!({"chunkSize": 50})), chunk.clone(), chunk]),
        TocProblem::Chunks(_)
    ));
}

#[test]
fn sizes_that_no_layer_has() {
    let huge: Vec<Value> = (0..3)
        .map(|_| file(json!({"size": i64::MAX, "chunkSize": i64::MAX})))
        .collect();
    for result in [estargz(&table(&huge)), zstd_chunked(&table(&huge))] {
        assert!(matches!(result, Err(TocError::Limit { .. })), "{result:?}");
    }
}

#[test]
fn tables_that_are_none() {
    assert!(matches!(
        estargz(br#"{"version":2,"entries":[]}"#),
        Err(TocError::Version(2))
    ));
    assert!(matches!(estargz(br#"{"entries":[]}"#), Err(TocError::Version(0))));
    for json in [
        &b""[..],
        b"[]",
        b"{",
        br#"{"version":1,"entries":[]}x"#,
        br#"{"version":1,"entries":[1]}"#,
        br#"{"version":1,"entries":[],"entries":[]}"#,
        br#"{"version":1,"entries":[{"type":5}]}"#,
    ] {
        assert!(
            matches!(estargz(json), Err(TocError::Json(_))),
            "{}",
            json.escape_ascii()
        );
    }
    let deep = [b"{\"x\":".as_slice(), &b"[".repeat(100_000)].concat();
    assert!(matches!(zstd_chunked(&deep), Err(TocError::Json(_))));

    let json = table(&[]);
    let annotations: BTreeMap<String, String> = [(
        estargz::DIGEST_ANNOTATION.to_owned(),
        Digest::of(&json).to_string(),
    )]
    .into();
    let with_table = |bytes: &[u8]| supply_all(&estargz_blob(bytes), &annotations).unwrap_err();
    assert!(matches!(with_table(b"no gzip"), TocError::GzipHeader));
    assert!(matches!(
        with_table(&gzip(b"no tar, but long enough to be a block").repeat(9)),
        TocError::Tar(_)
    ));
    assert!(matches!(with_table(&gzip(&[0; 1024])), TocError::NoTable));
    let other = Block::new(b'0', b"other.json", json.len() as u64).member(&json);
    assert!(matches!(with_table(&gzip(&other)), TocError::NoTable));
    let whole = estargz_table(&json);
    assert!(matches!(
        with_table(&whole[..whole.len() - 20]),
        TocError::Inflate(_) | TocError::Tar(_)
    ));
    assert!(matches!(
        with_table(&estargz_table(b"other")),
        TocError::Digest { .. }
    ));
    assert!(matches!(
        supply_all(&[0; 1000], &annotations),
        Err(TocError::Footer(_))
    ));
    assert!(matches!(
        supply_all(&[0; 10], &annotations),
        Err(TocError::BlobTooSmall(10))
    ));
}

/// 200 MiB of zeros in a table of 200 KB.
#[test]
fn bombs_are_refused() {
    let bomb = vec![b' '; 200 << 20];
    let annotations = [(
        estargz::DIGEST_ANNOTATION.to_owned(),
        Digest::of(&bomb).to_string(),
    )]
    .into();
    let refused = supply_all(&estargz_blob(&estargz_table(&bomb)), &annotations).unwrap_err();
    assert!(
        matches!(refused, TocError::Tar(_) | TocError::TooLarge { .. }),
        "{refused}"
    );
    let refused = supply_all(&estargz_blob(&gzip(&bomb)), &annotations).unwrap_err();
    assert!(matches!(refused, TocError::Tar(_)), "{refused}");
    assert!(matches!(zstd_chunked(&bomb), Err(TocError::TooLarge { .. })));

    // A manifest that is longer than it says.
    let manifest = zstd::bulk::compress(&bomb, 3).unwrap();
    let mut blob = vec![0; 16];
    blob.extend(&manifest);
    let annotations = [
        (
            zstd_chunked::CHECKSUM_ANNOTATION.to_owned(),
            Digest::of(&manifest).to_string(),
        ),
        (
            zstd_chunked::POSITION_ANNOTATION.to_owned(),
            format!("16:{}:100:1", manifest.len()),
        ),
    ];
    assert!(matches!(
        supply_all(&blob, &annotations.into()),
        Err(TocError::Zstd(_))
    ));
}

#[test]
fn layers_without_annotations_have_no_table() {
    let blob = Blob {
        digest: Digest::of(b""),
        size: 1000,
    };
    assert_eq!(TableOfContents::detect(blob, &BTreeMap::new()).unwrap(), None);
    // A position without a checksum vouches for nothing.
    let position = [(zstd_chunked::POSITION_ANNOTATION.to_owned(), "1:2:3:1".to_owned())].into();
    assert_eq!(TableOfContents::detect(blob, &position).unwrap(), None);
    let bad = [(estargz::DIGEST_ANNOTATION.to_owned(), "sha256:1".to_owned())].into();
    assert!(matches!(
        TableOfContents::detect(blob, &bad),
        Err(TocError::Annotation { .. })
    ));
    let table = [(estargz::DIGEST_ANNOTATION.to_owned(), digest())].into();
    let table = TableOfContents::detect(blob, &table).unwrap().unwrap();
    assert!(matches!(
        table.supply(b"short"),
        Err(TocError::Length {
            expected: 1000,
            given: 5
        })
    ));
}

/// Values that a field of an entry may be given.
fn wild() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(|n| json!(n)),
        (-2i64..20_000).prop_map(|n| json!(n)),
        prop::sample::select(vec![
            "", "reg", "chunk", "dir", "hardlink", "file", "a/.wh.b", "..", "zeros"
        ])
        .prop_map(|text| json!(text)),
        Just(json!(digest())),
        Just(Value::Null),
    ]
}

fn wild_entry() -> impl Strategy<Value = Value> {
    let field = prop::sample::select(vec![
        "type",
        "name",
        "linkName",
        "size",
        "mode",
        "uid",
        "gid",
        "modtime",
        "devMajor",
        "xattrs",
        "digest",
        "offset",
        "endOffset",
        "innerOffset",
        "chunkOffset",
        "chunkSize",
        "chunkDigest",
        "chunkType",
    ]);
    let base = prop_oneof![
        Just(file(json!({"chunkSize": 50}))),
        Just(
            json!({"type": "chunk", "name": "file", "chunkOffset": 50, "offset": 60, "chunkDigest": digest()})
        ),
        Just(file(json!({"name": "other"}))),
    ];
    (base, proptest::collection::vec((field, wild()), 0..3)).prop_map(|(mut entry, fields)| {
        for (field, value) in fields {
            entry[field] = value;
        }
        entry
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_entries_are_a_sound_index_or_refused(entries in proptest::collection::vec(wild_entry(), 0..6)) {
        let json = table(&entries);
        for index in [estargz(&json), zstd_chunked(&json)].into_iter().flatten() {
            prop_assert_eq!(index.check(), Ok(()));
            prop_assert_eq!(LayerIndex::decode(&index.encode()).unwrap(), index);
        }
    }

    #[test]
    fn any_bytes_are_a_table_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), gzipped in any::<bool>()) {
        let _ = estargz(&bytes);
        let _ = zstd_chunked(&bytes);
        let annotations = [(estargz::DIGEST_ANNOTATION.to_owned(), digest())].into();
        let member = if gzipped { gzip(&bytes) } else { bytes };
        prop_assert!(supply_all(&estargz_blob(&member), &annotations).is_err());
        prop_assert!(supply_all(&member.repeat(3), &annotations).is_err());
    }
}
