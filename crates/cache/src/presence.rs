//! The presence bitmap of a layer's data file: one bit for each page, set once the page holds verified bytes.
//!
//! The file `present` starts with a header page (magic, version, page count, boot identity, flags), then the
//! bits, least significant first. Bits are written after the data they speak of, so a process that dies leaves
//! at most pages that are there and not claimed. That holds within one boot, where the page cache is the truth.
//! After a reboot only a file whose header says *durable* is believed: data and bits were synced before it was
//! said. Otherwise the bits start again at zero and the pages are fetched anew.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use xebec_format::PAGE_SIZE;

const MAGIC: &[u8; 8] = b"XBPRESNT";
const VERSION: u32 = 1;
/// The header has a page of its own, so that the bits start page-aligned.
const HEADER_SIZE: u64 = PAGE_SIZE;
const FLAG_DURABLE: u32 = 1;
const PAGES_AT: usize = 16;
const BOOT_AT: usize = 24;
const FLAGS_AT: u64 = 12;

/// Identity of one boot of the machine, as in `/proc/sys/kernel/random/boot_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// The boot that this process runs in.
    ///
    /// # Errors
    /// When `/proc` cannot be read or holds something else.
    pub fn current() -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let mut bytes = [0; 16];
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        if digits.len() != 32 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "boot_id is not a UUID",
            ));
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(io::Error::other)?;
            *byte = u8::from_str_radix(pair, 16).map_err(io::Error::other)?;
        }
        Ok(Self(bytes))
    }
}

/// The bitmap, in memory and on disk.
#[derive(Debug)]
pub struct Presence {
    file: File,
    pages: u64,
    bits: Mutex<Bits>,
    durable: AtomicBool,
}

#[derive(Debug)]
struct Bits {
    bytes: Vec<u8>,
    present: u64,
}

impl Presence {
    /// Opens or creates the bitmap at `path` for a data space of `pages` pages.
    ///
    /// A missing, damaged or foreign file, and one of an earlier boot that is not durable, starts at zero.
    ///
    /// # Errors
    /// I/O errors of the file itself.
    pub fn open(path: &Path, pages: u64, boot: BootId) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let length = usize::try_from(pages.div_ceil(8)).map_err(io::Error::other)?;
        let (bytes, durable) = match read_bits(&file, pages, length, boot)? {
            Some(found) => found,
            None => {
                file.set_len(0)?;
                file.set_len(HEADER_SIZE + length as u64)?;
                file.write_all_at(&header(pages, boot), 0)?;
                (vec![0; length], false)
            }
        };
        let present = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let bits = Mutex::new(Bits { bytes, present });
        Ok(Self {
            file,
            pages,
            bits,
            durable: AtomicBool::new(durable),
        })
    }

    /// Reads the bitmap at `path` without ever writing it: for a process that does not own the cache.
    ///
    /// # Errors
    /// I/O errors other than a missing file, which claims nothing.
    pub fn look(path: &Path, pages: u64, boot: BootId) -> io::Result<Self> {
        let length = usize::try_from(pages.div_ceil(8)).map_err(io::Error::other)?;
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => File::open("/dev/null")?,
            other => other?,
        };
        let (bytes, durable) = read_bits(&file, pages, length, boot)?.unwrap_or((vec![0; length], false));
        let present = bytes.iter().map(|byte| u64::from(byte.count_ones())).sum();
        let bits = Mutex::new(Bits { bytes, present });
        Ok(Self {
            file,
            pages,
            bits,
            durable: AtomicBool::new(durable),
        })
    }

    /// Number of pages of the data space.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Number of pages that are present.
    pub fn present(&self) -> u64 {
        self.lock().present
    }

    /// Whether every page is present.
    pub fn is_complete(&self) -> bool {
        self.present() == self.pages
    }

    /// Whether the bits would be believed after a reboot.
    pub fn is_durable(&self) -> bool {
        self.durable.load(Ordering::Acquire)
    }

    /// The runs of pages inside `range` that are not present, ascending. Pages beyond the end are left out.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let bits = self.lock();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for page in range.start..range.end.min(self.pages) {
            if bits.has(page) {
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }

    /// Claims the pages of `range`, whose bytes must have been written already.
    ///
    /// # Errors
    /// I/O errors of the bitmap file; the pages are then claimed for this process only, and fetched again by
    /// the next.
    pub fn claim(&self, range: Range<u64>) -> io::Result<()> {
        let range = range.start..range.end.min(self.pages);
        if range.is_empty() {
            return Ok(());
        }
        let mut bits = self.lock();
        for page in range.clone() {
            bits.set(page);
        }
        let (first, last) = ((range.start / 8) as usize, ((range.end - 1) / 8) as usize);
        let changed = bits.bytes.get(first..=last).unwrap_or_default();
        self.file.write_all_at(changed, HEADER_SIZE + first as u64)
    }

    /// Makes a complete bitmap durable. The data file must have been synced before.
    ///
    /// # Errors
    /// I/O errors of the bitmap file, and `InvalidInput` when a page is missing.
    pub fn make_durable(&self) -> io::Result<()> {
        if !self.is_complete() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the layer is not complete",
            ));
        }
        self.file.sync_data()?;
        self.file.write_all_at(&FLAG_DURABLE.to_le_bytes(), FLAGS_AT)?;
        self.file.sync_data()?;
        self.durable.store(true, Ordering::Release);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Bits> {
        self.bits
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Bits {
    fn has(&self, page: u64) -> bool {
        self.bytes
            .get((page / 8) as usize)
            .is_some_and(|byte| byte & (1 << (page % 8)) != 0)
    }

    fn set(&mut self, page: u64) {
        if let Some(byte) = self.bytes.get_mut((page / 8) as usize) {
            let bit = 1 << (page % 8);
            self.present += u64::from(*byte & bit == 0);
            *byte |= bit;
        }
    }
}

/// Bytes 0..8 magic, 8..12 version, 12..16 flags, 16..24 pages, 24..40 boot identity, rest zero.
fn header(pages: u64, boot: BootId) -> Vec<u8> {
    let mut header = Vec::with_capacity(40);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&0u32.to_le_bytes());
    header.extend_from_slice(&pages.to_le_bytes());
    header.extend_from_slice(&boot.0);
    header
}

/// The bits and whether they are durable; `None` when they are not to be believed.
fn read_bits(file: &File, pages: u64, length: usize, boot: BootId) -> io::Result<Option<(Vec<u8>, bool)>> {
    let mut head = [0; BOOT_AT + 16];
    match file.read_exact_at(&mut head, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let mut expected = header(pages, boot);
    let flags = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
    expected[12..PAGES_AT].copy_from_slice(&flags.to_le_bytes());
    let durable = flags & FLAG_DURABLE != 0;
    if head[..BOOT_AT] != expected[..BOOT_AT] || (!durable && head[BOOT_AT..] != expected[BOOT_AT..]) {
        return Ok(None);
    }
    let mut bytes = vec![0; length];
    match file.read_exact_at(&mut bytes, HEADER_SIZE) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    // Bits beyond the last page would make the count of present pages lie.
    if let (Some(last), rest @ 1..) = (bytes.last_mut(), pages % 8) {
        *last &= (1 << rest) - 1;
    }
    Ok(Some((bytes, durable)))
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "one missing run is what these tests are about"
)]
mod tests {
    use super::*;

    const BOOT: BootId = BootId([1; 16]);
    const NEXT_BOOT: BootId = BootId([2; 16]);

    #[test]
    fn claims_survive_the_process_but_not_the_boot() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("present");
        let presence = Presence::open(&path, 20, BOOT).unwrap();
        assert_eq!(presence.missing(0..100), [0..20]);
        presence.claim(3..11).unwrap();
        assert_eq!(presence.missing(0..20), [0..3, 11..20]);
        drop(presence);
        assert_eq!(
            Presence::open(&path, 20, BOOT).unwrap().missing(0..20),
            [0..3, 11..20]
        );
        assert_eq!(Presence::open(&path, 20, NEXT_BOOT).unwrap().present(), 0);
    }

    #[test]
    fn a_durable_bitmap_survives_the_boot() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("present");
        let presence = Presence::open(&path, 20, BOOT).unwrap();
        assert!(presence.make_durable().is_err());
        presence.claim(0..20).unwrap();
        presence.make_durable().unwrap();
        drop(presence);
        let presence = Presence::open(&path, 20, NEXT_BOOT).unwrap();
        assert!(presence.is_complete() && presence.is_durable());
        assert_eq!(
            Presence::open(&path, 21, NEXT_BOOT).unwrap().present(),
            0,
            "another data space"
        );
    }

    #[test]
    fn a_damaged_file_claims_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("present");
        for junk in [&b""[..], b"XBPRESNT", &[0xff; 5000]] {
            std::fs::write(&path, junk).unwrap();
            assert_eq!(Presence::open(&path, 20, BOOT).unwrap().present(), 0);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
