//! Room that is kept for a full disk. Removing a snapshot changes the store's file, which may take room before anything
//! is deleted; without some of its own, a disk that is full of snapshots could not be emptied.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use tracing::{info, warn};

/// How much is kept, in bytes. A change of the store takes some pages of 4 KiB; before the next one the files of what was
/// removed are deleted, and the room is taken again.
const SIZE: usize = 1 << 20;

/// A file that is there to be given up.
#[derive(Clone, Debug)]
pub(crate) struct Reserve {
    file: PathBuf,
}

impl Reserve {
    /// One that is not taken yet.
    pub(crate) fn at(file: PathBuf) -> Reserve {
        Reserve { file }
    }

    /// Takes room, if it is not taken. On a full disk it waits for the next time.
    pub(crate) fn take(&self) {
        if self.is_taken() {
            return;
        }
        if let Err(error) = self.fill() {
            // The part that was written is given back, since it would be missed.
            let _ = File::options()
                .write(true)
                .open(&self.file)
                .and_then(|file| file.set_len(0));
            warn!(
                "cannot keep room for a full disk in {}: {error}",
                self.file.display()
            );
        }
    }

    fn fill(&self) -> io::Result<()> {
        // Without a hole: those have no room. The file stays when the room is given, since a new one takes some.
        let mut file = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .open(&self.file)?;
        file.write_all(&vec![0x5a; SIZE])?;
        file.sync_data()
    }

    fn is_taken(&self) -> bool {
        fs::metadata(&self.file).is_ok_and(|status| status.len() == SIZE as u64)
    }

    /// Gives it up. Says whether there was any.
    pub(crate) fn give(&self) -> bool {
        if !self.is_taken() {
            return false;
        }
        info!("the disk is full: using what {} keeps", self.file.display());
        let file = File::options().write(true).open(&self.file);
        file.and_then(|file| file.set_len(0)).is_ok()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn given_once_until_it_is_taken_again() {
        let directory = tempfile::tempdir().unwrap();
        let reserve = Reserve::at(directory.path().join("reserve"));
        assert!(!reserve.give());
        reserve.take();
        assert!(reserve.give());
        assert_eq!(fs::metadata(directory.path().join("reserve")).unwrap().len(), 0);
        assert!(!reserve.give());
        reserve.take();
        assert!(reserve.give());
    }
}
