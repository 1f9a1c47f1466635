//! eStargz and zstd:chunked layers made by the libraries that define these formats: their tables of contents give
//! the tree that the tar parser gives, and their spans the contents.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Entry, EntryKind, LayerIndex};
use xebec_index::decode::decode_span;
use xebec_index::toc::{Blob, Supplied, TableOfContents, TocError, estargz};

use crate::tar_support::{Block, Collected, END, go_tool, make_tree, parse, pax};

/// A tar file of a directory with most things in it, and of what only images have.
fn make_tar(directory: &Path) -> Option<PathBuf> {
    let tree = directory.join("tree");
    fs::create_dir(&tree).unwrap();
    make_tree(&tree);
    // JSON cannot hold it.
    let not_utf8 = fs::read_dir(tree.join("usr"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    not_utf8
        .filter(|path| path.to_str().is_none())
        .for_each(|path| fs::remove_file(path).unwrap());
    let plain = directory.join("plain.tar");
    let options = ["--format=pax", "--sort=name", "--xattrs", "--xattrs-include=*"];
    let made = Command::new("tar")
        .arg("-C")
        .arg(&tree)
        .args(options)
        .arg("-cf")
        .arg(&plain)
        .arg(".")
        .output();
    if !made.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: GNU tar: {made:?}");
        return None;
    }
    let mut archive = Vec::new();
    for name in [&b"usr/.wh.gone"[..], b"usr/share/.wh..wh..opq", b".wh.top"] {
        archive.extend(Block::new(b'0', name, 0).finish());
    }
    archive.extend(pax(b'x', &[(b"mtime", b"1700000000.25")]));
    archive.extend(Block::new(b'0', b"zeros", 300_000).member(&zeros_and_data()));
    for number in 0..300 {
        let name = format!("many/{number}");
        archive.extend(Block::new(b'0', name.as_bytes(), 20).member(format!("{number:020}").as_bytes()));
    }
    archive.extend(fs::read(plain).unwrap());
    let path = directory.join("layer.tar");
    fs::write(&path, archive).unwrap();
    Some(path)
}

/// Data with runs of zeros, some of them at page boundaries, that zstd:chunked makes chunks of.
fn zeros_and_data() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..300_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 | 1)
        .collect();
    for run in [5000..50_000, 81_920..122_880, 200_001..202_500, 280_000..300_000] {
        bytes[run].fill(0);
    }
    bytes
}

struct Fetched {
    index: LayerIndex,
    requests: usize,
}

fn fetch(bytes: &[u8], annotations: &BTreeMap<String, String>) -> Result<Fetched, TocError> {
    let blob = Blob {
        digest: Digest::of(bytes),
        size: bytes.len() as u64,
    };
    let mut table = TableOfContents::detect(blob, annotations)?.expect("the annotations name a table");
    let mut requests = 0;
    loop {
        let wanted = table.wanted();
        requests += 1;
        match table.supply(&bytes[wanted.start as usize..wanted.end as usize])? {
            Supplied::More(more) => table = more,
            Supplied::Index(index) => {
                return Ok(Fetched {
                    index: *index,
                    requests,
                });
            }
        }
    }
}

/// Decodes every span of a layer into a data space that the tar tests can read.
fn decode(blob: &[u8], index: &LayerIndex) -> Collected {
    let mut collected = Collected {
        entries: index.entries.clone(),
        ..Collected::default()
    };
    let mut data = vec![0; index.data_size as usize];
    for span in &index.spans {
        let source = &blob[span.source.start as usize..span.source.end as usize];
        let decoded = decode_span(index.codec, span, &index.pieces, source, None);
        let decoded = decoded.unwrap_or_else(|error| panic!("{error}: {span:?}"));
        data[span.data.start as usize..span.data.end as usize].copy_from_slice(&decoded);
    }
    let pages = data.chunks(PAGE_SIZE as usize).enumerate();
    collected.pages = pages
        .map(|(number, page)| (number as u64, page.to_vec()))
        .collect();
    collected
}

/// Compares what a table of contents gives with what the layer's tar file gives.
fn compare(tar: &Collected, toc: &Collected, seconds_only: bool) {
    let by_path = |entries: &[Entry]| -> BTreeMap<(Vec<u8>, bool), Entry> {
        // An opaque marker has its directory's path.
        let key = |entry: &Entry| (entry.path.as_bytes().to_vec(), entry.kind == EntryKind::Opaque);
        entries.iter().map(|entry| (key(entry), entry.clone())).collect()
    };
    let (from_tar, from_toc) = (by_path(&tar.entries), by_path(&toc.entries));
    let paths: Vec<_> = from_toc.keys().collect();
    assert_eq!(from_tar.keys().collect::<Vec<_>>(), paths);
    assert!(paths.len() > 300);
    for (path, expected) in &from_tar {
        let found = &from_toc[path];
        let (mut a, mut b) = (expected.metadata.clone(), found.metadata.clone());
        if seconds_only {
            // Rounded to the nearest second; times of 1970-01-01 00:00 are left out.
            a.mtime += i64::from(a.mtime_nanoseconds >= 500_000_000);
            (a.mtime_nanoseconds, b.mtime_nanoseconds) = (0, 0);
        }
        assert_eq!(a, b, "{}", expected.path);
        match (&expected.kind, &found.kind) {
            (EntryKind::File { size: a, .. }, EntryKind::File { size: b, .. }) => {
                assert_eq!(a, b, "{}", expected.path);
                assert!(
                    tar.contents(expected) == toc.contents(found),
                    "contents of {}",
                    expected.path
                );
            }
            (a, b) => assert_eq!(a, b, "{}", expected.path),
        }
    }
}

fn check_round_trip(index: &LayerIndex) {
    index.check().unwrap();
    assert_eq!(&LayerIndex::decode(&index.encode()).unwrap(), index);
}

/// Runs a program of `gotools` that prints annotations, one `KEY=VALUE` in a line.
fn annotations_of(tool: &str, arguments: &[String]) -> Option<BTreeMap<String, String>> {
    let printed = go_tool(tool, arguments)?;
    let pairs = printed.lines().filter_map(|line| line.split_once('='));
    Some(
        pairs
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
    )
}

/// Makes a layer with stargz-snapshotter's library. `chunks`: size and least size of chunks, 0 for the default.
fn stargz(
    kind: &str,
    tar: &Path,
    out: &Path,
    chunks: [u32; 2],
    first: &str,
) -> Option<BTreeMap<String, String>> {
    let paths = [tar, out].map(|path| path.display().to_string());
    let mut arguments = vec![kind.to_owned()];
    arguments.extend(paths);
    arguments.extend(chunks.map(|size| size.to_string()));
    arguments.extend((!first.is_empty()).then(|| first.to_owned()));
    annotations_of("estargz", &arguments)
}

#[test]
fn estargz_layers() {
    let directory = tempfile::tempdir().unwrap();
    let Some(tar) = make_tar(directory.path()) else {
        return;
    };
    let from_tar = parse(&fs::read(&tar).unwrap()).unwrap();
    for (name, kind, chunks, first) in [
        ("default", "gzip", [0, 0], ""),
        ("small chunks", "gzip", [50_000, 0], ""),
        ("shared chunks", "gzip", [50_000, 100_000], ""),
        ("prioritized", "gzip", [1 << 20, 10_000], "usr/share/small"),
        ("zstd", "zstd", [0, 0], ""),
        ("zstd, shared chunks", "zstd", [50_000, 100_000], ""),
    ] {
        let out = directory.path().join("layer");
        let Some(mut annotations) = stargz(kind, &tar, &out, chunks, first) else {
            return;
        };
        let blob = fs::read(&out).unwrap();
        let Fetched { index, requests } = fetch(&blob, &annotations).unwrap();
        check_round_trip(&index);
        assert_eq!(requests, 1, "the tail holds the table");
        assert_eq!(index.codec == Codec::ZstdChunked, kind == "zstd");
        let shared = index.spans.iter().filter(|span| span.plain.start > 0).count();
        assert_eq!(shared > 0, chunks[1] > 0, "{name}");
        compare(&from_tar, &decode(&blob, &index), true);
        eprintln!(
            "{name}: {} entries, {} spans, {shared} inside a chunk",
            index.entries.len(),
            index.spans.len()
        );

        annotations.insert(estargz::DIGEST_ANNOTATION.to_owned(), Digest::of(b"").to_string());
        assert!(matches!(fetch(&blob, &annotations), Err(TocError::Digest { .. })));
    }
}

#[test]
fn zstd_chunked_layers() {
    let directory = tempfile::tempdir().unwrap();
    let Some(tar) = make_tar(directory.path()) else {
        return;
    };
    let out = directory.path().join("layer.zst");
    let arguments = [&tar, &out].map(|path| path.display().to_string());
    let Some(annotations) = annotations_of("zstdchunked", &arguments) else {
        return;
    };
    let blob = fs::read(&out).unwrap();
    let Fetched { index, requests } = fetch(&blob, &annotations).unwrap();
    check_round_trip(&index);
    assert_eq!(requests, 1);
    let from_tar = parse(&fs::read(&tar).unwrap()).unwrap();
    let toc = decode(&blob, &index);
    compare(&from_tar, &toc, false);
    let zeros = index
        .entries
        .iter()
        .find(|entry| entry.path.as_bytes() == b"zeros")
        .unwrap();
    let EntryKind::File { extents, .. } = &zeros.kind else {
        panic!("{zeros:?}")
    };
    assert!(extents.len() > 1, "whole pages of zeros are holes");
    eprintln!(
        "{} entries, {} spans, {} extents in a file with zeros",
        index.entries.len(),
        index.spans.len(),
        extents.len()
    );

    let mut wrong = annotations;
    let checksum = wrong
        .get_mut("io.github.containers.zstd-chunked.manifest-checksum")
        .unwrap();
    *checksum = Digest::of(b"").to_string();
    assert!(matches!(fetch(&blob, &wrong), Err(TocError::Digest { .. })));
}

/// A table that does not fit into the tail takes a second request, for the rest only.
#[test]
fn a_large_table_takes_two_requests() {
    let directory = tempfile::tempdir().unwrap();
    let tar = directory.path().join("layer.tar");
    let mut archive = Vec::new();
    for number in 0..4000u32 {
        let name = Digest::of(&number.to_le_bytes()).hex();
        archive.extend(Block::new(b'0', name.as_bytes(), 4).member(&number.to_le_bytes()));
    }
    archive.extend(END);
    fs::write(&tar, &archive).unwrap();
    let out = directory.path().join("layer.estargz");
    let Some(annotations) = stargz("gzip", &tar, &out, [0, 0], "") else {
        return;
    };
    let blob = fs::read(&out).unwrap();
    let Fetched { index, requests } = fetch(&blob, &annotations).unwrap();
    assert_eq!(requests, 2);
    compare(&parse(&archive).unwrap(), &decode(&blob, &index), true);
}
