//! A catalogue of odd but valid images: each shows one thing that layers in the field have, in a few files.
//!
//! All are deterministic. [`all`] lists them, and says which other programs can unpack which.

mod layering;
mod parts;
mod scale;
mod single;

use std::io;

use crate::image::Image;

/// A program that unpacks images, or single layers, independently of Xebec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpacker {
    /// umoci, which builds images as well. Knows neither zstd nor old GNU sparse files.
    Umoci,
    /// containerd's `archive.Apply`. Does not know old GNU sparse files either.
    Containerd,
    /// GNU tar: one layer, no whiteouts.
    GnuTar,
}

/// An image of the catalogue.
pub struct Odd {
    /// Its name.
    pub name: &'static str,
    /// Makes it.
    pub make: fn() -> io::Result<Image>,
    /// The programs that unpack it as the specification says.
    pub unpackers: &'static [Unpacker],
}

/// The catalogue.
pub fn all() -> Vec<Odd> {
    use Unpacker::{Containerd, GnuTar, Umoci};
    let both = |name, make| Odd {
        name,
        make,
        unpackers: &[Umoci, Containerd],
    };
    vec![
        both("kinds", single::kinds),
        both("names", single::names),
        both("times", single::times),
        both("xattrs", single::xattrs),
        both("sparse", single::sparse),
        Odd {
            name: "sparse-old-gnu",
            make: single::sparse_old_gnu,
            unpackers: &[GnuTar],
        },
        both("numbers", single::numbers),
        both("repeated", single::repeated),
        both("implied-parents", single::implied_parents),
        both("trailing-garbage", single::trailing_garbage),
        // All of them use whole paths, which the kernel takes only up to 4,096 bytes.
        Odd {
            name: "long-paths",
            make: single::long_paths,
            unpackers: &[],
        },
        both("hardlinks", layering::hardlinks),
        both("whiteouts", layering::whiteouts),
        both("replaced", layering::replaced),
        both("symlinked-parents", layering::symlinked_parents),
        both("empty-layers", layering::empty_layers),
        Odd {
            name: "encodings",
            make: layering::encodings,
            unpackers: &[Containerd],
        },
        // containerd lets a whiteout remove what the same layer brought before it.
        Odd {
            name: "whiteout-last",
            make: layering::whiteout_last,
            unpackers: &[Umoci],
        },
        both("big-directory", scale::big_directory),
        both("500-layers", scale::many_layers),
        both("10000-files", scale::many_files),
    ]
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
