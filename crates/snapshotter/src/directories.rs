//! Directories beside the store: one for the files that a snapshot adds, one for overlayfs to work in, and those on their way out.
//!
//! ```text
//! <root>/snapshots.redb
//! <root>/u/<id>       the files of an unpacked layer, or what a container wrote
//! <root>/u/<id>.v     where the view of the lazy layers below is, a symbolic link
//! <root>/w/<id>       overlayfs works there
//! <root>/m/<id>       what is below it once more, if its ids are mapped: see [`crate::mapped`]
//! <root>/out/<n>      removed, and being deleted
//! <root>/reserve      room for when the disk is full
//! ```
//!
//! Ids are numbers in base 36, and all possible lower directories lie in one. Overlayfs takes options of one page (4096 bytes) in all,
//! and containerd passes names relative to the directory that they have in common. So 500 layers fit with ids up to 36⁵.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::warn;
use xebec_kernel::remove::remove_tree;

use crate::error::SnapshotError;
use crate::reserve::Reserve;

/// The directories of one snapshotter.
#[derive(Debug)]
pub struct Directories {
    root: PathBuf,
    reserve: Reserve,
    removed: AtomicU64,
}

/// Owner and permissions of a snapshot's own directory, which a container sees as its root's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    /// Permissions.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
}

impl Looks {
    /// As a root directory looks that nobody said anything about.
    pub const DEFAULT: Looks = Looks {
        mode: 0o755,
        uid: 0,
        gid: 0,
    };

    /// As another directory does.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn of(path: &Path) -> Result<Looks, SnapshotError> {
        let status = fs::metadata(path).map_err(|error| SnapshotError::io("look at", path, &error))?;
        Ok(Looks {
            // Not the set-user and set-group bits: for a root directory they mean next to nothing, and the service's sandbox
            // (RestrictSUIDSGID=yes) lets nobody set them.
            mode: status.mode() & 0o1777,
            uid: status.uid(),
            gid: status.gid(),
        })
    }
}

impl Directories {
    /// Makes what is missing.
    ///
    /// # Errors
    /// When it cannot, or `root` has a character that means something in a list of lower directories.
    pub fn open(root: &Path) -> Result<Directories, SnapshotError> {
        let text = root.to_str().unwrap_or(":");
        if !root.is_absolute() || text.contains([':', ',', '\\', '"']) {
            return Err(SnapshotError::invalid(format!(
                "{} cannot hold snapshots: use an absolute path without colon, comma, quote or backslash",
                root.display()
            )));
        }
        let directories = Directories {
            root: root.to_owned(),
            reserve: Reserve::at(root.join("reserve")),
            removed: AtomicU64::new(0),
        };
        for directory in [root, &root.join("u"), &root.join("w"), &root.join("out")] {
            make(directory, 0o700).or_else(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => Ok(()),
                _ => Err(SnapshotError::io("make", directory, &error)),
            })?;
        }
        Ok(directories)
    }

    /// Brings names to the disk that were made here: a file that is synced may still have none after a power cut.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn sync(&self) -> Result<(), SnapshotError> {
        let synced = File::open(&self.root).and_then(|root| root.sync_all());
        synced.map_err(|error| SnapshotError::io("sync", &self.root, &error))
    }

    /// The room that is given up when the disk is full.
    pub(crate) fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// The store's file.
    pub fn store(&self) -> PathBuf {
        self.root.join("snapshots.redb")
    }

    /// The directory of the files that a snapshot adds.
    pub fn upper(&self, id: u64) -> PathBuf {
        self.uppers().join(base36(id))
    }

    /// The directory that holds those of all snapshots.
    pub fn uppers(&self) -> PathBuf {
        self.root.join("u")
    }

    /// A snapshot's name here.
    pub fn name(id: u64) -> String {
        base36(id)
    }

    /// Where overlayfs works for it.
    pub fn work(&self, id: u64) -> PathBuf {
        self.root.join("w").join(base36(id))
    }

    /// The link to the view below it.
    pub fn view(&self, id: u64) -> PathBuf {
        self.uppers().join(format!("{}.v", base36(id)))
    }

    /// Makes a snapshot's own directory, and one to work in if it is to be written. Files that lie there by that id are left over from
    /// a snapshot that never came to be.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn create(&self, id: u64, is_written: bool, looks: Looks) -> Result<(), SnapshotError> {
        self.remove(id)?;
        let upper = self.upper(id);
        let failed = |error: io::Error| SnapshotError::io("make", &upper, &error);
        make(&upper, 0o700).map_err(failed)?;
        chown(&upper, Some(looks.uid), Some(looks.gid)).map_err(failed)?;
        fs::set_permissions(&upper, fs::Permissions::from_mode(looks.mode)).map_err(failed)?;
        if is_written {
            let work = self.work(id);
            make(&work, 0o711).map_err(|error| SnapshotError::io("make", &work, &error))?;
        }
        Ok(())
    }

    /// Makes the link to a view, or lets it lead elsewhere, at once.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn link_view(&self, id: u64, to: &Path) -> Result<PathBuf, SnapshotError> {
        let link = self.view(id);
        if fs::read_link(&link).is_ok_and(|is| is == to) {
            return Ok(link);
        }
        let failed = |error: io::Error| SnapshotError::io("make", &link, &error);
        // Not on the way out, where it would be deleted.
        let new = link.with_extension("v.new");
        let _ = fs::remove_file(&new);
        symlink(to, &new).map_err(failed)?;
        fs::rename(&new, &link).map_err(failed)?;
        Ok(link)
    }

    /// Takes a snapshot's directories out of the way; [`Directories::delete_removed`] deletes them.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn remove(&self, id: u64) -> Result<(), SnapshotError> {
        self.remove_all([self.upper(id), self.work(id), self.view(id)])
    }

    fn remove_all(&self, paths: impl IntoIterator<Item = PathBuf>) -> Result<(), SnapshotError> {
        for path in paths {
            match fs::rename(&path, self.out()) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // A name takes room; deleting makes some.
                Err(error) if error.kind() == io::ErrorKind::StorageFull => delete(&path),
                Err(error) => return Err(SnapshotError::io("remove", &path, &error)),
            }
        }
        Ok(())
    }

    /// Deletes removed directories, and takes room again that was given. A directory that cannot be deleted is named in the log, and
    /// tried again the next time.
    pub fn delete_removed(&self) {
        let out = self.root.join("out");
        let entries = fs::read_dir(&out).map(|entries| entries.filter_map(Result::ok));
        for entry in entries.into_iter().flatten() {
            delete(&entry.path());
        }
        self.reserve.take();
    }

    /// Takes away what belongs to no snapshot.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn remove_strangers(&self, ids: &BTreeSet<u64>) -> Result<(), SnapshotError> {
        for directory in ["u", "w"].map(|name| self.root.join(name)) {
            let failed = |error: io::Error| SnapshotError::io("list", &directory, &error);
            for entry in fs::read_dir(&directory).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = entry.file_name();
                let id = name
                    .to_str()
                    .map(|name| name.strip_suffix(".new").unwrap_or(name));
                let id = id.map(|id| id.strip_suffix(".v").unwrap_or(id));
                let id = id.and_then(|id| u64::from_str_radix(id, 36).ok());
                let Some(id) = id else {
                    warn!(
                        "{} is not a directory of Xebec; Xebec leaves it alone",
                        entry.path().display()
                    );
                    continue;
                };
                if !ids.contains(&id) {
                    warn!(
                        "{} belongs to no snapshot: Xebec removes it",
                        entry.path().display()
                    );
                    self.remove_all([entry.path()])?;
                }
            }
        }
        Ok(())
    }

    /// A name on the way out that nobody has.
    fn out(&self) -> PathBuf {
        loop {
            let number = self.removed.fetch_add(1, Ordering::Relaxed);
            let path = self
                .root
                .join("out")
                .join(format!("{}-{number}", std::process::id()));
            if fs::symlink_metadata(&path).is_err() {
                return path;
            }
        }
    }
}

fn delete(path: &Path) {
    let is_directory = fs::symlink_metadata(path).is_ok_and(|status| status.is_dir());
    let deleted = match is_directory {
        true => remove_tree(path),
        false => fs::remove_file(path),
    };
    if let Err(error) = deleted
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!("cannot delete {}: {error}", path.display());
    }
}

fn make(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().mode(mode).create(path)
}

/// A number in as few digits and lower-case letters as it takes.
fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        let digit = u32::try_from(number % 36).unwrap_or_default();
        digits.extend(char::from_digit(digit, 36));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_come_back() {
        for (id, text) in [(0, "0"), (35, "z"), (36, "10"), (u64::MAX, "3w5e11264sgsf")] {
            assert_eq!(base36(id), text);
            assert_eq!(u64::from_str_radix(text, 36), Ok(id));
        }
    }

    #[test]
    fn a_root_directory_is_not_made_with_bits_that_a_sandbox_forbids() {
        let root = tempfile::tempdir().unwrap();
        let layer = root.path().join("layer");
        make(&layer, 0o700).unwrap();
        for (mode, expected) in [(0o2755, 0o755), (0o4711, 0o711), (0o1777, 0o1777)] {
            fs::set_permissions(&layer, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(Looks::of(&layer).unwrap().mode, expected);
        }
    }

    #[test]
    fn links_are_made_while_others_are_deleted() {
        let root = tempfile::tempdir().unwrap();
        let directories = Directories::open(root.path()).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    directories.delete_removed();
                }
            });
            let made = (0..2000).map(|to| directories.link_view(1, &PathBuf::from(format!("/view-{to}"))));
            let failed = made.filter_map(Result::err).next();
            is_over.store(true, Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
        // A link that was left by a killed process does not matter.
        symlink("/elsewhere", root.path().join("u/1.v.new")).unwrap();
        let link = directories.link_view(1, Path::new("/last")).unwrap();
        assert_eq!(fs::read_link(link).unwrap(), Path::new("/last"));
    }

    #[test]
    fn what_belongs_to_nobody_goes() {
        let root = tempfile::tempdir().unwrap();
        let directories = Directories::open(root.path()).unwrap();
        let own = Looks::of(root.path()).unwrap();
        for id in [1, 77] {
            directories.create(id, true, own).unwrap();
            directories.link_view(id, Path::new("/nowhere")).unwrap();
        }
        let strange = root.path().join("u/strange name");
        fs::write(&strange, "x").unwrap();
        directories.remove_strangers(&BTreeSet::from([77])).unwrap();
        assert!(!directories.upper(1).exists() && !directories.work(1).exists());
        assert!(fs::symlink_metadata(directories.view(1)).is_err());
        assert!(strange.exists(), "it is no name of a snapshot");
        assert!(directories.upper(77).exists() && directories.work(77).exists());
        assert_eq!(
            fs::read_link(directories.view(77)).unwrap(),
            Path::new("/nowhere")
        );
        assert_eq!(fs::read_dir(root.path().join("out")).unwrap().count(), 3);
        directories.delete_removed();
        assert_eq!(fs::read_dir(root.path().join("out")).unwrap().count(), 0);
    }

    #[test]
    fn directories_that_overlayfs_would_misread_are_refused() {
        let root = tempfile::tempdir().unwrap();
        for name in ["a:b", "a,b", "a\\b"] {
            let refused = Directories::open(&root.path().join(name)).unwrap_err();
            assert!(refused.message.contains("without colon"), "{refused}");
        }
    }
}
