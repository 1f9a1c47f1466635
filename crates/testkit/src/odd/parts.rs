//! Parts that several images are made of.

use std::io;

use crate::compression::Compression;
use crate::image::{Image, ImageBuilder};

/// An image of gzip layers.
pub(super) fn gzip_layers(layers: impl IntoIterator<Item = Vec<u8>>) -> io::Result<Image> {
    let mut image = ImageBuilder::new();
    for layer in layers {
        image = image.layer(&layer, Compression::Gzip(1))?;
    }
    Ok(image.build())
}

/// `length` bytes that do not compress, other ones for each seed.
pub(super) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}
