//! Writes an [`ImageTree`] as an EROFS file system image that holds metadata only: file contents are chunks on
//! further devices, one per layer, which are the layers' data files.
//!
//! The image is laid out first (every size and place is known before a byte is written) and then written into one
//! zeroed buffer. The same tree, devices and options give the same bytes. `docs/formats/erofs-view.md` has the byte
//! map and the reasons; structures are those of `fs/erofs/erofs_fs.h` in Linux (4 KiB blocks, extended inodes, chunk
//! indexes, device table, superblock checksum: what Linux 5.16 and later read).

mod chunks;
mod crc32c;
mod directory;
mod disk;
mod layout;
mod write;
mod xattrs;

use crate::digest::Digest;
use crate::image::{ImageTree, InodeId};
use crate::{PAGE_SIZE, round_up_to_page};

/// Largest image that is written, in bytes. Two million files take about 300 MB.
pub const MAX_IMAGE: u64 = 1 << 30;
/// Most chunks of one file. A sparse file whose runs start at odd pages needs one for each 4 KiB of its length:
/// this many are 64 GiB of length and 128 MiB of metadata.
pub const MAX_CHUNKS: u64 = 16 << 20;
/// Most devices: EROFS numbers them with 16 bits, 0 being the image itself.
pub const MAX_DEVICES: usize = u16::MAX as usize - 1;

/// A device that file contents are on; extents name it by its place in the list given to [`write()`], and it must be
/// given to the mount in that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// What the device is called in the image; the kernel does not look at it when the mount names devices.
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
    fn blocks(&self) -> Option<u32> {
        let blocks = round_up_to_page(self.data_size)? / PAGE_SIZE;
        u32::try_from(blocks).ok().filter(|blocks| *blocks < u32::MAX)
    }
}

/// What else an image says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// The file system's UUID. Give different views different ones: overlayfs tells lower file systems apart by it.
    pub uuid: [u8; 16],
}

/// Why a tree cannot be written as an EROFS image.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ErofsError {
    /// More devices than EROFS can number.
    #[error("{0} devices are more than an EROFS image can have ({MAX_DEVICES})")]
    TooManyDevices(usize),
    /// A device over 16 TiB.
    #[error("device {number} has {bytes} bytes; EROFS addresses 16 TiB")]
    DeviceTooLarge {
        /// Which device, counted from 0.
        number: usize,
        /// Its size.
        bytes: u64,
    },
    /// The image would be larger than [`MAX_IMAGE`].
    #[error("the image's metadata would take {0} bytes, more than {MAX_IMAGE}")]
    ImageTooLarge(u64),
    /// A sparse file would need more chunks than [`MAX_CHUNKS`].
    #[error(
        "sparse file (inode {inode:?}) of {size} bytes would need {chunks} chunks, more than {MAX_CHUNKS}"
    )]
    TooSparse {
        /// The file.
        inode: InodeId,
        /// Its length.
        size: u64,
        /// The chunks needed.
        chunks: u64,
    },
    /// An extent is not aligned, out of order, or outside its device or file.
    #[error("inode {0:?} has an extent that is not aligned, out of order, or outside its device")]
    Extent(InodeId),
    /// An extended attribute does not fit the format.
    #[error("inode {inode:?} has an extended attribute {name:?} that EROFS cannot hold: {problem}")]
    Xattr {
        /// The inode.
        inode: InodeId,
        /// The attribute.
        name: String,
        /// What is in the way.
        problem: &'static str,
    },
    /// A device number that does not fit 12 bits of major and 20 bits of minor number.
    #[error("inode {inode:?} is device {major}:{minor}; Linux has majors to 4095 and minors to 1048575")]
    DeviceNumber {
        /// The inode.
        inode: InodeId,
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// The tree is not what its type says.
    #[error("the tree is malformed at inode {inode:?}: {problem}")]
    Tree {
        /// The inode.
        inode: InodeId,
        /// What is wrong.
        problem: &'static str,
    },
}

/// Writes `tree` as an EROFS image whose file contents are on `devices`.
///
/// # Errors
/// See [`ErofsError`]; trees that [`crate::merge::merge`] made fail only where EROFS has a limit.
pub fn write(tree: &ImageTree, devices: &[Device], options: &Options) -> Result<Vec<u8>, ErofsError> {
    let layout = layout::Layout::of(tree, devices)?;
    Ok(write::write(tree, devices, options, &layout))
}
