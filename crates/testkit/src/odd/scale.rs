//! Images with much of something.

use std::io;

use super::parts::{gzip_layers, noise};
use crate::image::Image;
use crate::tar::TarBuilder;

/// 30,000 entries in one directory; 100,000 in `make soak`.
pub(super) fn big_directory() -> io::Result<Image> {
    let is_full = std::env::var("XEBEC_SOAK").is_ok_and(|value| value == "full");
    let entries = if is_full { 100_000 } else { 30_000_u32 };
    let mut tar = TarBuilder::new();
    tar.directory("big");
    for number in 0..entries {
        match number % 1000 {
            0 => tar.directory(format!("big/directory-{number}")),
            1 => tar.symlink(format!("big/link-{number}"), "directory-0"),
            2 => tar.file(format!("big/file-with-contents-{number}"), format!("{number}")),
            _ => tar.file(format!("big/{number:06}"), b""),
        };
    }
    gzip_layers([tar.into_bytes()])
}

/// 500 layers, each with a file of its own and a newer version of a shared one.
pub(super) fn many_layers() -> io::Result<Image> {
    gzip_layers((0..500_u32).map(|number| {
        let mut tar = TarBuilder::new();
        tar.directory("layers")
            .file(format!("layers/{number}"), format!("layer {number}\n").repeat(50));
        tar.file("layers/newest", number.to_string());
        if number % 7 == 3 {
            tar.whiteout(&format!("layers/{}", number - 2));
        }
        tar.into_bytes()
    }))
}

/// 10,000 files of 0 to 30,000 bytes in three layers, as the tests of reading want them.
pub(super) fn many_files() -> io::Result<Image> {
    let mut random = fastrand::Rng::with_seed(30);
    gzip_layers((0..3_u64).map(|layer| {
        let mut tar = TarBuilder::new();
        for number in 0..3334_u64 {
            // Half text, half noise, so that spans hold different numbers of files.
            let length = random.usize(0..12_000);
            let contents = if number % 2 == 0 {
                noise(layer * 10_000 + number, length)
            } else {
                format!("{layer}/{number} ")
                    .into_bytes()
                    .into_iter()
                    .cycle()
                    .take(length * 2)
                    .collect()
            };
            tar.file(format!("files/{layer}/{}/{number}", number % 40), contents);
        }
        tar.into_bytes()
    }))
}
