//! Layers as encoders write them: every level, header and way to frame.

use std::io::Write;

use xebec_format::layer::Codec;
use xebec_index::indexer::{IndexError, IndexOptions, Laziness, index_layer};

use super::check::{check, options};
use crate::support::{build_go, filter, gzip, sample_tar};

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
