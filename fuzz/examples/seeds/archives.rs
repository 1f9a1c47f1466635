//! Small archives, which several targets read.

use xebec_testkit::tar::{Dialect, Header, Kind, SparseFormat, TarBuilder};

/// Small archives, each with what one dialect of tar has.
pub(crate) fn archives() -> Vec<(&'static str, Vec<u8>)> {
    let runs: [(u64, &[u8]); 3] = [(0, &[1; 512]), (8192, &[2; 700]), (20480, &[3; 512])];
    let sparse = |format| {
        let mut tar = TarBuilder::new();
        tar.sparse(&Header::new("sparse", Kind::File), format, 40_000, &runs);
        tar.into_bytes()
    };
    vec![
        ("plain", plain_archive()),
        ("pax", long_names(Dialect::Pax)),
        ("gnu", long_names(Dialect::Gnu)),
        ("sparse-old", sparse(SparseFormat::OldGnu)),
        ("sparse-0.0", sparse(SparseFormat::Pax00)),
        ("sparse-0.1", sparse(SparseFormat::Pax01)),
        ("sparse-1.0", sparse(SparseFormat::Pax10)),
    ]
}

pub(crate) fn plain_archive() -> Vec<u8> {
    let mut tar = TarBuilder::new();
    tar.directory("./");
    tar.directory("a/").file("a/file", b"contents".repeat(60));
    tar.symlink("a/link", "/a/file").hardlink("a/hard", "a/file");
    tar.entry(&Header::new("null", Kind::CharDevice).device(1, 3));
    tar.entry(&Header::new("disk", Kind::BlockDevice).device(8, 0));
    tar.entry(&Header::new("pipe", Kind::Fifo));
    tar.file("empty", b"").whiteout("a/gone").opaque("b");
    tar.into_bytes()
}

fn long_names(dialect: Dialect) -> Vec<u8> {
    let long = "long/".repeat(30);
    let mut tar = TarBuilder::new();
    tar.dialect(dialect);
    tar.file(format!("{long}file"), b"x");
    tar.symlink("link", format!("/{long}file"));
    let header = Header::new("attributes", Kind::File).owner(3_000_000, 5);
    let header = match dialect {
        Dialect::Pax => header
            .modified(-5, 999_999_999)
            .xattr("user.a", "value")
            .xattr("security.capability", [1, 0, 0, 2, 0, 4, 0, 0]),
        Dialect::Gnu => header.modified(-5, 0),
    };
    tar.file_with(&header, b"y");
    tar.into_bytes()
}
