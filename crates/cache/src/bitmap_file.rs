//! The form that the bitmaps of a layer's folder have on disk: a header page, then one bit for each page, least
//! significant first. `docs/formats/presence.md` has the byte map.

use std::io;
use std::path::Path;

use xebec_format::PAGE_SIZE;

use crate::bits::Bits;
use crate::boot::BootId;
use crate::disk::{Access, Disk, DiskFile};

const VERSION: u32 = 1;
/// The header has a page of its own, so that the bits start page-aligned.
pub(crate) const HEADER_SIZE: u64 = PAGE_SIZE;
/// Length of what the header says.
const HEADER_BYTES: usize = 40;
/// What a bitmap names that holds for every boot.
pub(crate) const NO_BOOT: BootId = BootId([0; 16]);

/// What a file says.
#[derive(Debug)]
pub(crate) enum Found {
    /// There is none of that name.
    Missing,
    /// It is not to be believed: damaged, of another data space, or of another boot.
    Damaged,
    /// These bits.
    Bits(Bits),
}

impl Found {
    /// The bits, if they are to be believed.
    pub(crate) fn bits(self) -> Option<Bits> {
        match self {
            Self::Bits(bits) => Some(bits),
            Self::Missing | Self::Damaged => None,
        }
    }
}

/// Bytes 0..8 magic, 8..12 version, 12..16 flags, 16..24 pages, 24..40 boot identity, rest zero.
pub(crate) fn header(magic: &[u8; 8], pages: u64, boot: BootId) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(magic);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[16..24].copy_from_slice(&pages.to_le_bytes());
    header[24..].copy_from_slice(&boot.0);
    header
}

/// Reads a bitmap file by name.
pub(crate) fn read(
    disk: &dyn Disk,
    directory: &Path,
    name: &str,
    magic: &[u8; 8],
    pages: u64,
    boot: BootId,
) -> io::Result<Found> {
    match disk.open(&directory.join(name), Access::Read) {
        Ok(file) => Ok(decode(&*file, magic, pages, boot)?.map_or(Found::Damaged, Found::Bits)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Missing),
        Err(error) => Err(error),
    }
}

/// The bits of an open bitmap file; `None` when it is not to be believed.
pub(crate) fn decode(
    file: &dyn DiskFile,
    magic: &[u8; 8],
    pages: u64,
    boot: BootId,
) -> io::Result<Option<Bits>> {
    let ends_early = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    let mut head = [0; HEADER_BYTES];
    match file.read_exact_at(&mut head, 0) {
        Err(error) if ends_early(&error) => return Ok(None),
        other => other?,
    }
    if head != header(magic, pages, boot) {
        return Ok(None);
    }
    let length = usize::try_from(pages.div_ceil(8)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    match file.read_exact_at(&mut bytes, HEADER_SIZE) {
        Err(error) if ends_early(&error) => Ok(None),
        other => other.map(|()| Some(Bits::from_bytes(bytes, pages))),
    }
}
