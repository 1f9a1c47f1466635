//! Devices that an image's files are on, and properties of the image as a whole.

use crate::digest::Digest;
use crate::{PAGE_SIZE, round_up_to_page};

/// A device that file contents are on; extents name it by its place in the list given to [`super::write()`], and it must be
/// given to the mount in that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The device's name in the image; the kernel does not look at it when the mount names devices.
    pub tag: [u8; 64],
    /// Size of the device in bytes.
    pub data_size: u64,
}

impl Device {
    /// A device with the contents of a layer: its tag is the digest's 64 hexadecimal digits.
    pub fn of_layer(layer: &Digest, data_size: u64) -> Self {
        let mut tag = [0; 64];
        for (to, from) in tag.iter_mut().zip(layer.hex().bytes()) {
            *to = from;
        }
        Self { tag, data_size }
    }

    /// The device's size in blocks, as the image states it.
    pub(super) fn blocks(&self) -> Option<u32> {
        let blocks = round_up_to_page(self.data_size)? / PAGE_SIZE;
        u32::try_from(blocks).ok().filter(|blocks| *blocks < u32::MAX)
    }
}

/// Properties of an image beside its tree and its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// The file system's UUID. Give different views different ones: overlayfs tells lower file systems apart by it.
    pub uuid: [u8; 16],
}
