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
/// Length of the header's fields, in bytes.
const HEADER_BYTES: usize = 40;
/// The boot identity in a bitmap that holds for every boot.
pub(crate) const NO_BOOT: BootId = BootId([0; 16]);

/// The result of reading a bitmap file.
#[derive(Debug)]
pub(crate) enum Found {
    /// There is none of that name.
    Missing,
    /// It does not count: damaged, of another data space, or of another boot.
    Damaged,
    /// These bits.
    Bits(Bits),
}

impl Found {
    /// The bits, if they count.
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

/// The bits of an open bitmap file; `None` if it does not count.
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

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::os::fd::BorrowedFd;

    use super::*;
    use crate::disk::RealDisk;

    const MAGIC: &[u8; 8] = b"XBTESTED";
    const BOOT: BootId = BootId([7; 16]);
    const PAGES: u64 = 20;

    /// A file in memory, of which no byte from `broken` on can be read.
    #[derive(Debug)]
    struct Worn {
        bytes: Vec<u8>,
        broken: u64,
    }

    impl DiskFile for Worn {
        fn read_exact_at(&self, to: &mut [u8], offset: u64) -> io::Result<()> {
            let end = offset + to.len() as u64;
            if end > self.broken {
                return Err(io::Error::other("worn out"));
            }
            let found = self.bytes.get(offset as usize..end as usize);
            to.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        }
        fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Ok(())
        }
        fn set_length(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn punch(&self, _: Range<u64>) -> io::Result<()> {
            Ok(())
        }
        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }
        fn length(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }
        fn identity(&self) -> io::Result<xebec_kernel::file::FileIdentity> {
            Ok(xebec_kernel::file::FileIdentity { device: 0, inode: 0 })
        }
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    /// The fields and bits to write into a file.
    struct Written {
        magic: [u8; 8],
        pages: u64,
        boot: BootId,
        length: u64,
        broken: u64,
    }

    /// A whole file in which pages 1 and 17 are set, and a bit beyond the last page.
    const WHOLE: Written = Written {
        magic: *MAGIC,
        pages: PAGES,
        boot: BOOT,
        length: HEADER_SIZE + 3,
        broken: u64::MAX,
    };

    fn written(written: &Written) -> Worn {
        let mut bytes = header(&written.magic, written.pages, written.boot).to_vec();
        bytes.resize(HEADER_SIZE as usize, 0);
        bytes.extend([0b10, 0, 0b1000_0010]);
        bytes.truncate(written.length as usize);
        Worn {
            bytes,
            broken: written.broken,
        }
    }

    #[test]
    fn only_a_whole_file_of_the_same_pages_and_boot_claims_anything() {
        let bits = |file: &Worn| {
            decode(file, MAGIC, PAGES, BOOT).map(|bits| bits.map(|bits| bits.runs(0..99, true)))
        };
        assert_eq!(bits(&written(&WHOLE)).unwrap(), Some(vec![1..2, 17..18]));
        for (what, changed) in [
            (
                "another magic",
                Written {
                    magic: *b"XBTESTER",
                    ..WHOLE
                },
            ),
            (
                "more pages",
                Written {
                    pages: PAGES + 1,
                    ..WHOLE
                },
            ),
            (
                "another boot",
                Written {
                    boot: NO_BOOT,
                    ..WHOLE
                },
            ),
            ("no bytes", Written { length: 0, ..WHOLE }),
            (
                "half a header",
                Written {
                    length: HEADER_BYTES as u64 - 1,
                    ..WHOLE
                },
            ),
            (
                "no bits",
                Written {
                    length: HEADER_SIZE,
                    ..WHOLE
                },
            ),
            (
                "a byte of bits less",
                Written {
                    length: HEADER_SIZE + 2,
                    ..WHOLE
                },
            ),
        ] {
            assert_eq!(bits(&written(&changed)).unwrap(), None, "{what}");
        }
    }

    /// A disk that cannot read a file says nothing about what the file claims.
    #[test]
    fn a_file_that_cannot_be_read_is_not_a_damaged_one() {
        for broken in [0, HEADER_SIZE, HEADER_SIZE + 2] {
            let file = written(&Written { broken, ..WHOLE });
            let error = decode(&file, MAGIC, PAGES, BOOT).unwrap_err();
            assert_eq!(error.to_string(), "worn out", "from byte {broken}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_not_a_missing_one() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("present");
        let read = |directory: &Path| read(&RealDisk, directory, "present", MAGIC, PAGES, BOOT);
        assert!(matches!(read(directory.path()).unwrap(), Found::Missing));
        std::fs::write(&file, b"XBTESTED").unwrap();
        assert!(matches!(read(directory.path()).unwrap(), Found::Damaged));
        std::fs::write(&file, written(&WHOLE).bytes).unwrap();
        let found = read(directory.path()).unwrap();
        assert!(
            matches!(&found, Found::Bits(bits) if bits.count() == 2),
            "{found:?}"
        );
        assert_eq!(found.bits().map(|bits| bits.count()), Some(2));
        // The directory is a file.
        let error = read(&file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }
}
