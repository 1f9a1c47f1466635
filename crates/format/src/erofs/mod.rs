//! Writes an [`ImageTree`] as an EROFS file system image that holds metadata only: file contents are chunks on
//! further devices, one per layer, which are the layers' data files.
//!
//! The image is laid out first (every size and place is known before a byte is written) and then written into one
//! zeroed buffer. The same tree, devices and options give the same bytes. `docs/formats/erofs-view.md` has the byte
//! map and the reasons; structures are those of `fs/erofs/erofs_fs.h` in Linux (4 KiB blocks, extended inodes, chunk
//! indexes, device table, superblock checksum: what Linux 5.16 and later read).

mod chunks;
mod crc32c;
mod device;
mod directory;
mod disk;
mod error;
mod layout;
mod write;
mod xattrs;

pub use device::{Device, Options};
pub use error::{ErofsError, MAX_CHUNKS, MAX_DEVICES, MAX_IMAGE};

use crate::image::ImageTree;

/// Writes `tree` as an EROFS image whose file contents are on `devices`.
///
/// # Errors
/// See [`ErofsError`]; trees that [`crate::merge::merge`] made fail only where EROFS has a limit.
pub fn write(tree: &ImageTree, devices: &[Device], options: &Options) -> Result<Vec<u8>, ErofsError> {
    let layout = layout::Layout::of(tree, devices)?;
    Ok(write::write(tree, devices, options, &layout))
}
