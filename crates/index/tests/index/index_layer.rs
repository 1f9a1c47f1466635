//! Layers of every encoder at hand: each span decodes to the right bytes, frame and data give the tar back.
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

use proptest::prelude::*;
use sha2::{Digest as _, Sha256};
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, EntryKind, LayerIndex};
use xebec_index::decode::{DecodeError, decode_span};
use xebec_index::fuzzing::verify;
use xebec_index::indexer::{DataSink, IndexError, IndexOptions, IndexedLayer, Laziness, index_layer};

use crate::support::{Numbers, build_go, filter, gzip, mixture, sample_tar, tar_of};

fn options() -> IndexOptions {
    IndexOptions {
        spacing: 64 << 10,
        ..IndexOptions::default()
    }
}

/// Indexes `blob` and checks everything that can be checked without knowing the encoder.
fn check(what: &str, blob: &[u8], tar: &[u8], options: &IndexOptions) -> IndexedLayer {
    let mut data = Data::default();
    let layer = index_layer(blob, options, Some(&mut data)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let index = &layer.index;
    assert_eq!(index.diff_id, Some(Digest::of(tar)), "{what}");
    assert_eq!(index.plain_size, tar.len() as u64, "{what}");
    verify(blob, &layer);
    check_sections(&layer);
    check_contents(&layer, &data.0);
    println!(
        "{what}: {} of {} bytes, {} spans, windows {}, frame {}",
        blob.len(),
        tar.len(),
        index.spans.len(),
        layer.windows.len(),
        layer.frame.len()
    );
    layer
}

fn check_sections(layer: &IndexedLayer) {
    let sections = [
        (&layer.index.windows, &layer.windows),
        (&layer.index.frame, &layer.frame),
        (&layer.index.contents, &layer.contents),
    ];
    for (section, bytes) in sections {
        match section {
            Some(section) => assert_eq!(
                (section.size, section.digest),
                (bytes.len() as u64, Digest::of(bytes))
            ),
            None => assert!(bytes.is_empty()),
        }
    }
}

/// Compares the content digests with the data that the sink was given.
fn check_contents(layer: &IndexedLayer, data: &[u8]) {
    let mut digests = layer.contents.chunks(32);
    for entry in &layer.index.entries {
        let EntryKind::File {
            size: size @ 1..,
            extents,
        } = &entry.kind
        else {
            continue;
        };
        let mut contents = vec![0; *size as usize];
        for extent in extents {
            let to = &mut contents[extent.file_offset as usize..][..extent.length as usize];
            let from = data.get(extent.data_offset as usize..).unwrap_or_default();
            let length = from.len().min(to.len());
            to[..length].copy_from_slice(&from[..length]);
        }
        assert_eq!(
            digests.next(),
            Some(&Sha256::digest(&contents)[..]),
            "{}",
            entry.path
        );
    }
    assert_eq!(digests.next(), None);
}

/// A data space in memory.
#[derive(Default)]
struct Data(Vec<u8>);

impl DataSink for Data {
    fn write(&mut self, data_offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(data_offset >= self.0.len() as u64, "data offsets must ascend");
        self.0.resize(data_offset as usize, 0);
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

#[test]
fn zlib_at_all_levels() {
    let tar = sample_tar(1, 3_000_000);
    for level in 0..=9 {
        let blob = gzip(&tar, level);
        let layer = check(&format!("zlib -{level}"), &blob, &tar, &options());
        assert_eq!(layer.index.codec, Codec::Gzip);
        assert_eq!(layer.laziness, Laziness::Lazy);
        assert!(
            layer.index.spans.len() >= 15,
            "only {} spans",
            layer.index.spans.len()
        );
        check(
            &format!("zlib -{level}, default spacing"),
            &blob,
            &tar,
            &IndexOptions::default(),
        );
    }
}

#[test]
fn gnu_gzip_pigz_and_python() {
    let tar = sample_tar(2, 2_000_000);
    for level in 1..=9 {
        let level = format!("-{level}");
        for program in ["gzip", "pigz"] {
            if let Some(blob) = filter(program, &[&level, "-n"], &tar) {
                check(&format!("{program} {level}"), &blob, &tar, &options());
            }
        }
    }
    for arguments in [
        &["-11", "-I", "1", "-b", "128"][..],
        &["-i", "-b", "32"],
        &["-H"],
        &["-U"],
    ] {
        if let Some(blob) = filter("pigz", arguments, &tar) {
            check(&format!("pigz {arguments:?}"), &blob, &tar, &options());
        }
    }
    let script = "import gzip, sys; sys.stdout.buffer.write(gzip.compress(sys.stdin.buffer.read(), 6))";
    if let Some(blob) = filter("python3", &["-c", script], &tar) {
        check("python gzip", &blob, &tar, &options());
    }
    let fixed = "import sys, zlib; d = sys.stdin.buffer.read(); c = zlib.compressobj(6, 8, 31, 8, STRATEGY)
for i in range(0, len(d), 50000): sys.stdout.buffer.write(c.compress(d[i:i+50000]) + c.flush(zlib.Z_FULL_FLUSH))
sys.stdout.buffer.write(c.flush())";
    for strategy in [
        "zlib.Z_FIXED",
        "zlib.Z_HUFFMAN_ONLY",
        "zlib.Z_RLE",
        "zlib.Z_FILTERED",
    ] {
        if let Some(blob) = filter("python3", &["-c", &fixed.replace("STRATEGY", strategy)], &tar) {
            check(strategy, &blob, &tar, &options());
        }
    }
}

#[test]
fn go_compress_gzip() {
    let directory = tempfile::tempdir().unwrap();
    let source = r#"package main
import ("compress/gzip"; "io"; "os"; "strconv")
func main() {
    level, _ := strconv.Atoi(os.Args[1])
    w, err := gzip.NewWriterLevel(os.Stdout, level)
    if err != nil { panic(err) }
    if _, err := io.Copy(w, os.Stdin); err != nil { panic(err) }
    if err := w.Close(); err != nil { panic(err) }
}"#;
    let Some(program) = build_go(source, directory.path()) else {
        return;
    };
    let tar = sample_tar(3, 2_000_000);
    for level in ["-2", "-1", "0", "1", "5", "6", "9"] {
        let blob = filter(&program, &[level], &tar).unwrap();
        let layer = check(&format!("Go {level}"), &blob, &tar, &options());
        assert_eq!(layer.laziness, Laziness::Lazy);
    }
}

/// Gives a member whose header has nothing optional the checksum of it that RFC 1952 allows, and no common program writes.
fn with_header_checksum(member: &[u8]) -> Vec<u8> {
    let (header, rest) = member.split_at(10);
    let mut header = header.to_vec();
    assert_eq!(header[3], 0, "it has flags");
    header[3] = 2;
    let [low, high, ..] = crc32fast::hash(&header).to_le_bytes();
    [&header, &[low, high][..], rest].concat()
}

#[test]
fn a_header_with_a_checksum_is_compared_with_it() {
    let tar = sample_tar(5, 100_000);
    let blob = with_header_checksum(&gzip(&tar, 6));
    check("header checksum", &blob, &tar, &options());
    for at in [10, 11] {
        let mut wrong = blob.clone();
        wrong[at] ^= 1;
        let error = index_layer(&wrong[..], &options(), None).unwrap_err();
        assert!(error.to_string().contains("its checksum is wrong"), "{error}");
    }
}

#[test]
fn many_members_with_every_kind_of_header_and_padding() {
    let tar = sample_tar(4, 1_500_000);
    let mut blob = Vec::new();
    for (number, part) in tar.chunks(70_001).enumerate() {
        let mut builder = flate2::GzBuilder::new().mtime(number as u32);
        if number % 2 == 0 {
            builder = builder.filename(format!("part-{number}")).comment("a comment");
        }
        if number % 3 == 0 {
            builder = builder.extra(vec![b'x'; number * 7]);
        }
        let mut encoder = builder.write(Vec::new(), flate2::Compression::new(number as u32 % 10));
        encoder.write_all(part).unwrap();
        blob.extend(encoder.finish().unwrap());
        // An empty member is a member.
        blob.extend(gzip(b"", 6));
    }
    let layer = check("members", &blob, &tar, &options());
    assert!(
        layer
            .index
            .spans
            .iter()
            .any(|span| span.window.is_none() && span.source.start > 0)
    );
    for zeros in [1, 511, 300_000] {
        let mut padded = blob.clone();
        padded.resize(blob.len() + zeros, 0);
        check("zero padding", &padded, &tar, &options());
        padded.push(1);
        let error = index_layer(&padded[..], &options(), None)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!(
                "garbage after the gzip member, at byte {}",
                padded.len() - 1
            )),
            "{error}"
        );
    }
}

#[test]
fn zstd_frames() {
    let tar = sample_tar(5, 3_000_000);
    let frames = |size: usize, level: i32| -> Vec<u8> {
        tar.chunks(size)
            .flat_map(|part| zstd::bulk::compress(part, level).unwrap())
            .collect()
    };
    for (size, level) in [(100_000, 1), (30_000, 3), (65_536, 19), (1_000_000, 3)] {
        let layer = check(
            &format!("zstd frames of {size}"),
            &frames(size, level),
            &tar,
            &options(),
        );
        assert_eq!(layer.index.codec, Codec::Zstd);
        assert_eq!(layer.index.windows, None);
        assert!(layer.index.spans.len() > 2);
    }
    let mut skippable = vec![0x5a, 0x2a, 0x4d, 0x18, 5, 0, 0, 0, 1, 2, 3, 4, 5];
    for part in tar.chunks(90_000) {
        skippable.extend(zstd::stream::encode_all(part, 3).unwrap());
        skippable.extend([0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9]);
    }
    check("zstd with skippable frames", &skippable, &tar, &options());
    for arguments in [
        &["-3", "-c"][..],
        &["-1", "--single-thread", "-c"],
        &["-19", "--check", "-c"],
    ] {
        if let Some(blob) = filter("zstd", arguments, &tar) {
            check(&format!("zstd {arguments:?}"), &blob, &tar, &options());
        }
    }
    for length in [3, 4, 12, 1000, skippable.len() - 12] {
        let error = index_layer(&skippable[..length], &options(), None);
        assert!(
            matches!(error, Err(IndexError::Zstd { .. } | IndexError::Tar(_))),
            "{length}: {error:?}"
        );
    }
    let mut garbage = skippable.clone();
    garbage.extend(b"garbage");
    assert!(matches!(
        index_layer(&garbage[..], &options(), None),
        Err(IndexError::Zstd { .. })
    ));
}

#[test]
fn one_huge_zstd_frame_is_not_lazy_but_indexed() {
    let large = mixture(1, 3 << 20).repeat(20);
    let tar = tar_of([("small", &b"small"[..]), ("large", &large), ("text", b"text")]);
    let blob = zstd::stream::encode_all(&tar[..], 1).unwrap();
    let layer = check("one frame", &blob, &tar, &IndexOptions::default());
    let Laziness::NotLazy { reason } = &layer.laziness else {
        panic!("called lazy")
    };
    assert!(
        reason.contains("a single zstd frame holds 60 MiB") && reason.contains("zstd:chunked"),
        "{reason}"
    );
    check_parts(&blob, &tar, &layer);
    // The index can be stored and read again, and says the same.
    let again = LayerIndex::decode(&layer.index.encode()).unwrap();
    assert_eq!(Laziness::of(&again), layer.laziness);
    // The same in frames is lazy.
    let blob: Vec<u8> = tar
        .chunks(1 << 20)
        .flat_map(|part| zstd::bulk::compress(part, 1).unwrap())
        .collect();
    assert_eq!(
        check("frames", &blob, &tar, &IndexOptions::default()).laziness,
        Laziness::Lazy
    );
    // Not even gigabytes of padding in the same frame matter to a reader of the contents.
    let mut padded = tar_of([("small", &b"small"[..])]);
    padded.resize(40 << 20, 0);
    let blob = zstd::stream::encode_all(&padded[..], 1).unwrap();
    assert_eq!(
        check("padding", &blob, &padded, &IndexOptions::default()).laziness,
        Laziness::Lazy
    );
}

#[test]
fn one_huge_deflate_block_is_not_lazy() {
    // No encoder at hand makes such a block, so it is made here: a stored block for the headers, then one fixed
    // block of matches (258 zeros each), then a stored block for the rest.
    const MATCHES: usize = 130_000;
    let zeros = 1 + 258 * MATCHES;
    let tar = tar_of([("zeros", &vec![0; zeros][..])]);
    let mut blob = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    blob.extend([0, 0, 4, 0xff, 0xfb]);
    blob.extend(&tar[..1024]);
    // Bits of the block, first to last: not the last one, fixed; literal 0; length 258, distance 1; end. Then the stored block's.
    let mut bits = "010".to_owned() + "00110000" + &"1100010100000".repeat(MATCHES) + "0000000" + "100";
    while !bits.len().is_multiple_of(8) {
        bits.push('0');
    }
    let byte = |bits: &[u8]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | (bit - b'0'));
    blob.extend(bits.as_bytes().chunks(8).map(byte));
    let rest = &tar[1024 + zeros..];
    blob.extend((rest.len() as u16).to_le_bytes());
    blob.extend((!(rest.len() as u16)).to_le_bytes());
    blob.extend(rest);
    blob.extend(crc32fast::hash(&tar).to_le_bytes());
    blob.extend((tar.len() as u32).to_le_bytes());

    let layer = check("one block", &blob, &tar, &IndexOptions::default());
    let Laziness::NotLazy { reason } = &layer.laziness else {
        panic!("called lazy")
    };
    assert!(reason.contains("a single deflate block holds 31 MiB"), "{reason}");
    check_parts(&blob, &tar, &layer);
}

/// Checks the spans that are parts: the digest of each is that of its contents, and none can be decoded alone.
fn check_parts(blob: &[u8], tar: &[u8], layer: &IndexedLayer) {
    let index = &layer.index;
    let mut parts = 0;
    for span in index
        .spans
        .iter()
        .filter(|span| span.source.end - span.source.start == 1)
    {
        let source = &blob[span.source.start as usize..span.source.end as usize];
        let error = decode_span(index.codec, span, &index.pieces, source, None);
        assert!(matches!(error, Err(DecodeError::NotLazy)), "{error:?}");
        let mut plain = span.clone();
        plain.source = span.plain.clone();
        let contents = &tar[span.plain.start as usize..span.plain.end as usize];
        decode_span(Codec::Tar, &plain, &index.pieces, contents, None).unwrap();
        parts += 1;
    }
    assert!(parts > 1);
}

#[test]
fn plain_tar() {
    let tar = sample_tar(6, 2_000_000);
    let layer = check("plain", &tar, &tar, &options());
    assert_eq!(layer.index.codec, Codec::Tar);
    for (span, next) in layer.index.spans.iter().zip(&layer.index.spans[1..]) {
        assert_eq!(span.source, span.plain);
        assert!(next.data.start.is_multiple_of(4096), "cut inside a page");
    }
}

#[test]
fn layers_without_contents_have_no_spans() {
    for tar in [tar_of([]), tar_of([("empty", &b""[..])])] {
        for blob in [tar.clone(), gzip(&tar, 6), zstd::bulk::compress(&tar, 3).unwrap()] {
            let layer = check("no contents", &blob, &tar, &options());
            assert!(
                layer.index.spans.is_empty() && layer.index.pieces.is_empty() && layer.windows.is_empty()
            );
            assert_eq!(layer.laziness, Laziness::Lazy);
        }
    }
}

#[test]
fn stretches_without_contents_are_in_no_span() {
    // Contents, then about 8 MB of headers of empty files, then contents.
    let names: Vec<String> = (0..16_000).map(|number| format!("empty-{number}")).collect();
    let middle = names.iter().map(|name| (name.as_str(), &b""[..]));
    let files = [("first", &b"one"[..])]
        .into_iter()
        .chain(middle)
        .chain([("last", &b"two"[..])]);
    let tar = tar_of(files);
    let blob = gzip(&tar, 6);
    let layer = check("gap", &blob, &tar, &options());
    let spans = &layer.index.spans;
    assert_eq!(spans.len(), 2);
    assert!(spans[1].plain.start - spans[0].plain.end > 4 << 20);
    assert_eq!(
        layer.windows.len(),
        spans
            .iter()
            .filter_map(|s| s.window.as_ref())
            .map(|w| w.length as usize)
            .sum::<usize>()
    );
}

#[test]
fn a_system_directory_as_layer() {
    let directory = "/usr/share/doc";
    let Some(tar) = filter(
        "tar",
        &["-C", "/", "-cf", "-", &directory[1..], "usr/bin/gzip"],
        b"",
    ) else {
        return;
    };
    check("real tar", &gzip(&tar, 6), &tar, &IndexOptions::default());
    check("real tar, plain", &tar, &tar, &IndexOptions::default());
}

/// Gives bytes in portions of strange sizes.
struct Portions<'a>(&'a [u8], Numbers);

impl Read for Portions<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1.below(9) == 0 {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = (1 + self.1.below(3000)).min(buffer.len());
        self.0.read(&mut buffer[..length])
    }
}

#[test]
fn the_same_bytes_however_it_is_read() {
    let tar = sample_tar(7, 2_000_000);
    let frames: Vec<u8> = tar
        .chunks(50_000)
        .flat_map(|part| zstd::bulk::compress(part, 1).unwrap())
        .collect();
    for blob in [gzip(&tar, 6), frames, tar.clone()] {
        let whole = index_layer(&blob[..], &options(), None).unwrap();
        for seed in 0..5 {
            let again = index_layer(Portions(&blob, Numbers::new(seed)), &options(), None).unwrap();
            assert!(again == whole, "seed {seed}");
            assert_eq!(again.index.encode(), whole.index.encode());
        }
    }
}

#[test]
fn damaged_blobs_are_refused_or_differ_in_digest() {
    let tar = sample_tar(8, 200_000);
    let blob = gzip(&tar, 6);
    let mut numbers = Numbers::new(1);
    for _ in 0..300 {
        let mut damaged = blob.clone();
        let at = 10 + numbers.below(blob.len() - 10);
        damaged[at] ^= 1 << numbers.below(8);
        // CRC-32 finds every single flipped bit.
        assert!(
            index_layer(&damaged[..], &options(), None).is_err(),
            "bit flip at {at} was not found"
        );
        let cut = numbers.below(blob.len());
        assert!(
            index_layer(&blob[..cut], &options(), None).is_err(),
            "cut at {cut} was not found"
        );
    }
}

#[test]
fn errors_say_what_and_where() {
    let tar = sample_tar(9, 100_000);
    let blob = gzip(&tar, 6);
    let message =
        |blob: &[u8], options: &IndexOptions| index_layer(blob, options, None).unwrap_err().to_string();
    let cut = message(&blob[..blob.len() - 3], &options());
    assert!(
        cut.contains(&format!("cut off at byte {}", blob.len() - 3)),
        "{cut}"
    );
    let mut wrong = blob.clone();
    let end = wrong.len();
    wrong[end - 1] ^= 1;
    assert!(
        message(&wrong, &options()).contains("length is"),
        "{}",
        message(&wrong, &options())
    );
    wrong[end - 5] ^= 1;
    assert!(message(&wrong, &options()).contains("CRC-32 is"));
    wrong[3] = 0x80;
    assert!(message(&wrong, &options()).contains("reserved flags"));
    let small = IndexOptions {
        max_plain: 50_000,
        ..options()
    };
    assert!(message(&blob, &small).contains("more than 50000 bytes"));
    let bomb = gzip(&vec![0; 20 << 20], 9);
    assert!(
        message(
            &bomb,
            &IndexOptions {
                max_plain: 1 << 20,
                ..options()
            }
        )
        .contains("bomb")
    );
    assert!(message(b"#!/bin/sh\nthis is no layer\n", &options()).contains("tar"));
}

#[test]
fn a_frame_that_does_not_compress_is_bounded() {
    // Incompressible bytes behind the end of the archive belong to the frame.
    let mut tar = tar_of([("a", &b"a"[..])]);
    let mut numbers = Numbers::new(5);
    tar.extend((0..3 << 20).map(|_| numbers.next() as u8));
    let options = IndexOptions {
        max_frame: 1 << 20,
        ..options()
    };
    let error = index_layer(&tar[..], &options, None).unwrap_err();
    assert!(
        matches!(error, IndexError::FrameTooLarge { limit: 1_048_576 }),
        "{error}"
    );
    check(
        "trailing garbage in the tar",
        &gzip(&tar, 1),
        &tar,
        &IndexOptions::default(),
    );
}

/// All held memory must be reported, whatever it is for: a layer may be made to have much of any of it.
#[test]
fn it_is_said_what_is_held() {
    #[derive(Default)]
    struct Said(u64);
    impl DataSink for Said {
        fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn hold(&mut self, bytes: u64) -> io::Result<()> {
            self.0 += bytes;
            Ok(())
        }
    }
    let mut numbers = Numbers::new(5);
    let noise: Vec<u8> = (0..3 << 20).map(|_| numbers.next() as u8).collect();
    // A frame, windows, contents.
    let mut trailing = tar_of([("a", &b"a"[..])]);
    trailing.extend(&noise);
    let windows = sample_tar(1, 20_000_000);
    let names: Vec<String> = (0..20_000).map(|number| format!("f{number}")).collect();
    let many = tar_of(names.iter().map(|name| (name.as_str(), &b"x"[..])));
    for tar in [trailing, windows, many] {
        let mut said = Said::default();
        let options = IndexOptions {
            spacing: 64 << 10,
            ..options()
        };
        let layer = index_layer(&gzip(&tar, 1)[..], &options, Some(&mut said)).unwrap();
        let held = layer.frame.len() + 2 * layer.windows.len() + layer.contents.len();
        // Windows that are on their way between threads are said later, or not if that is the end.
        assert!(said.0 >= held as u64 / 2, "{} bytes were said of {held}", said.0);
    }
}

#[test]
fn holes_are_hashed_up_to_a_limit() {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(directory.path().join("sparse")).unwrap();
    file.set_len(30 << 20).unwrap();
    file.write_all_at(b"at the end", (30 << 20) - 10).unwrap();
    file.write_all_at(&mixture(1, 10_000), 7 << 20).unwrap();
    std::fs::write(directory.path().join("dense"), b"dense").unwrap();
    let path = directory.path().to_str().unwrap();
    for format in ["gnu", "pax"] {
        let format = format!("--format={format}");
        let arguments = [
            "-C",
            path,
            "-S",
            "--sort=name",
            &format,
            "-cf",
            "-",
            "sparse",
            "dense",
        ];
        let Some(tar) = filter("tar", &arguments, b"") else {
            return;
        };
        let blob = gzip(&tar, 6);
        let layer = check(&format!("sparse {format}"), &blob, &tar, &IndexOptions::default());
        let with_holes = &layer.index.entries[0].kind;
        assert!(matches!(with_holes, EntryKind::File { size: 31_457_280, extents } if !extents.is_empty()));
        assert!(
            layer.index.data_size < 1 << 20,
            "holes take {} bytes",
            layer.index.data_size
        );

        let few = IndexOptions {
            max_hashed_holes: 1 << 20,
            ..IndexOptions::default()
        };
        let layer = index_layer(&blob[..], &few, None).unwrap();
        assert_eq!(layer.contents[..32], [0; 32], "its holes were to be too many");
        assert_eq!(layer.contents[32..], Sha256::digest(b"dense")[..]);
    }
}

struct Full(u64);

impl DataSink for Full {
    fn write(&mut self, _: u64, bytes: &[u8]) -> io::Result<()> {
        self.0 = self
            .0
            .checked_sub(bytes.len() as u64)
            .ok_or(io::ErrorKind::StorageFull)?;
        Ok(())
    }
}

struct Broken<'a>(&'a [u8]);

impl Read for Broken<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::ErrorKind::ConnectionReset.into()),
            count => Ok(count),
        }
    }
}

#[test]
fn failing_sinks_and_readers_are_reported() {
    let tar = sample_tar(10, 20_000_000);
    let blob = gzip(&tar, 1);
    let error = index_layer(&blob[..], &options(), Some(&mut Full(1_000_000))).unwrap_err();
    assert!(
        matches!(&error, IndexError::Sink(e) if e.kind() == io::ErrorKind::StorageFull),
        "{error}"
    );
    for length in [0, 5, 100_000, blob.len() / 2] {
        let error = index_layer(Broken(&blob[..length]), &options(), None).unwrap_err();
        let reset =
            matches!(&error, IndexError::Read(error) if error.kind() == io::ErrorKind::ConnectionReset);
        assert!(reset, "{length}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_layers(seed: u64, size in 0..400_000usize, level in 0..10u32) {
        let tar = sample_tar(seed, size);
        let layer = index_layer(&gzip(&tar, level)[..], &options(), None).unwrap();
        verify(&gzip(&tar, level), &layer);
    }

    #[test]
    fn arbitrary_bytes(start in prop::sample::select(vec![&b""[..], b"\x1f\x8b\x08\0\0\0\0\0\0\x03", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"]), bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        xebec_index::fuzzing::index(&[start, &bytes].concat());
        xebec_index::fuzzing::decode(&bytes);
    }

    #[test]
    fn damaged_layers(seed: u64, changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..5), kind in 0..3) {
        let tar = sample_tar(seed, 30_000);
        let mut blob = match kind {
            0 => gzip(&tar, 6),
            1 => tar.chunks(9000).flat_map(|part| zstd::bulk::compress(part, 1).unwrap()).collect(),
            _ => tar,
        };
        for (at, value) in changes {
            let at = at % blob.len();
            blob[at] = value;
        }
        xebec_index::fuzzing::index(&blob);
    }
}
