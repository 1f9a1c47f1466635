//! Images of one layer: what a single tar file can hold.

use std::io;

use super::parts::{gzip_layers, noise};
use crate::image::Image;
use crate::tar::{Dialect, Header, Kind, SparseFormat, TarBuilder};

/// Every type of file, with modes and owners.
pub(super) fn kinds() -> io::Result<Image> {
    let mut tar = TarBuilder::new();
    tar.entry(&Header::new("./", Kind::Directory).mode(0o751).owner(5, 6));
    tar.directory("d")
        .entry(&Header::new("d/sticky", Kind::Directory).mode(0o1777));
    tar.entry(
        &Header::new("d/setgid", Kind::Directory)
            .mode(0o2750)
            .owner(10, 20),
    );
    tar.file("d/empty", b"")
        .file("d/one", b"1")
        .file("d/page", vec![b'p'; 4096])
        .file("d/more", vec![b'q'; 4097]);
    tar.file_with(&Header::new("d/old-type", Kind::OldFile), b"type NUL");
    tar.file_with(
        &Header::new("d/setuid", Kind::File).mode(0o4755).owner(1000, 1000),
        b"#!/bin/sh\n",
    );
    tar.file_with(&Header::new("d/none", Kind::File).mode(0), b"root only");
    tar.symlink("d/relative", "../d/one")
        .symlink("d/absolute", "/d/one")
        .symlink("d/dangling", "nowhere");
    tar.symlink("d/long", "x".repeat(4095));
    tar.entry(&Header::new("d/fifo", Kind::Fifo).mode(0o600).owner(1, 2));
    tar.entry(&Header::new("d/null", Kind::CharDevice).device(1, 3).mode(0o666));
    tar.entry(&Header::new("d/loop", Kind::BlockDevice).device(7, 3).mode(0o660));
    tar.entry(&Header::new("d/high", Kind::CharDevice).device(511, 1_000_000));
    gzip_layers([tar.into_bytes()])
}

/// Names that are long, not UTF-8, or spelt in ways that mean the same.
pub(super) fn names() -> io::Result<Image> {
    let mut tar = TarBuilder::new();
    tar.directory("./n")
        .file("./n/dot-slash", b"1")
        .file("n//double", b"2")
        .file("n/./inner", b"3");
    tar.file("/n/absolute", b"4").directory("n/slash/");
    tar.file([b"n/".as_slice(), &[b'x'; 255]].concat(), b"255 bytes");
    tar.file(
        [b"n/".as_slice(), "ü".repeat(127).as_bytes()].concat(),
        b"254 bytes of UTF-8",
    );
    tar.file("n/white space", b"")
        .file("n/new\nline", b"")
        .file("n/-dash", b"")
        .file("n/back\\slash", b"");
    tar.file("n/colon:star*quote\"", b"")
        .file("n/.hidden", b"")
        .file("n/...", b"three dots");
    let mut deep = String::from("n");
    for level in 0..30 {
        deep += &format!("/level-{level}-{}", "y".repeat(100));
    }
    tar.file(deep, b"a path of 3,300 bytes");
    // GNU tar stores such names as they are.
    tar.dialect(Dialect::Gnu)
        .file(b"n/latin-\xe9\xff\xfe", b"not UTF-8")
        .file(b"n/\x01control\x7f", b"");
    tar.file("n/gnu-".to_owned() + &"z".repeat(200), b"L entry");
    tar.symlink("n/gnu-link", "t".repeat(300));
    gzip_layers([tar.into_bytes()])
}

/// Times before 1970, of less than a second, and far ahead.
pub(super) fn times() -> io::Result<Image> {
    let mut tar = TarBuilder::new();
    tar.entry(&Header::new("t", Kind::Directory).modified(1_000_000_000, 1));
    let times = [
        ("epoch", 0, 0),
        ("nanosecond", 0, 1),
        ("fraction", 1_500_000_000, 999_999_999),
        ("tenth", 1_500_000_000, 100_000_000),
        ("before", -1, 0),
        ("just-before", -1, 999_999_999),
        ("long-before", -1_000_000_000, 250_000_000),
        ("2038", 2_147_483_648, 5),
        ("2106", 4_294_967_296, 7),
    ];
    for (name, seconds, nanoseconds) in times {
        tar.file_with(
            &Header::new(format!("t/{name}"), Kind::File).modified(seconds, nanoseconds),
            b"",
        );
        let link = Header::new(format!("t/{name}-link"), Kind::Symlink).link(name);
        tar.entry(&link.modified(seconds, nanoseconds));
        tar.entry(&Header::new(format!("t/{name}-dir"), Kind::Directory).modified(seconds, nanoseconds));
    }
    tar.dialect(Dialect::Gnu);
    tar.file_with(&Header::new("t/gnu-before", Kind::File).modified(-86_400, 0), b"");
    tar.file_with(
        &Header::new("t/gnu-late", Kind::File).modified(7_258_118_400, 0),
        b"",
    );
    gzip_layers([tar.into_bytes()])
}

/// Extended attributes, capabilities among them.
pub(super) fn xattrs() -> io::Result<Image> {
    // cap_net_bind_service=ep, revision 2 (linux/capability.h, struct vfs_cap_data).
    let mut capability = [0; 20];
    capability[0..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
    capability[4..8].copy_from_slice(&(1_u32 << 10).to_le_bytes());
    let mut tar = TarBuilder::new();
    tar.entry(&Header::new("x", Kind::Directory).xattr("user.directory", b"yes"));
    for name in ["a", "b", "c"] {
        let header = Header::new(format!("x/{name}"), Kind::File).mode(0o755);
        tar.file_with(
            &header
                .xattr("security.capability", capability)
                .xattr("user.same", b"shared"),
            b"run",
        );
    }
    let many = (0..20).fold(Header::new("x/many", Kind::File), |header, number| {
        header.xattr(
            &format!("user.number.{number}"),
            format!("{number}").repeat(number),
        )
    });
    tar.file_with(&many, b"");
    tar.file_with(
        &Header::new("x/long", Kind::File).xattr("user.long", noise(1, 3000)),
        b"",
    );
    tar.file_with(
        &Header::new("x/binary", Kind::File).xattr("user.binary", b"\0\n=\xff"),
        b"",
    );
    tar.file_with(
        &Header::new("x/equals", Kind::File).xattr("user.a.b", b"a=b=c"),
        b"",
    );
    gzip_layers([tar.into_bytes()])
}

/// Sparse files in each of the PAX formats.
pub(super) fn sparse() -> io::Result<Image> {
    let formats = [
        ("pax00", SparseFormat::Pax00),
        ("pax01", SparseFormat::Pax01),
        ("pax10", SparseFormat::Pax10),
    ];
    sparse_in(&formats)
}

/// Sparse files as GNU tar has them by default.
pub(super) fn sparse_old_gnu() -> io::Result<Image> {
    sparse_in(&[("old", SparseFormat::OldGnu)])
}

fn sparse_in(formats: &[(&str, SparseFormat)]) -> io::Result<Image> {
    let (page, block) = (noise(2, 4096), noise(3, 512));
    let mut tar = TarBuilder::new();
    tar.directory("s");
    for &(name, format) in formats {
        let header = |part: &str| Header::new(format!("s/{name}-{part}"), Kind::File);
        tar.sparse(&header("hole"), format, 1 << 20, &[]);
        tar.sparse(&header("begin"), format, 1 << 20, &[(0, &page)]);
        tar.sparse(
            &header("end"),
            format,
            (1 << 20) + 100,
            &[(1 << 20, &block[..100])],
        );
        tar.sparse(
            &header("unaligned"),
            format,
            50_000,
            &[(512, &block), (1536, &block), (10_240, &page)],
        );
        // More runs than a header and one extension block hold.
        let runs: Vec<(u64, &[u8])> = (0..60).map(|run| (run * 9216, block.as_slice())).collect();
        tar.sparse(&header("many"), format, 600_000, &runs);
        tar.file(format!("s/{name}-after"), b"what follows a sparse file");
    }
    gzip_layers([tar.into_bytes()])
}

/// Numbers that do not fit a plain header, and global PAX records.
pub(super) fn numbers() -> io::Result<Image> {
    let mut tar = TarBuilder::new();
    tar.directory("n");
    tar.file_with(
        &Header::new("n/pax", Kind::File).owner(3_000_000, 4_000_000_000),
        b"PAX",
    );
    tar.file_with(
        &Header::new("n/records", Kind::File)
            .record("uid", "77")
            .record("gid", "78"),
        b"records win",
    );
    tar.file_with(
        &Header::new("n/named", Kind::File).record("path", "n/by-record"),
        b"the record names it",
    );
    tar.file_with(
        &Header::new("n/comment", Kind::File).record("comment", "ignored"),
        b"",
    );
    tar.dialect(Dialect::Gnu);
    tar.file_with(
        &Header::new("n/gnu", Kind::File).owner(3_000_000, 4_000_000_000),
        b"base-256",
    );
    gzip_layers([tar.into_bytes()])
}

/// A path as often as one likes: the last one counts.
pub(super) fn repeated() -> io::Result<Image> {
    let mut tar = TarBuilder::new();
    tar.directory("r")
        .file("r/file", b"first")
        .file("r/file", b"second")
        .file("r/file", b"third, and longer");
    tar.entry(&Header::new("r/dir", Kind::Directory).mode(0o700))
        .file("r/dir/inside", b"stays");
    tar.entry(&Header::new("r/dir", Kind::Directory).mode(0o755).owner(9, 9));
    tar.file("r/changes", b"file")
        .symlink("r/changes", "file")
        .file("r/changes", b"file again");
    tar.symlink("r/link", "one").symlink("r/link", "two");
    tar.file("r/linked", b"old")
        .hardlink("r/other-name", "r/linked")
        .file("r/linked", b"new");
    gzip_layers([tar.into_bytes()])
}

/// Entries whose directories have none.
pub(super) fn implied_parents() -> io::Result<Image> {
    let mut tar = TarBuilder::new();
    tar.file("a/b/c/file", b"1")
        .symlink("d/e/link", "x")
        .entry(&Header::new("f/g/fifo", Kind::Fifo));
    tar.entry(&Header::new("late/inner", Kind::Directory).mode(0o711));
    tar.entry(&Header::new("late", Kind::Directory).mode(0o700).owner(3, 4));
    gzip_layers([tar.into_bytes()])
}

/// Bytes after the end of the archive are in the layer's digest but not in its tree.
pub(super) fn trailing_garbage() -> io::Result<Image> {
    let mut tar = TarBuilder::new();
    tar.file("file", b"inside");
    let mut bytes = tar.into_bytes();
    bytes.extend(noise(4, 5000));
    let mut after_end = TarBuilder::new();
    after_end.file("after-the-end", b"never seen");
    bytes.extend(after_end.into_bytes());
    gzip_layers([bytes])
}

/// A tree deeper than one system call can name.
pub(super) fn long_paths() -> io::Result<Image> {
    let mut tar = TarBuilder::new();
    let mut path = String::new();
    for level in 0..40 {
        path += &format!("level-{level}-{}/", "z".repeat(180));
        tar.directory(&path);
    }
    tar.file(path.clone() + "file", b"at the end of 7,500 bytes")
        .symlink(path + "link", "file");
    gzip_layers([tar.into_bytes()])
}
