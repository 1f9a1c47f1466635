//! One header block: V7, ustar, star or GNU.

use super::error::HeaderProblem;
use super::number::{numeric, octal, text};

/// Unit of everything in a tar archive, in bytes.
pub(super) const BLOCK: usize = 512;

/// One block.
pub(super) type Block = [u8; BLOCK];

/// Type flags that the parser itself acts on.
pub(crate) mod kind {
    /// Regular file of archives older than ustar.
    pub(crate) const OLD_FILE: u8 = 0;
    /// Regular file.
    pub(crate) const FILE: u8 = b'0';
    /// Hard link.
    pub(crate) const HARDLINK: u8 = b'1';
    /// Symbolic link.
    pub(crate) const SYMLINK: u8 = b'2';
    /// Character device.
    pub(crate) const CHAR: u8 = b'3';
    /// Block device.
    pub(crate) const BLOCK: u8 = b'4';
    /// Directory.
    pub(crate) const DIRECTORY: u8 = b'5';
    /// Named pipe.
    pub(crate) const FIFO: u8 = b'6';
    /// Contiguous file: POSIX says to treat it as a regular file.
    pub(crate) const CONTIGUOUS: u8 = b'7';
    /// PAX header for the next entry.
    pub(crate) const PAX: u8 = b'x';
    /// PAX header for all later entries.
    pub(crate) const PAX_GLOBAL: u8 = b'g';
    /// GNU: the next entry's name.
    pub(crate) const LONG_NAME: u8 = b'L';
    /// GNU: the next entry's link target.
    pub(crate) const LONG_LINK: u8 = b'K';
    /// GNU: sparse file.
    pub(crate) const SPARSE: u8 = b'S';
}

/// Which dialect a header is in; decides what is in its last 167 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    V7,
    Ustar,
    Star,
    Gnu,
}

/// A header's fields, before PAX records and long names are applied.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) dialect: Dialect,
    pub(crate) kind: u8,
    pub(crate) name: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) size: i64,
    pub(crate) mode: i64,
    pub(crate) uid: i64,
    pub(crate) gid: i64,
    pub(crate) mtime: i64,
    pub(crate) mtime_nanoseconds: u32,
    pub(crate) major: i64,
    pub(crate) minor: i64,
}

impl Header {
    /// Parses a block that is not all zeros.
    pub(super) fn parse(block: &Block) -> Result<Self, HeaderProblem> {
        verify_checksum(block)?;
        let number = |from: usize, length: usize, name| {
            numeric(field(block, from, length)).ok_or(HeaderProblem::Number(name))
        };
        let dialect = dialect(block);
        let mut header = Self {
            dialect,
            kind: block[156],
            name: text(field(block, 0, 100)).to_vec(),
            link: text(field(block, 157, 100)).to_vec(),
            mode: number(100, 8, "mode")?,
            uid: number(108, 8, "uid")?,
            gid: number(116, 8, "gid")?,
            size: number(124, 12, "size")?,
            mtime: number(136, 12, "mtime")?,
            mtime_nanoseconds: 0,
            major: 0,
            minor: 0,
        };
        if dialect != Dialect::V7 {
            header.major = number(329, 8, "devmajor")?;
            header.minor = number(337, 8, "devminor")?;
        }
        let prefix = prefix(block, dialect)?;
        if !prefix.is_empty() {
            header.name = [prefix, b"/", &header.name].concat();
        }
        Ok(header)
    }

    /// Whether the entry has no contents whatever its size field says (hard links to pipes).
    pub(super) fn is_header_only(&self) -> bool {
        matches!(self.kind, kind::HARDLINK..=kind::FIFO)
    }
}

/// A field of a block. All callers pass constants within the block.
pub(super) fn field(block: &Block, from: usize, length: usize) -> &[u8] {
    block.get(from..from + length).unwrap_or_default()
}

/// POSIX sums bytes as unsigned, old Sun tar as signed; both count the checksum field as spaces.
fn verify_checksum(block: &Block) -> Result<(), HeaderProblem> {
    let want = octal(field(block, 148, 8)).ok_or(HeaderProblem::Checksum)?;
    // Plain sums over all bytes, which compilers vectorize; then the checksum field is exchanged for spaces.
    let unsigned = |bytes: &[u8]| bytes.iter().map(|&byte| i64::from(byte)).sum::<i64>();
    let signed = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|&byte| i64::from(byte.cast_signed()))
            .sum::<i64>()
    };
    let (own, spaces) = (field(block, 148, 8), 8 * i64::from(b' '));
    let (unsigned, signed) = (
        unsigned(block) - unsigned(own) + spaces,
        signed(block) - signed(own) + spaces,
    );
    if want == unsigned || want == signed {
        Ok(())
    } else {
        Err(HeaderProblem::Checksum)
    }
}

fn dialect(block: &Block) -> Dialect {
    let (magic, version) = (field(block, 257, 6), field(block, 263, 2));
    match magic {
        b"ustar\0" if field(block, 508, 4) == b"tar\0" => Dialect::Star,
        b"ustar\0" => Dialect::Ustar,
        b"ustar " if version == b" \0" => Dialect::Gnu,
        _ => Dialect::V7,
    }
}

/// The part of the name that is kept apart.
fn prefix(block: &Block, dialect: Dialect) -> Result<&[u8], HeaderProblem> {
    match dialect {
        Dialect::V7 => Ok(&[]),
        Dialect::Ustar => Ok(text(field(block, 345, 155))),
        Dialect::Star => {
            for (from, name) in [(476, "atime"), (488, "ctime")] {
                numeric(field(block, from, 12)).ok_or(HeaderProblem::Number(name))?;
            }
            Ok(text(field(block, 345, 131)))
        }
        Dialect::Gnu => Ok(misplaced_prefix(block)),
    }
}

/// GNU headers have times where ustar has the prefix. Go before 1.8 wrote a prefix there all the same; such
/// archives are told by times that are no numbers (golang.org/issue/12594).
fn misplaced_prefix(block: &Block) -> &[u8] {
    let is_time = |from| {
        let time = field(block, from, 12);
        time.first() == Some(&0) || numeric(time).is_some()
    };
    if is_time(345) && is_time(357) {
        return &[];
    }
    let prefix = text(field(block, 345, 155));
    if prefix.is_ascii() { prefix } else { &[] }
}
