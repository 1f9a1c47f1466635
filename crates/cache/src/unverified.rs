//! Which pages of a layer's data file hold bytes that nobody has compared with the digest of their span: those that a
//! runtime image brought ([`crate::layer::CachedLayer::inject`]).
//!
//! A third bitmap, `unverified`, beside those of [`crate::presence`]. It speaks of bytes on disk, so it is read after
//! a reboot too. **The invariant**: a page whose bytes were injected and never compared has its bit set, and
//! * within a boot the bit is in the file before the page is claimed in `present`;
//! * after a power cut the bit is on disk if the page is claimed in `durable`.
//!
//! So a bit may be set too long, never too short. In memory there are two sets: `bits`, what is unverified, and
//! `kept`, what the file says, which has those and others. Setting writes the file at once. Clearing is done in memory,
//! and reaches the file in [`Unverified::sync`] only, after the data's sync. Otherwise the power could go when the
//! cleared bit is on disk and the right bytes, written over injected ones that were durable, are not.
//!
//! No file means no unverified pages, so the file appears under its name with everything in it. A file that is damaged
//! or of another data space means that every page that is present is unverified. It stays until the next sync puts
//! another in its place, which is on disk before it has the name.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::bitmap_file::{self, Found, HEADER_SIZE, NO_BOOT, header};
use crate::bits::Bits;
use crate::disk::{Access, Disk, DiskFile};

/// Name of the bitmap.
pub(crate) const UNVERIFIED: &str = "unverified";
/// Its name until it is whole.
const TEMPORARY: &str = ".unverified";

const MAGIC: &[u8; 8] = b"XBUNVRFD";

/// The bitmap, in memory and on disk.
#[derive(Debug)]
pub(crate) struct Unverified {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    pages: u64,
    /// Of a process that only looks: it changes nothing.
    is_look: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The unverified pages. Some may not be present.
    bits: Bits,
    /// The pages that the file names, or must be assumed to name; has all of `bits`.
    kept: Bits,
    file: OnDisk,
    /// Counts writes to the file.
    writes: u64,
    /// How many of them are on disk for certain, and the file's name with them.
    synced: u64,
}

#[derive(Debug)]
enum OnDisk {
    Missing,
    Damaged,
    Open(Arc<dyn DiskFile>),
}

impl Unverified {
    /// Reads the bitmap in `directory`, of a data space of `pages` pages; it is made when it is first used. `present`
    /// are the pages that the other bitmaps claim. Read those bitmaps first: a caller that only looks then finds the bit
    /// of each page that it found claimed.
    ///
    /// # Errors
    /// I/O errors other than a missing file.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        pages: u64,
        present: &Bits,
        is_look: bool,
    ) -> io::Result<Self> {
        let (bits, file) = match bitmap_file::read(&*disk, directory, UNVERIFIED, MAGIC, pages, NO_BOOT)? {
            Found::Missing => (Bits::zero(pages), OnDisk::Missing),
            Found::Damaged => (present.clone(), OnDisk::Damaged),
            Found::Bits(bits) if is_look => (bits, OnDisk::Missing),
            Found::Bits(bits) => {
                let file = disk.open(&directory.join(UNVERIFIED), Access::Write)?;
                (bits, OnDisk::Open(file))
            }
        };
        // A predecessor in this boot may have died before it synced what it had written there.
        let writes = u64::from(matches!(file, OnDisk::Open(_)));
        Ok(Self {
            disk,
            directory: directory.to_owned(),
            pages,
            is_look,
            state: Mutex::new(State {
                kept: bits.clone(),
                bits,
                file,
                writes,
                synced: 0,
            }),
        })
    }

    /// Whether no page at all is unverified, present or not.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().bits.count() == 0
    }

    /// The pages of `runs` whose bits are set, as runs.
    pub(crate) fn within(&self, runs: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
        let state = self.state.lock();
        if state.bits.count() == 0 {
            return Vec::new();
        }
        runs.into_iter()
            .flat_map(|run| state.bits.runs(run, true))
            .collect()
    }

    /// Notes that the pages of `runs` (ascending) are to be unverified; in the file, too, when this returns.
    ///
    /// # Errors
    /// I/O errors (a full disk, above all); the pages must then not be claimed.
    pub(crate) fn set(&self, runs: &[Range<u64>]) -> io::Result<()> {
        if runs.is_empty() {
            return Ok(());
        }
        if self.is_look {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the layer was opened to look at it",
            ));
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for page in runs.iter().cloned().flatten() {
            state.bits.put(page, true);
            state.kept.put(page, true);
        }
        match &state.file {
            // It says already that every page is unverified.
            OnDisk::Damaged => Ok(()),
            OnDisk::Missing => {
                let file = self.begin(&state.kept, false)?;
                state.file = OnDisk::Open(file);
                state.writes += 1;
                Ok(())
            }
            // Written each time, whatever `kept` says: the last write may have failed.
            OnDisk::Open(file) => {
                state.writes += 1;
                Bits::stretches(runs).iter().try_for_each(|stretch| {
                    let (start, changed) = state.kept.bytes_of(stretch);
                    file.write_all_at(changed, HEADER_SIZE + start)
                })
            }
        }
    }

    /// The pages of `range` are verified, or gone. The file says so after the next sync.
    pub(crate) fn clear(&self, range: Range<u64>) {
        let mut state = self.state.lock();
        if state.bits.count() == 0 {
            return;
        }
        for page in range.start..range.end.min(self.pages) {
            state.bits.put(page, false);
        }
    }

    /// Pages that were cleared since the last sync may be lost, although they read well: they are unverified again.
    pub(crate) fn restore(&self) {
        let mut state = self.state.lock();
        state.bits = state.kept.clone();
    }

    /// Whether the file may say of any page of `runs` that it is unverified, now or after a power cut.
    pub(crate) fn may_remain(&self, runs: impl IntoIterator<Item = Range<u64>>) -> bool {
        let state = self.state.lock();
        let is_set = |run: Range<u64>| !state.kept.runs(run, true).is_empty();
        state.writes != state.synced || runs.into_iter().any(is_set)
    }

    /// Whether a sync has something to do.
    pub(crate) fn is_pending(&self) -> bool {
        let state = self.state.lock();
        match state.file {
            _ if self.is_look => false,
            OnDisk::Damaged => true,
            OnDisk::Missing => false,
            OnDisk::Open(_) => state.writes != state.synced || state.bits.count() != state.kept.count(),
        }
    }

    /// The pages that the file says are unverified and that are so no more. To be taken before the data is synced.
    pub(crate) fn cleared(&self) -> Bits {
        let state = self.state.lock();
        let mut cleared = state.kept.clone();
        cleared.remove(&state.bits);
        cleared
    }

    /// Makes the bits durable. `cleared` are the pages whose bits may go: as [`Unverified::cleared`] gave them before
    /// the data was synced; those that were set again since stay.
    ///
    /// # Errors
    /// I/O errors; nothing that may be unverified may be made durable then.
    pub(crate) fn sync(&self, mut cleared: Bits) -> io::Result<()> {
        if !self.is_pending() {
            return Ok(());
        }
        let (file, writes) = {
            let mut guard = self.state.lock();
            let state = &mut *guard;
            cleared.remove(&state.bits);
            let mut kept = state.kept.clone();
            kept.remove(&cleared);
            let file = match &state.file {
                OnDisk::Missing => return Ok(()),
                // On disk before it has the name: the damaged one spoke of pages that are durable.
                OnDisk::Damaged => self.begin(&kept, true)?,
                OnDisk::Open(file) => {
                    // All of it: the kernel may have given up bytes that an earlier sync could not write.
                    file.write_all_at(&header(MAGIC, self.pages, NO_BOOT), 0)?;
                    file.write_all_at(kept.as_bytes(), HEADER_SIZE)?;
                    file.clone()
                }
            };
            state.file = OnDisk::Open(file.clone());
            state.kept = kept;
            state.writes += 1;
            (file, state.writes)
        };
        // Without the lock: an injection, which somebody waits for, need not wait for the disk.
        file.sync_data()?;
        self.disk.sync_directory(&self.directory)?;
        self.state.lock().synced = writes;
        Ok(())
    }

    /// A new file with these bits. It has its name only when all of them are in it.
    fn begin(&self, bits: &Bits, synced: bool) -> io::Result<Arc<dyn DiskFile>> {
        let (temporary, path) = (self.directory.join(TEMPORARY), self.directory.join(UNVERIFIED));
        let file = self.disk.open(&temporary, Access::Create)?;
        file.set_length(0)?;
        file.set_length(HEADER_SIZE + bits.as_bytes().len() as u64)?;
        file.write_all_at(bits.as_bytes(), HEADER_SIZE)?;
        file.write_all_at(&header(MAGIC, self.pages, NO_BOOT), 0)?;
        if synced {
            file.sync_data()?;
        }
        self.disk.rename(&temporary, &path)?;
        self.disk.open(&path, Access::Write)
    }
}
