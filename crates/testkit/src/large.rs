//! Images of any size whose every byte follows from a few figures, so that nothing of them has to be kept.
//!
//! Most files are small, some are hundreds of kilobytes, a few are megabytes, as in images of the field. Each
//! layer ends with a file that belongs to no walk ([`Large::kept_back`]): as long as nobody reads it its layer is
//! not complete, and readers of the others go on raising events.

use std::io;

use xebec_format::digest::Digest;

use crate::compression::Compression;
use crate::image::{Blob, Image, ImageBuilder};
use crate::tar::TarBuilder;

/// Size of the file that each layer ends with: more than is fetched ahead of a reader.
const KEPT_BACK: u64 = 12 << 20;

/// The sizes and shape of a large image.
#[derive(Clone, Copy, Debug)]
pub struct Large {
    /// Number of layers.
    pub layers: usize,
    /// Number of files, without those that are kept back.
    pub files: usize,
    /// Size of these files in bytes, about.
    pub bytes: u64,
    /// Other images have other seeds.
    pub seed: u64,
}

/// A file of such an image.
#[derive(Clone, Debug)]
pub struct LargeFile {
    /// Its path.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Number of its layer.
    pub layer: usize,
    seed: u64,
}

impl LargeFile {
    /// Its bytes: letters that gzip makes a quarter of.
    pub fn contents(&self) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let length = usize::try_from(self.size).unwrap_or(usize::MAX);
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            // Two random bits in each byte, upon an "a".
            let word = random.u64(..) & 0x0303_0303_0303_0303 | 0x6161_6161_6161_6161;
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

impl Large {
    /// The files that are there to be read, in the order of the layers.
    pub fn files(&self) -> Vec<LargeFile> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let shapes: Vec<u64> = (0..self.files)
            .map(|_| match random.u32(..1000) {
                0 => random.u64(8 << 20..24 << 20),
                1..100 => random.u64(100_000..1_200_000),
                _ => random.u64(1..40_000),
            })
            .collect();
        let sum = shapes.iter().sum::<u64>().max(1);
        let in_layer = self.files.div_ceil(self.layers.max(1)).max(1);
        let file = |(number, shape): (usize, u64)| LargeFile {
            path: format!("d{:03}/f{number:05}", number / 100),
            size: u64::try_from(u128::from(shape) * u128::from(self.bytes) / u128::from(sum))
                .unwrap_or(shape)
                .max(1),
            layer: number / in_layer,
            seed: self.seed ^ (number as u64 + 1) << 20,
        };
        shapes.into_iter().enumerate().map(file).collect()
    }

    /// The file that each layer ends with.
    pub fn kept_back(&self) -> Vec<LargeFile> {
        let file = |layer| LargeFile {
            path: format!("kept-back/{layer}"),
            size: KEPT_BACK,
            layer,
            seed: !self.seed ^ (layer as u64) << 20,
        };
        (0..self.layers).map(file).collect()
    }

    /// The image with gzip layers, two of them made at a time.
    ///
    /// # Errors
    /// When an encoder fails.
    pub fn image(&self) -> io::Result<Image> {
        let files: Vec<LargeFile> = self.files().into_iter().chain(self.kept_back()).collect();
        let layers: Vec<usize> = (0..self.layers).collect();
        let mut builder = ImageBuilder::new();
        for pair in layers.chunks(2) {
            let made: Vec<io::Result<(Blob, Digest)>> = std::thread::scope(|scope| {
                let files = &files;
                let threads: Vec<_> = pair
                    .iter()
                    .map(|&number| scope.spawn(move || layer(files, number)))
                    .collect();
                let died = || io::Error::other("a thread that made a layer died");
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap_or_else(|_| Err(died())))
                    .collect()
            });
            for layer in made {
                let (blob, diff_id) = layer?;
                builder = builder.blob(blob, diff_id);
            }
        }
        Ok(builder.build())
    }
}

fn layer(files: &[LargeFile], number: usize) -> io::Result<(Blob, Digest)> {
    let mut tar = TarBuilder::new();
    for file in files.iter().filter(|file| file.layer == number) {
        tar.file(&file.path, file.contents());
    }
    let plain = tar.into_bytes();
    let compression = Compression::Gzip(1);
    let blob = Blob::new(compression.encode(&plain)?, compression.media_type());
    Ok((blob, Digest::of(&plain)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_as_large_as_was_asked_and_the_same_each_time() {
        let large = Large {
            layers: 3,
            files: 500,
            bytes: 20 << 20,
            seed: 1,
        };
        let files = large.files();
        let bytes: u64 = files.iter().map(|file| file.size).sum();
        assert_eq!(files.len(), 500);
        assert!(bytes.abs_diff(20 << 20) < 1000, "{bytes}");
        assert!(files.iter().all(|file| file.layer < 3));
        let (one, other) = (large.image().unwrap(), large.image().unwrap());
        assert_eq!(one.manifest.digest, other.manifest.digest);
        assert_eq!(one.layers.len(), 3);
        let another = Large { seed: 2, ..large }.image().unwrap();
        assert_ne!(one.manifest.digest, another.manifest.digest);
        let compressed: usize = one.layers.iter().map(|layer| layer.bytes.len()).sum();
        let plain = bytes + 3 * KEPT_BACK;
        assert!((compressed as u64) < plain / 2, "{compressed} of {plain}");
    }
}
