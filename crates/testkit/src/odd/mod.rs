//! A catalogue of odd but valid images: each shows one thing that layers in the field have, in a few files.
//!
//! All are deterministic. [`all`] lists them; the notes of [`Odd`] say who else can unpack which.

mod layering;
mod scale;
mod single;

use std::io;

use crate::compression::Compression;
use crate::image::{Image, ImageBuilder};

/// An image of the catalogue.
pub struct Odd {
    /// Its name.
    pub name: &'static str,
    /// Makes it.
    pub make: fn() -> io::Result<Image>,
    /// Whether umoci unpacks it, and as the specification says.
    pub umoci: bool,
    /// Whether containerd unpacks it, and as the specification says.
    pub containerd: bool,
}

/// The catalogue.
pub fn all() -> Vec<Odd> {
    let both = |name, make| Odd {
        name,
        make,
        umoci: true,
        containerd: true,
    };
    vec![
        both("kinds", single::kinds),
        both("names", single::names),
        both("times", single::times),
        // umoci drops attributes with empty values and those of symbolic links.
        both("xattrs", single::xattrs),
        // umoci knows neither type S nor type 7.
        Odd {
            name: "sparse",
            make: single::sparse,
            umoci: false,
            containerd: true,
        },
        both("numbers", single::numbers),
        both("repeated", single::repeated),
        both("implied-parents", single::implied_parents),
        both("trailing-garbage", single::trailing_garbage),
        // Both use whole paths, which the kernel takes only up to 4,096 bytes.
        Odd {
            name: "long-paths",
            make: single::long_paths,
            umoci: false,
            containerd: false,
        },
        both("hardlinks", layering::hardlinks),
        both("whiteouts", layering::whiteouts),
        both("replaced", layering::replaced),
        both("symlinked-parents", layering::symlinked_parents),
        both("empty-layers", layering::empty_layers),
        // umoci knows no zstd.
        Odd {
            name: "encodings",
            make: layering::encodings,
            umoci: false,
            containerd: true,
        },
        // containerd lets a whiteout remove what the same layer brought before it.
        Odd {
            name: "whiteout-last",
            make: layering::whiteout_last,
            umoci: true,
            containerd: false,
        },
        both("big-directory", scale::big_directory),
        both("500-layers", scale::many_layers),
        both("10000-files", scale::many_files),
    ]
}

/// An image of gzip layers.
fn gzip_layers(layers: impl IntoIterator<Item = Vec<u8>>) -> io::Result<Image> {
    let mut image = ImageBuilder::new();
    for layer in layers {
        image = image.layer(&layer, Compression::Gzip(6))?;
    }
    Ok(image.build())
}

/// `length` bytes that do not compress, other ones for each seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; length];
    random.fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_the_same_each_time() {
        // The big ones take long without optimization and are made in the same way.
        for odd in all().iter().filter(|odd| !odd.name.contains("00")) {
            let digest = |odd: &Odd| (odd.make)().unwrap().manifest.digest;
            assert_eq!(digest(odd), digest(odd), "{}", odd.name);
        }
    }
}
