//! Why a tree cannot be written, and the limits it may pass.

use crate::image::InodeId;

/// Largest image that is written, in bytes. Two million files take about 300 MB.
pub const MAX_IMAGE: u64 = 1 << 30;

/// Most chunks of one file. A sparse file whose runs start at odd pages needs one for each 4 KiB of its length:
/// this many are 64 GiB of length and 128 MiB of metadata.
pub const MAX_CHUNKS: u64 = 16 << 20;

/// Most devices: EROFS numbers them with 16 bits, 0 being the image itself.
pub const MAX_DEVICES: usize = u16::MAX as usize - 1;

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
        /// The obstacle, in words.
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
        /// The defect, in words.
        problem: &'static str,
    },
}
