//! Which pages of a layer's data file hold the layer's bytes: two bitmaps, one bit for each page. Those bytes are
//! verified, except where a third bitmap says otherwise: see the module `unverified`.
//!
//! `present` is the truth within one boot, where the page cache is: bits are set after the data they speak of was
//! written, so a process that dies leaves at most pages that are there and not claimed. `durable` claims only what
//! survives a power cut. After a reboot, which the boot identity in `present` shows, only the durable bitmap counts.
//!
//! **The invariant**: a bit that is set in `durable` on disk means that its page's bytes are on disk. So
//! [`Presence::sync`] takes a copy of the present bits, syncs the data, and only then writes the copy to `durable`;
//! between two syncs bits are only added, so a torn write claims a subset. The unverified bitmap is synced in between, so
//! that no page is ever durable and counted as more than it was. [`Presence::forget`], which comes before a
//! hole is punched, clears the bits in both files and syncs `durable`, and only when that has succeeded may the data
//! go.
//!
//! Both files start with a header page (magic, version, flags, page count, boot identity), then the bits, least
//! significant first: `docs/formats/presence.md` has the byte map. A file that is missing, damaged or of another data
//! space claims nothing; the pages are then fetched again.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::bitmap_file::{self, HEADER_SIZE, NO_BOOT, decode, header};
use crate::bits::Bits;
use crate::boot::BootId;
use crate::disk::{Access, Disk, DiskFile};
use crate::unverified::Unverified;

/// Name of the bitmap that holds within one boot.
pub(crate) const PRESENT: &str = "present";
/// Name of the bitmap that holds after a power cut.
pub(crate) const DURABLE: &str = "durable";

const PRESENT_MAGIC: &[u8; 8] = b"XBPRESNT";
const DURABLE_MAGIC: &[u8; 8] = b"XBDURABL";

/// Why not all present pages count after a power cut.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The disk did not take bytes. Pages that were not durable before are claimed no more.
    #[error("{0}")]
    Lost(io::Error),
    /// The bytes are on disk, but the bitmap that claims them is not, for want of room perhaps. All that was claimed is there, as
    /// before; after a power cut some of it does not count.
    #[error("{0}")]
    Unnoted(io::Error),
}

/// The bitmaps, in memory and on disk.
///
/// One process at a time may write them, through one value: see [`crate::store::Store`].
#[derive(Debug)]
pub struct Presence {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    pages: u64,
    /// `None` when it is only looked at, or could not be made because the disk is full: claims then hold for this
    /// process.
    file: Option<Arc<dyn DiskFile>>,
    bits: Mutex<Bits>,
    durable: Mutex<Durable>,
    unverified: Unverified,
}

/// The pages that the file `durable` claims, or may claim.
#[derive(Debug)]
struct Durable {
    bits: Bits,
    file: Option<Arc<dyn DiskFile>>,
    /// Whether everything that was written to the file is on disk.
    synced: bool,
}

impl Presence {
    /// Opens or creates the bitmaps in `directory` for a data space of `pages` pages.
    ///
    /// # Errors
    /// I/O errors of the files themselves; a full disk is none.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, pages: u64, boot: BootId) -> io::Result<Self> {
        let durable = bitmap_file::read(&*disk, directory, DURABLE, DURABLE_MAGIC, pages, NO_BOOT)?.bits();
        // Within one boot, a predecessor may have died before it synced what it had written there.
        let synced = durable.is_none();
        let durable = durable.unwrap_or_else(|| Bits::zero(pages));
        let known = bitmap_file::read(&*disk, directory, PRESENT, PRESENT_MAGIC, pages, boot)?.bits();
        let (file, bits) = match known {
            Some(mut bits) => {
                bits.add(&durable);
                (Some(disk.open(&directory.join(PRESENT), Access::Write)?), bits)
            }
            None => match start_file(&*disk, directory, &durable, pages, boot) {
                Ok(file) => (Some(file), durable.clone()),
                Err(error) if is_full(&error) => (None, durable.clone()),
                Err(error) => return Err(error),
            },
        };
        let unverified = Unverified::open(disk.clone(), directory, pages, &bits, false)?;
        Ok(Self {
            disk,
            directory: directory.to_owned(),
            pages,
            file,
            bits: Mutex::new(bits),
            durable: Mutex::new(Durable {
                bits: durable,
                file: None,
                synced,
            }),
            unverified,
        })
    }

    /// Reads the bitmaps in `directory` without ever writing them: for a process that does not own the cache.
    ///
    /// # Errors
    /// I/O errors other than a missing file, which claims nothing.
    pub fn look(disk: Arc<dyn Disk>, directory: &Path, pages: u64, boot: BootId) -> io::Result<Self> {
        // In this order, against a process that is just removing pages: it clears `present` first.
        let durable = bitmap_file::read(&*disk, directory, DURABLE, DURABLE_MAGIC, pages, NO_BOOT)?.bits();
        let present = bitmap_file::read(&*disk, directory, PRESENT, PRESENT_MAGIC, pages, boot)?.bits();
        let durable = durable.unwrap_or_else(|| Bits::zero(pages));
        let bits = present.unwrap_or_else(|| durable.clone());
        let unverified = Unverified::open(disk.clone(), directory, pages, &bits, true)?;
        Ok(Self {
            disk,
            directory: directory.to_owned(),
            pages,
            file: None,
            bits: Mutex::new(bits),
            durable: Mutex::new(Durable {
                bits: durable,
                file: None,
                synced: true,
            }),
            unverified,
        })
    }

    /// Number of pages of the data space.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Which pages are unverified.
    pub(crate) fn unverified(&self) -> &Unverified {
        &self.unverified
    }

    /// Number of pages that are present.
    pub fn present(&self) -> u64 {
        self.bits.lock().count()
    }

    /// Whether every page is present.
    pub fn is_complete(&self) -> bool {
        self.present() == self.pages
    }

    /// Whether everything that is present would count after a power cut, and as far as it does now. Never waits for a sync under way;
    /// while there is one the answer is no.
    pub fn is_durable(&self) -> bool {
        self.durable
            .try_lock()
            .is_some_and(|durable| self.is_synced(&durable))
    }

    fn is_synced(&self, durable: &Durable) -> bool {
        durable.synced && durable.bits == *self.bits.lock() && !self.unverified.is_pending()
    }

    /// The runs of pages inside `range` that are not present, ascending. Pages beyond the end are left out.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.bits.lock().runs(range, false)
    }

    /// The same of several ranges, in their order.
    pub(crate) fn missing_of(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let bits = self.bits.lock();
        ranges
            .iter()
            .flat_map(|range| bits.runs(range.clone(), false))
            .collect()
    }

    /// The runs of pages inside `range` that are present, ascending.
    pub fn held(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.bits.lock().runs(range, true)
    }

    /// Claims the pages of `range` within this boot. Their bytes must have been written already.
    ///
    /// # Errors
    /// I/O errors of the bitmap file; the pages are then claimed for this process only, and fetched again by
    /// the next.
    pub fn claim(&self, range: Range<u64>) -> io::Result<()> {
        self.claim_all(std::slice::from_ref(&range))
    }

    /// The same for several ranges, ascending.
    pub(crate) fn claim_all(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        let mut bits = self.bits.lock();
        for page in ranges.iter().cloned().flatten() {
            bits.put(page, true);
        }
        let mut stretches = Bits::stretches(ranges).into_iter();
        stretches.try_for_each(|stretch| self.write_present(&bits, &stretch))
    }

    /// Makes the pages that are present now count after a power cut, by way of `data`, the layer's data file. Returns whether
    /// there was something to do. `notes` brings to the disk the notes that must be there before any more pages count. When it is
    /// called, everything that was written before a page was claimed is there.
    ///
    /// # Errors
    /// See [`SyncError`]. When the data could not be synced, pages beyond `durable` may be lost although they
    /// still read well (the kernel gives up pages that it cannot write), so those pages are claimed no more.
    pub fn sync(
        &self,
        data: &dyn DiskFile,
        notes: impl FnOnce() -> io::Result<()>,
    ) -> Result<bool, SyncError> {
        let mut durable = self.durable.lock();
        if self.is_synced(&durable) {
            return Ok(false);
        }
        let present = self.bits.lock().clone();
        let cleared = self.unverified.cleared();
        if let Err(error) = data.sync_data() {
            // Pages that are durable may hold the injected bytes again that they held before they were compared.
            self.unverified.restore();
            let mut bits = self.bits.lock();
            *bits = durable.bits.clone();
            self.write_present(&bits, &(0..self.pages))
                .map_err(SyncError::Lost)?;
            return Err(SyncError::Lost(error));
        }
        // Pages that were injected before `present` was copied have their bits in the file, which is on disk from here on.
        self.note_synced(&mut durable, &present, cleared, notes)
            .map_err(SyncError::Unnoted)?;
        Ok(true)
    }

    /// Writes down that the bytes of `present` are on disk.
    fn note_synced(
        &self,
        durable: &mut Durable,
        present: &Bits,
        cleared: Bits,
        notes: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.unverified.sync(cleared)?;
        notes()?;
        durable.bits.add(present);
        durable.synced = false;
        self.write_durable(durable, &(0..self.pages))?;
        durable.synced = true;
        Ok(())
    }

    /// Takes the claims of `range` back, within this boot and after a power cut. Only when this has succeeded may the
    /// bytes go.
    ///
    /// # Errors
    /// I/O errors; the pages are then claimed no more, and their bytes must stay.
    pub fn forget(&self, range: Range<u64>) -> io::Result<()> {
        // Held all the while: a sync under way must not write back what is forgotten here.
        let mut durable = self.durable.lock();
        {
            let mut bits = self.bits.lock();
            for page in range.clone() {
                bits.put(page, false);
            }
            self.write_present(&bits, &range)?;
        }
        if durable.bits.runs(range.clone(), true).is_empty() && durable.synced {
            return Ok(());
        }
        for page in range.clone() {
            durable.bits.put(page, false);
        }
        durable.synced = false;
        self.write_durable(&mut durable, &range)?;
        durable.synced = true;
        Ok(())
    }

    fn write_present(&self, bits: &Bits, range: &Range<u64>) -> io::Result<()> {
        let (start, changed) = bits.bytes_of(range);
        match &self.file {
            Some(file) if !changed.is_empty() => file.write_all_at(changed, HEADER_SIZE + start),
            _ => Ok(()),
        }
    }

    /// Writes the bytes of `range` to `durable` and syncs it.
    fn write_durable(&self, durable: &mut Durable, range: &Range<u64>) -> io::Result<()> {
        let path = self.directory.join(DURABLE);
        let file = match &durable.file {
            Some(file) => file.clone(),
            None => {
                let file = self.disk.open(&path, Access::Create)?;
                if decode(&*file, DURABLE_MAGIC, self.pages, NO_BOOT)?.is_none() {
                    // Earlier contents of the file are gone for certain before a header makes any of them count.
                    file.set_length(0)?;
                    file.set_length(HEADER_SIZE + self.pages.div_ceil(8))?;
                    file.sync_data()?;
                    file.write_all_at(&header(DURABLE_MAGIC, self.pages, NO_BOOT), 0)?;
                }
                self.disk.sync_directory(&self.directory)?;
                durable.file.insert(file).clone()
            }
        };
        let (start, changed) = durable.bits.bytes_of(range);
        file.write_all_at(changed, HEADER_SIZE + start)?;
        file.sync_data()
    }
}

/// Whether an error says that there is no room.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Begins the file `present` anew. The header comes last: until then the file claims nothing.
fn start_file(
    disk: &dyn Disk,
    directory: &Path,
    bits: &Bits,
    pages: u64,
    boot: BootId,
) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.open(&directory.join(PRESENT), Access::Create)?;
    file.set_length(0)?;
    file.set_length(HEADER_SIZE + bits.as_bytes().len() as u64)?;
    file.write_all_at(bits.as_bytes(), HEADER_SIZE)?;
    file.write_all_at(&header(PRESENT_MAGIC, pages, boot), 0)?;
    Ok(file)
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "one missing run is what these tests are about"
)]
mod tests {
    use std::os::fd::BorrowedFd;

    use super::*;
    use crate::disk::RealDisk;

    /// A data file of which only syncs matter.
    struct OnSync<F>(F);

    impl<F> std::fmt::Debug for OnSync<F> {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("OnSync")
        }
    }

    impl<F: Fn() -> io::Result<()> + Send + Sync> DiskFile for OnSync<F> {
        fn sync_data(&self) -> io::Result<()> {
            (self.0)()
        }
        fn read_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
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
        fn length(&self) -> io::Result<u64> {
            Ok(0)
        }
        fn identity(&self) -> io::Result<xebec_kernel::file::FileIdentity> {
            Ok(xebec_kernel::file::FileIdentity { device: 0, inode: 0 })
        }
        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    const BOOT: BootId = BootId([1; 16]);
    const NEXT_BOOT: BootId = BootId([2; 16]);

    fn open(directory: &Path, boot: BootId) -> Presence {
        Presence::open(Arc::new(RealDisk), directory, 20, boot).unwrap()
    }

    fn data(directory: &Path) -> Arc<dyn DiskFile> {
        RealDisk.open(&directory.join("data"), Access::Create).unwrap()
    }

    #[test]
    fn claims_survive_the_process_but_only_synced_ones_the_boot() {
        let dir = tempfile::tempdir().unwrap();
        let presence = open(dir.path(), BOOT);
        assert_eq!(presence.missing(0..100), [0..20]);
        presence.claim(3..11).unwrap();
        assert!(presence.sync(&*data(dir.path()), || Ok(())).unwrap());
        presence.claim(12..14).unwrap();
        assert!(!presence.is_durable());
        drop(presence);
        assert_eq!(open(dir.path(), BOOT).missing(0..20), [0..3, 11..12, 14..20]);
        let after = open(dir.path(), NEXT_BOOT);
        assert_eq!(after.missing(0..20), [0..3, 11..20]);
        after.sync(&*data(dir.path()), || Ok(())).unwrap();
        assert!(after.is_durable());
        assert!(
            !after.sync(&*data(dir.path()), || Ok(())).unwrap(),
            "nothing to do"
        );
    }

    #[test]
    fn a_look_sees_the_same_as_an_open_bitmap() {
        let dir = tempfile::tempdir().unwrap();
        let presence = open(dir.path(), BOOT);
        presence.claim(0..5).unwrap();
        presence.sync(&*data(dir.path()), || Ok(())).unwrap();
        presence.claim(5..9).unwrap();
        let look = |boot| Presence::look(Arc::new(RealDisk), dir.path(), 20, boot).unwrap();
        assert_eq!((look(BOOT).present(), look(NEXT_BOOT).present()), (9, 5));
    }

    #[test]
    fn what_is_forgotten_stays_so() {
        let dir = tempfile::tempdir().unwrap();
        let presence = open(dir.path(), BOOT);
        presence.claim(0..20).unwrap();
        presence.sync(&*data(dir.path()), || Ok(())).unwrap();
        presence.forget(4..13).unwrap();
        assert_eq!(presence.missing(0..20), [4..13]);
        assert_eq!(presence.held(0..20), [0..4, 13..20]);
        drop(presence);
        assert_eq!(open(dir.path(), BOOT).missing(0..20), [4..13]);
        assert_eq!(open(dir.path(), NEXT_BOOT).missing(0..20), [4..13]);
    }

    #[test]
    fn what_is_on_disk_is_claimed_though_there_is_no_room_to_say_so() {
        let dir = tempfile::tempdir().unwrap();
        let presence = open(dir.path(), BOOT);
        presence.claim(0..8).unwrap();
        let full = || Err(io::ErrorKind::StorageFull.into());
        let unnoted = presence.sync(&OnSync(|| Ok(())), full);
        assert!(matches!(unnoted, Err(SyncError::Unnoted(_))), "{unnoted:?}");
        assert_eq!(presence.missing(0..8), []);
        assert_eq!(open(dir.path(), NEXT_BOOT).missing(0..8), [0..8]);
        assert!(presence.sync(&OnSync(|| Ok(())), || Ok(())).unwrap());
        assert_eq!(open(dir.path(), NEXT_BOOT).missing(0..8), []);
    }

    #[test]
    fn what_is_verified_during_a_sync_or_in_vain_stays_unverified_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let presence = open(dir.path(), BOOT);
        presence.unverified().set(&[2..6]).unwrap();
        presence.claim(0..8).unwrap();
        presence.sync(&OnSync(|| Ok(())), || Ok(())).unwrap();
        presence.unverified().clear(2..3);
        // Its bytes may have been written too late for the data's sync.
        let late = OnSync(|| {
            presence.unverified().clear(3..4);
            Ok(())
        });
        presence.sync(&late, || Ok(())).unwrap();
        let after = open(dir.path(), NEXT_BOOT);
        assert_eq!(after.unverified().within([0..20]), [3..6]);
        assert!(!presence.is_durable(), "there is a bit to clear");
        // Or the disk lost them.
        let broken = OnSync(|| Err(io::Error::other("worn out")));
        let lost = presence.sync(&broken, || Ok(()));
        assert!(matches!(lost, Err(SyncError::Lost(_))), "{lost:?}");
        assert_eq!(presence.unverified().within([0..20]), [3..6]);
        presence.unverified().clear(0..20);
        presence.sync(&OnSync(|| Ok(())), || Ok(())).unwrap();
        assert!(presence.is_durable());
        assert!(open(dir.path(), NEXT_BOOT).unverified().is_empty());
    }

    #[test]
    fn another_data_space_has_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let presence = open(dir.path(), BOOT);
        presence.claim(0..20).unwrap();
        presence.sync(&*data(dir.path()), || Ok(())).unwrap();
        let other = Presence::open(Arc::new(RealDisk), dir.path(), 21, BOOT).unwrap();
        assert_eq!(other.present(), 0);
    }

    #[test]
    fn a_damaged_file_claims_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for junk in [&b""[..], b"XBPRESNT", &[0xff; 5000]] {
            for name in [PRESENT, DURABLE] {
                std::fs::write(dir.path().join(name), junk).unwrap();
            }
            let presence = open(dir.path(), BOOT);
            assert_eq!(presence.present(), 0);
            presence.claim(0..3).unwrap();
            presence.sync(&*data(dir.path()), || Ok(())).unwrap();
            drop(presence);
            assert_eq!(open(dir.path(), NEXT_BOOT).missing(0..20), [3..20]);
        }
    }

    #[test]
    fn a_look_at_a_damaged_bitmap_mends_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let presence = open(dir.path(), BOOT);
        presence.claim(0..5).unwrap();
        presence.sync(&OnSync(|| Ok(())), || Ok(())).unwrap();
        let unverified = dir.path().join("unverified");
        std::fs::write(&unverified, b"junk").unwrap();
        let look = Presence::look(Arc::new(RealDisk), dir.path(), 20, BOOT).unwrap();
        assert_eq!(look.unverified().within([0..20]), [0..5]);
        assert!(look.is_durable(), "there is nothing that it could do");
        assert!(look.unverified().set(&[1..2]).is_err());
        look.unverified().clear(0..20);
        assert!(!look.sync(&OnSync(|| Ok(())), || Ok(())).unwrap());
        assert_eq!(std::fs::read(&unverified).unwrap(), b"junk");
    }

    #[test]
    fn the_bitmaps_are_as_long_as_their_form_says() {
        let dir = tempfile::tempdir().unwrap();
        let presence = open(dir.path(), BOOT);
        presence.unverified().set(&[3..4]).unwrap();
        presence.claim(3..4).unwrap();
        presence.sync(&OnSync(|| Ok(())), || Ok(())).unwrap();
        for name in [PRESENT, DURABLE, "unverified"] {
            let length = std::fs::metadata(dir.path().join(name)).unwrap().len();
            assert_eq!(length, 4096 + 3, "{name}");
        }
    }
}
