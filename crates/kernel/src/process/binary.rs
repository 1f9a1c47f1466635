//! How an executable is linked. A daemon that a lazy mount's readers depend on must not load a shared library
//! while it serves: the library could lie on a lazy mount.
//!
//! ELF-64, little-endian, by the System V ABI: an executable with a `PT_INTERP` segment is loaded dynamically.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const ELF_HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// Linkers write about a dozen segments; a file that claims more than this is not looked at further.
const MAX_PROGRAM_HEADERS: u16 = 256;
const PT_INTERP: u32 = 3;

/// How an executable is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// It needs no other file to run.
    Static,
    /// A dynamic loader completes it at start.
    Dynamic,
}

/// An executable could not be judged.
#[derive(Debug, thiserror::Error)]
#[error("cannot tell how {} is linked: {problem}", .path.display())]
pub struct BinaryError {
    /// The file.
    pub path: PathBuf,
    /// The fault, in words.
    pub problem: String,
}

/// How this process's executable is linked.
///
/// # Errors
/// [`BinaryError`].
pub fn own_linkage() -> Result<Linkage, BinaryError> {
    linkage(Path::new("/proc/self/exe"))
}

/// How the executable at `path` is linked.
///
/// # Errors
/// [`BinaryError`] when it cannot be read, or is no little-endian ELF-64 file.
pub fn linkage(path: &Path) -> Result<Linkage, BinaryError> {
    let error = |problem: String| BinaryError {
        path: path.to_owned(),
        problem,
    };
    let not_elf = || error("it is no little-endian ELF-64 file".to_owned());
    let read_error = |source: io::Error| error(source.to_string());
    let file = File::open(path).map_err(read_error)?;
    let mut header = [0u8; ELF_HEADER_BYTES];
    file.read_exact_at(&mut header, 0).map_err(read_error)?;
    // e_ident: magic, ELFCLASS64, ELFDATA2LSB.
    if header.first_chunk() != Some(b"\x7fELF\x02\x01") {
        return Err(not_elf());
    }
    let offset = u64_at(&header, 32).ok_or_else(not_elf)?;
    let size = u16_at(&header, 54).ok_or_else(not_elf)?;
    let count = u16_at(&header, 56).ok_or_else(not_elf)?;
    if usize::from(size) != PROGRAM_HEADER_BYTES || count > MAX_PROGRAM_HEADERS {
        return Err(not_elf());
    }
    for number in 0..u64::from(count) {
        let at = offset
            .checked_add(number * PROGRAM_HEADER_BYTES as u64)
            .ok_or_else(not_elf)?;
        let mut kind = [0u8; 4];
        file.read_exact_at(&mut kind, at).map_err(read_error)?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(Linkage::Dynamic);
        }
    }
    Ok(Linkage::Static)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tells_dynamic_from_static() {
        assert_eq!(
            own_linkage().unwrap(),
            Linkage::Dynamic,
            "test executables are linked dynamically"
        );
        let statically_linked = Path::new("/sbin/ldconfig");
        if statically_linked.exists() {
            assert_eq!(linkage(statically_linked).unwrap(), Linkage::Static);
        } else {
            println!("SKIPPED: no /sbin/ldconfig, which is linked statically everywhere");
        }
        assert!(linkage(Path::new("/proc/self/status")).is_err());
        assert!(linkage(Path::new("/nowhere")).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_header_is_judged_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 6..400),
        ) {
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), &bytes).unwrap();
            let _ = linkage(file.path());
        }
    }
}
