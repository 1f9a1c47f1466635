//! Archives that lie, overflow or break off: each is rejected by name, in bounded memory and without a panic.

use proptest::prelude::*;
use xebec_format::layer::EntryKind;
use xebec_index::tar::{EntryProblem, HeaderProblem, SparseProblem, TarError, TarLimits, TarParser};

use crate::tar_support::{Block, Collected, END, gnu_long, parse, parse_cut, parse_limited, pax, pax_record};

fn entry_problem(archive: &[u8]) -> EntryProblem {
    match parse(archive) {
        Err(TarError::Entry { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

fn header_problem(archive: &[u8]) -> HeaderProblem {
    match parse(archive) {
        Err(TarError::Header { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

fn limit(archive: &[u8], limits: TarLimits) -> &'static str {
    match parse_limited(archive, &[], limits) {
        Err(TarError::Limit { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

/// A member whose name, link or other text comes from PAX records.
fn with_pax(records: &[(&[u8], &[u8])], kind: u8) -> Vec<u8> {
    [
        pax(b'x', records),
        Block::new(kind, b"name", 0).with(157, b"target").finish(),
    ]
    .concat()
}

#[test]
fn paths_that_escape_or_cannot_be() {
    let name = |name: &[u8]| entry_problem(&Block::new(b'0', name, 0).finish());
    for escape in [&b".."[..], b"../a", b"a/../b", b"/..", b"a/.."] {
        assert!(
            matches!(name(escape), EntryProblem::Path(_)),
            "{}",
            escape.escape_ascii()
        );
    }
    let long = [b'a'; 256];
    assert!(matches!(
        entry_problem(&with_pax(&[(b"path", &long)], b'0')),
        EntryProblem::Path(_)
    ));
    let deep = b"a/".repeat(40_000);
    assert!(matches!(
        entry_problem(&with_pax(&[(b"path", &deep)], b'0')),
        EntryProblem::Path(_)
    ));
    assert!(matches!(
        entry_problem(&with_pax(&[(b"linkpath", b"a/../../b")], b'1')),
        EntryProblem::LinkPath(_)
    ));
    for target in [&b"/"[..], b"./", b"name", b"/./name"] {
        assert_eq!(
            entry_problem(&with_pax(&[(b"linkpath", target)], b'1')),
            EntryProblem::LinkTarget
        );
    }
    for whiteout in [&b".wh."[..], b"a/.wh..", b"a/.wh...", b".wh./"] {
        assert_eq!(name(whiteout), EntryProblem::Whiteout);
    }
}

#[test]
fn symlink_targets() {
    let target = [b'a'; 4096];
    assert_eq!(
        entry_problem(&with_pax(&[(b"linkpath", &target)], b'2')),
        EntryProblem::SymlinkTarget(4096)
    );
    assert_eq!(
        entry_problem(&Block::new(b'2', b"a", 0).finish()),
        EntryProblem::SymlinkTarget(0)
    );
    let longest = parse(&with_pax(&[(b"linkpath", &target[1..])], b'2')).unwrap();
    assert!(matches!(&longest.entries[0].kind, EntryKind::Symlink { target } if target.len() == 4095));
}

#[test]
fn types_numbers_and_owners() {
    for kind in [b'A', b'V', b'M', b'D', b'8', 0xff] {
        assert_eq!(
            entry_problem(&Block::new(kind, b"a", 0).finish()),
            EntryProblem::Type(kind)
        );
    }
    let number = |at, bytes: &[u8]| header_problem(&Block::new(b'0', b"a", 0).with(at, bytes).finish());
    for (at, field) in [
        (100, "mode"),
        (108, "uid"),
        (116, "gid"),
        (124, "size"),
        (136, "mtime"),
        (329, "devmajor"),
    ] {
        assert_eq!(number(at, b"x"), HeaderProblem::Number(field));
    }
    let huge = b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff";
    assert_eq!(number(124, huge), HeaderProblem::Number("size"));
    let negative = [0xff; 12];
    let negative_size = Block::new(b'0', b"a", 0).with(124, &negative).finish();
    assert_eq!(entry_problem(&negative_size), EntryProblem::NegativeSize);
    let special = Block::new(b'x', b"a", 0).with(124, &negative).finish();
    assert_eq!(header_problem(&special), HeaderProblem::NegativeSize);
    for (key, value) in [("uid", "4294967296"), ("gid", "-2147483649")] {
        let problem = entry_problem(&with_pax(&[(key.as_bytes(), value.as_bytes())], b'0'));
        assert_eq!(problem, EntryProblem::Owner(key, value.parse().unwrap()));
    }
    for key in ["uid", "gid", "size", "mtime", "atime", "ctime"] {
        let problem = entry_problem(&with_pax(&[(key.as_bytes(), b"1e3")], b'0'));
        assert_eq!(problem, EntryProblem::Number(key));
    }
    let device = Block::new(b'3', b"a", 0).with(329, b"0010000\0").finish();
    assert_eq!(entry_problem(&device), EntryProblem::Device(4096, 0));
    let device = Block::new(b'4', b"a", 0).with(337, b"4000000\0").finish();
    assert_eq!(entry_problem(&device), EntryProblem::Device(0, 1 << 20));
}

#[test]
fn extended_attributes() {
    let name = [b"SCHILY.xattr.user.".as_slice(), &[b'a'; 251]].concat();
    assert!(matches!(
        entry_problem(&with_pax(&[(&name, b"")], b'0')),
        EntryProblem::XattrName(_)
    ));
    for name in [
        &b"SCHILY.xattr."[..],
        b"SCHILY.xattr.user.",
        b"SCHILY.xattr.security.",
    ] {
        assert!(matches!(
            entry_problem(&with_pax(&[(name, b"1")], b'0')),
            EntryProblem::XattrName(_)
        ));
    }
    let value = vec![1; 65537];
    let problem = entry_problem(&with_pax(&[(b"SCHILY.xattr.user.a", &value)], b'0'));
    assert_eq!(problem, EntryProblem::XattrValue("user.a".to_owned()));
    let names: Vec<Vec<u8>> = (0..4)
        .map(|n| format!("SCHILY.xattr.user.{n}").into_bytes())
        .collect();
    let records: Vec<(&[u8], &[u8])> = names
        .iter()
        .map(|name| (name.as_slice(), &value[..65536]))
        .collect();
    assert_eq!(
        entry_problem(&with_pax(&records, b'0')),
        EntryProblem::Xattrs(TarLimits::XATTRS)
    );
    assert!(parse(&with_pax(&records[..2], b'0')).is_ok());
}

#[test]
fn checksums_and_end_blocks() {
    let mut block = Block::new(b'0', b"a", 0).finish();
    block[0] = b'b';
    assert_eq!(header_problem(&block), HeaderProblem::Checksum);
    assert_eq!(header_problem(&[0x1f; 512]), HeaderProblem::Checksum);
    let after_end = [&END[..512], &Block::new(b'0', b"a", 0).finish()].concat();
    assert_eq!(header_problem(&after_end), HeaderProblem::AfterEndBlock);
}

#[test]
fn pax_headers() {
    let raw = |body: &[u8]| Block::new(b'x', b"p", body.len() as u64).member(body);
    assert_eq!(header_problem(&raw(b"99 a=b\n")), HeaderProblem::PaxRecord);
    assert_eq!(header_problem(&raw(b"9 path=\0\n")), HeaderProblem::PaxRecord);
    let map = [
        pax_record(b"GNU.sparse.numbytes", b"1"),
        pax_record(b"GNU.sparse.offset", b"1"),
    ]
    .concat();
    assert_eq!(header_problem(&raw(&map)), HeaderProblem::PaxSparseOrder);
    for kind in [b'x', b'g', b'L', b'K'] {
        let huge = Block::new(kind, b"p", TarLimits::SPECIAL + 1).finish();
        assert_eq!(limit(&huge, TarLimits::default()), "a PAX header or long name");
    }
}

#[test]
fn sparse_maps_that_lie() {
    let v01 = |map: &[u8], blocks: &[u8], size: &[u8], stored: u64| {
        let records: &[(&[u8], &[u8])] = &[
            (b"GNU.sparse.map", map),
            (b"GNU.sparse.numblocks", blocks),
            (b"GNU.sparse.size", size),
        ];
        entry_problem(&[pax(b'x', records), Block::new(b'0', b"s", stored).finish()].concat())
    };
    let sparse = EntryProblem::Sparse;
    assert_eq!(v01(b"0,5,3,5", b"2", b"99", 10), sparse(SparseProblem::Order));
    assert_eq!(
        v01(b"0,5,50,50", b"2", b"99", 55),
        sparse(SparseProblem::BeyondSize)
    );
    assert_eq!(v01(b"-1,5", b"1", b"99", 5), sparse(SparseProblem::Negative));
    assert_eq!(
        v01(b"0,9223372036854775807,9,9", b"2", b"9223372036854775807", 5),
        sparse(SparseProblem::Order)
    );
    assert_eq!(
        v01(b"0,5", b"1", b"99", 6),
        sparse(SparseProblem::Total { mapped: 5, stored: 6 })
    );
    assert_eq!(v01(b"0,5,7", b"1", b"99", 5), sparse(SparseProblem::Malformed));
    assert_eq!(v01(b"0,5", b"2", b"99", 5), sparse(SparseProblem::Malformed));
    assert_eq!(v01(b"0,x", b"1", b"99", 5), sparse(SparseProblem::Malformed));
    assert_eq!(v01(b"0,5", b"99999999", b"99", 5), sparse(SparseProblem::TooLong));
    assert_eq!(v01(b"0,5", b"1", b"-99", 5), EntryProblem::NegativeSize);
    assert_eq!(
        v01(b"0,5", b"1", b"x", 5),
        EntryProblem::Number("GNU.sparse.size")
    );

    let v10 = |map: &[u8], stored: u64| {
        let records: &[(&[u8], &[u8])] = &[
            (b"GNU.sparse.major", b"1"),
            (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.realsize", b"9"),
        ];
        entry_problem(&[pax(b'x', records), Block::new(b'0', b"s", stored).member(map)].concat())
    };
    assert_eq!(v10(b"x\n", 512), sparse(SparseProblem::Malformed));
    assert_eq!(v10(b"1\n0\n", 512), sparse(SparseProblem::Malformed));
    assert_eq!(v10(b"", 511), sparse(SparseProblem::Malformed));
    assert_eq!(v10(b"99999999999\n", 9999), sparse(SparseProblem::TooLong));
    assert_eq!(v10(&[b'0'; 2 << 20], 2 << 20), sparse(SparseProblem::TooLong));
    assert_eq!(
        v10(b"1\n0\n9\n", 520),
        sparse(SparseProblem::Total { mapped: 9, stored: 8 })
    );

    let records: &[(&[u8], &[u8])] = &[(b"GNU.sparse.map", b""), (b"GNU.sparse.numblocks", b"0")];
    assert!(
        parse(&with_pax(records, b'5')).is_ok(),
        "an empty record is no record"
    );
    let records: &[(&[u8], &[u8])] = &[(b"GNU.sparse.map", b"0,1"), (b"GNU.sparse.numblocks", b"1")];
    assert_eq!(
        entry_problem(&with_pax(records, b'5')),
        sparse(SparseProblem::NotAFile)
    );

    let old = Block::new(b'S', b"s", 0).finish();
    assert_eq!(entry_problem(&old), sparse(SparseProblem::NotGnu));
    let old = Block::gnu(b'S', b"s", 0)
        .with(386, b"00000000011\x0000000000011\0")
        .with(483, b"00000000005\0");
    assert_eq!(
        entry_problem(&old.clone().finish()),
        sparse(SparseProblem::BeyondSize)
    );
    let mut endless = old.with(482, b"\x01").finish();
    endless.extend(std::iter::repeat_n(1, 2 << 20));
    for block in endless[512..].chunks_mut(512) {
        block[0] = 0;
    }
    assert_eq!(entry_problem(&endless), sparse(SparseProblem::TooLong));
}

#[test]
fn limits_hold() {
    let limits = TarLimits::default();
    let largest = Block::new(b'0', b"a", 0)
        .with(124, b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff")
        .finish();
    assert_eq!(limit(&largest, limits), "the data space");
    let two: Vec<u8> = [
        Block::new(b'0', b"a", 0).finish(),
        Block::new(b'0', b"b", 0).finish(),
    ]
    .concat();
    assert_eq!(
        limit(&two, TarLimits { entries: 1, ..limits }),
        "the number of entries"
    );
    let long = [gnu_long(b'L', &[b'a'; 200]), Block::gnu(b'0', b"a", 0).finish()].concat();
    assert_eq!(limit(&long, TarLimits { tree: 200, ..limits }), "the tree");
    let files = [
        Block::new(b'0', b"a", 1).member(b"1"),
        Block::new(b'0', b"b", 1).member(b"2"),
    ]
    .concat();
    assert_eq!(
        limit(&files, TarLimits { pieces: 1, ..limits }),
        "the number of pieces of sparse files"
    );
}

/// Every proper prefix of an archive is complete at a boundary between entries (or inside the padding before it),
/// and cut off anywhere else.
#[test]
fn truncation() {
    let first = [
        pax(b'x', &[(b"mtime", b"1.5")]),
        Block::new(b'0', b"a", 700).member(&[7; 700]),
    ]
    .concat();
    let archive = [first.clone(), Block::new(b'5', b"d", 0).finish(), END.to_vec()].concat();
    let record = 512 + pax_record(b"mtime", b"1.5").len();
    let contents_end = first.len() - (1024 - 700);
    for length in 0..archive.len() {
        let complete = length == 0
            || (record..=1024).contains(&length)
            || (contents_end..=first.len()).contains(&length)
            || length == first.len() + 512
            || length == first.len() + 1024;
        match parse_cut(&archive[..length], &[97]) {
            Ok(_) => assert!(complete, "{length}"),
            Err(TarError::Truncated { at, .. }) => assert!(!complete && at == length as u64, "{length}"),
            Err(other) => panic!("{length}: {other}"),
        }
    }
}

#[test]
fn a_failed_parser_stays_failed_and_a_failing_sink_ends_the_parse() {
    let mut sink = Collected::default();
    let mut parser = TarParser::new(TarLimits::default());
    assert!(parser.push(&[1; 512], &mut sink).is_err());
    assert!(matches!(parser.push(&END, &mut sink), Err(TarError::Failed)));
    assert!(matches!(parser.finish(&mut sink), Err(TarError::Failed)));

    struct Full;
    impl xebec_index::tar::TarSink for Full {
        fn frame(&mut self, _: &[u8]) {}
        fn content(&mut self, _: u64, _: &[u8]) -> std::io::Result<()> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn entry(&mut self, _: xebec_format::layer::Entry) {}
    }
    let mut parser = TarParser::new(TarLimits::default());
    let error = parser
        .push(&Block::new(b'0', b"a", 1).member(b"1"), &mut Full)
        .unwrap_err();
    assert!(matches!(error, TarError::Sink(error) if error.kind() == std::io::ErrorKind::StorageFull));
}

/// An archive with one of everything, to be mutated.
fn everything() -> Vec<u8> {
    let sparse: &[(&[u8], &[u8])] = &[
        (b"GNU.sparse.major", b"1"),
        (b"GNU.sparse.minor", b"0"),
        (b"GNU.sparse.realsize", b"9000"),
    ];
    let mut map = b"2\n10\n5\n8000\n100\n".to_vec();
    map.resize(512, 0);
    map.extend([9; 105]);
    [
        pax(b'g', &[(b"comment", b"x")]),
        Block::new(b'5', b"./", 0).finish(),
        pax(
            b'x',
            &[
                (b"path", b"long/name"),
                (b"mtime", b"-1.5"),
                (b"SCHILY.xattr.user.a", b"v"),
            ],
        ),
        Block::new(b'0', b"a", 5).member(b"hello"),
        gnu_long(b'L', b"gnu/name"),
        gnu_long(b'K', b"gnu/target"),
        Block::gnu(b'2', b"x", 0).with(157, b"y").finish(),
        pax(b'x', sparse),
        Block::new(b'0', b"s", 617).member(&map),
        Block::gnu(b'S', b"old", 5)
            .with(386, b"00000010000\x0000000000005\0")
            .with(482, b"\x01")
            .with(483, b"00000020000\0")
            .finish(),
        vec![0; 512],
        b"12345".to_vec(),
        vec![0; 507],
        Block::new(b'0', b".wh.gone", 0).finish(),
        Block::new(b'3', b"dev", 0).with(329, b"0000005\0").finish(),
        END.to_vec(),
    ]
    .concat()
}

/// Writes the right checksum into every block that looks like a header, so that mutations get further.
fn mend_checksums(archive: &mut [u8]) {
    for block in archive
        .chunks_exact_mut(512)
        .filter(|block| &block[257..262] == b"ustar")
    {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

#[test]
fn the_archive_to_mutate_is_sound() {
    let parsed = parse(&everything()).unwrap();
    parsed.check_extents();
    assert_eq!(parsed.entries.len(), 7);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..4096), cut in 1usize..1000) {
        let _ = parse_cut(&bytes, &[cut]);
    }

    #[test]
    fn mutated_archives_are_parsed_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in 1usize..3000,
        mend in any::<bool>(),
    ) {
        let mut archive = everything();
        for (index, byte) in changes {
            let index = index.index(archive.len());
            archive[index] = byte;
        }
        if mend {
            mend_checksums(&mut archive);
        }
        // Cut differently, an archive means the same.
        match (parse_cut(&archive, &[cut]), parse(&archive)) {
            (Ok(cut), Ok(whole)) => {
                whole.check_extents();
                prop_assert_eq!(cut, whole);
            }
            (Err(cut), Err(whole)) => prop_assert_eq!(cut.to_string(), whole.to_string()),
            (cut, whole) => prop_assert!(false, "{:?} {:?}", cut.err(), whole.err()),
        }
    }
}
