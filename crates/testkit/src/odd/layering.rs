//! Images of several layers: what layers do to each other.

use std::io;

use super::parts::{gzip_layers, noise};
use crate::compression::Compression;
use crate::image::{Image, ImageBuilder};
use crate::tar::{Header, Kind, TarBuilder};

/// Hard links inside a layer, to lower layers, and what is left when names go.
pub(super) fn hardlinks() -> io::Result<Image> {
    let mut lower = TarBuilder::new();
    lower
        .directory("h")
        .file("h/a", b"contents")
        .hardlink("h/b", "h/a")
        .hardlink("h/c", "./h/b");
    lower
        .file("h/target", noise(10, 9000))
        .file("h/goes", b"x")
        .hardlink("h/stays", "h/goes");
    lower.file("h/split", b"old").hardlink("h/split-too", "h/split");
    lower
        .entry(&Header::new("h/fifo", Kind::Fifo))
        .hardlink("h/fifo-too", "h/fifo");
    lower
        .symlink("h/symlink", "a")
        .hardlink("h/symlink-too", "h/symlink");
    let mut upper = TarBuilder::new();
    upper
        .hardlink("h/across", "h/target")
        .hardlink("across-directories", "/h/target");
    upper.whiteout("h/goes").file("h/split", b"new");
    let mut top = TarBuilder::new();
    top.whiteout("h/target").hardlink("h/again", "h/across");
    gzip_layers([lower.into_bytes(), upper.into_bytes(), top.into_bytes()])
}

/// Files and directories that go, and that come back.
pub(super) fn whiteouts() -> io::Result<Image> {
    let mut lower = TarBuilder::new();
    lower.directory("w").file("w/file", b"1").file("w/kept", b"2");
    lower
        .directory("w/dir")
        .file("w/dir/inside", b"3")
        .directory("w/dir/deep")
        .file("w/dir/deep/file", b"4");
    lower
        .directory("w/opaque")
        .file("w/opaque/old", b"5")
        .directory("w/opaque/sub")
        .file("w/opaque/sub/old", b"6");
    lower.directory("w/emptied").file("w/emptied/file", b"7");
    lower.directory("w/returns").file("w/returns/old", b"8");
    lower.symlink("w/link", "kept").file("top", b"9");
    let mut middle = TarBuilder::new();
    middle
        .whiteout("w/file")
        .whiteout("w/dir")
        .whiteout("w/link")
        .whiteout("w/never-was")
        .whiteout("top");
    middle
        .directory("w/opaque")
        .opaque("w/opaque")
        .file("w/opaque/new", b"new");
    middle.opaque("w/emptied");
    middle
        .whiteout("w/returns")
        .directory("w/returns")
        .file("w/returns/new", b"new");
    let mut upper = TarBuilder::new();
    upper
        .file("w/file", b"back")
        .directory("w/dir")
        .file("w/dir/other", b"back");
    upper.directory("w/opaque/sub").file("w/opaque/sub/back", b"back");
    gzip_layers([lower.into_bytes(), middle.into_bytes(), upper.into_bytes()])
}

/// A whiteout after an entry of the same name: whiteouts mean lower layers only.
pub(super) fn whiteout_last() -> io::Result<Image> {
    let mut lower = TarBuilder::new();
    lower
        .directory("w")
        .file("w/file", b"lower")
        .directory("w/dir")
        .file("w/dir/lower", b"");
    let mut upper = TarBuilder::new();
    upper.file("w/file", b"upper").whiteout("w/file");
    upper.directory("w/dir").file("w/dir/upper", b"").opaque("w/dir");
    gzip_layers([lower.into_bytes(), upper.into_bytes()])
}

/// Every type over every other.
pub(super) fn replaced() -> io::Result<Image> {
    const KINDS: [&str; 4] = ["file", "directory", "symlink", "fifo"];
    let add = |tar: &mut TarBuilder<Vec<u8>>, path: &str, kind: &str, text: &str| {
        match kind {
            "file" => tar.file(path, text),
            "directory" => tar.directory(path).file(format!("{path}/{text}"), b"inside"),
            "symlink" => tar.symlink(path, "elsewhere"),
            _ => tar.entry(&Header::new(path, Kind::Fifo)),
        };
    };
    let (mut lower, mut upper) = (TarBuilder::new(), TarBuilder::new());
    lower.directory("r");
    for before in KINDS {
        for after in KINDS {
            let path = format!("r/{before}-to-{after}");
            add(&mut lower, &path, before, "lower");
            add(&mut upper, &path, after, "upper");
        }
    }
    gzip_layers([lower.into_bytes(), upper.into_bytes()])
}

/// Entries below links that a lower layer has: they lead into the image, never out of it.
pub(super) fn symlinked_parents() -> io::Result<Image> {
    let mut lower = TarBuilder::new();
    lower
        .directory("usr")
        .directory("usr/lib")
        .file("usr/lib/old", b"old")
        .directory("usr/lib/sub");
    lower
        .symlink("lib", "usr/lib")
        .symlink("absolute", "/usr/lib")
        .symlink("up", "usr/../usr/lib");
    lower
        .symlink("chain", "lib")
        .symlink("usr/escape", "../../../usr/lib")
        .symlink("deep", "/usr/lib/sub");
    let mut upper = TarBuilder::new();
    upper
        .file("lib/through-relative", b"1")
        .file("absolute/through-absolute", b"2");
    upper
        .file("up/through-dots", b"3")
        .file("chain/through-chain", b"4");
    upper
        .file("usr/escape/through-escape", b"5")
        .directory("deep/new")
        .file("deep/new/file", b"6");
    upper.file("lib/old", b"replaced");
    let mut top = TarBuilder::new();
    top.whiteout("lib/through-chain")
        .hardlink("lib/linked", "usr/lib/through-dots");
    gzip_layers([lower.into_bytes(), upper.into_bytes(), top.into_bytes()])
}

/// Layers without entries, between others.
pub(super) fn empty_layers() -> io::Result<Image> {
    let mut first = TarBuilder::new();
    first.file("first", b"1");
    let mut last = TarBuilder::new();
    last.file("last", b"2");
    let empty = || TarBuilder::new().into_bytes();
    gzip_layers([empty(), first.into_bytes(), empty(), last.into_bytes(), empty()])
}

/// One layer in each encoding, each over 3 MiB, so that spans matter.
pub(super) fn encodings() -> io::Result<Image> {
    let encodings = [
        ("tar", Compression::Tar),
        ("gzip-stored", Compression::Gzip(0)),
        ("gzip-fast", Compression::Gzip(1)),
        ("gzip-best", Compression::Gzip(9)),
        ("gzip-members", Compression::GzipMembers(100_000)),
        ("zstd-one-frame", Compression::Zstd),
        ("zstd-frames", Compression::ZstdFrames(300_000)),
    ];
    let mut image = ImageBuilder::new();
    for (seed, (name, compression)) in (20..).zip(encodings) {
        let mut tar = TarBuilder::new();
        tar.directory(name)
            .file(format!("{name}/noise"), noise(seed, 1 << 20));
        let text: Vec<u8> = (0..200_000_u32)
            .flat_map(|line| format!("{line} {name}\n").into_bytes())
            .collect();
        tar.file(format!("{name}/text"), text)
            .file(format!("{name}/zeros"), vec![0; 1 << 20]);
        image = image.layer(&tar.into_bytes(), compression)?;
    }
    Ok(image.build())
}
