//! Images whose layers can be indexed.

use xebec_testkit::compression::Compression;
use xebec_testkit::image::{Image, ImageBuilder};
use xebec_testkit::tar::TarBuilder;

/// One of a layer with a file of these contents.
pub(crate) fn image(contents: &[u8]) -> Image {
    let mut tar = TarBuilder::new();
    tar.file("file", contents);
    ImageBuilder::new()
        .layer(&tar.into_bytes(), Compression::Gzip(1))
        .unwrap()
        .build()
}
