//! Removes a directory with all that is in it, and nothing that is mounted there.
//!
//! The tree may come from a container, and an administrator may have mounted something below it. So each directory is opened by its
//! name in the one above, which is open, and never through a link or onto another mount (`openat2`, `RESOLVE_NO_XDEV`; a mount of
//! the same file system is another mount, too). A descriptor does not see a later mount on its directory, and the kernel does not
//! remove a directory on which something is mounted.
//!
//! A tree may be as deep as the disk has room for. The walk holds a directory open for some levels only; deeper directories are
//! moved up, and are then removed like the rest. [`std::fs::remove_dir_all`] enters mounts, holds a descriptor for each level, and
//! calls itself once for each, until the stack is full.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, openat, openat2, renameat_with,
    statat, unlinkat,
};
use rustix::io::Errno;

/// Levels that are held open: more than the trees that people and programs make have, and few enough for any limit of open files.
const LEVELS: usize = 32;

/// Directories that are moved up are named by a number after this.
const MOVED: &str = ".removed-";

/// Removes the directory at `path` with all that is in it. A link is removed, and its target is left.
///
/// # Errors
/// `ResourceBusy`, with the place of a mount there or below: it is left as it is, with the directories above it, and some of the
/// files beside it may be gone. `NotFound` if there is nothing at `path`, and `NotADirectory` if it is another file, which is left.
/// `DirectoryNotEmpty` if somebody adds to it meanwhile. Else the error of the kernel.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let above = path.parent().filter(|above| *above != Path::new(""));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = openat(CWD, above.unwrap_or(Path::new(".")), flags, Mode::empty())?;
    Removal {
        path,
        above,
        levels: Vec::new(),
        moved: 0,
    }
    .run(&CString::new(name.as_bytes())?)
}

/// A directory that is being emptied.
struct Level {
    /// Its name in the directory above.
    name: CString,
    directory: Dir,
    /// Whether something was moved here since it was read from its beginning.
    has_more: bool,
}

struct Removal<'a> {
    path: &'a Path,
    /// The directory that holds all of it.
    above: OwnedFd,
    levels: Vec<Level>,
    /// The number of directories that were moved up.
    moved: u64,
}

impl Removal<'_> {
    fn run(mut self, top: &CStr) -> io::Result<()> {
        if !self.enter(top)? {
            let status = statat(&self.above, top, AtFlags::SYMLINK_NOFOLLOW)?;
            return match FileType::from_raw_mode(status.st_mode) {
                FileType::Symlink => self.unlink(top, AtFlags::empty()),
                _ => Err(io::ErrorKind::NotADirectory.into()),
            };
        }
        while let Some(level) = self.levels.last_mut() {
            match level.directory.read() {
                Some(entry) => {
                    let entry = entry?;
                    let name = entry.file_name();
                    if !matches!(name.to_bytes(), b"." | b"..") {
                        there(self.remove(name, entry.file_type()))?;
                    }
                }
                None => self.leave()?,
            }
        }
        Ok(())
    }

    /// Removes a name from the directory that is being emptied, or begins to empty the one of that name.
    fn remove(&mut self, name: &CStr, kind: FileType) -> io::Result<()> {
        let is_entered = match kind {
            FileType::Directory if self.levels.len() >= LEVELS => return self.move_up(name),
            // Some file systems do not tell its type.
            FileType::Directory | FileType::Unknown => self.enter(name)?,
            _ => false,
        };
        match is_entered {
            true => Ok(()),
            false => self.unlink(name, AtFlags::empty()),
        }
    }

    /// False if it is no directory.
    fn enter(&mut self, name: &CStr) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match openat2(self.current()?, name, flags, Mode::empty(), resolve) {
            Ok(directory) => {
                self.levels.push(Level {
                    name: name.to_owned(),
                    directory: Dir::new(directory)?,
                    has_more: false,
                });
                Ok(true)
            }
            Err(Errno::NOTDIR | Errno::LOOP) => Ok(false),
            Err(Errno::XDEV) => Err(self.is_mounted(name)),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves a directory to the uppermost one.
    fn move_up(&mut self, name: &CStr) -> io::Result<()> {
        loop {
            let new = format!("{MOVED}{}", self.moved);
            self.moved += 1;
            let top = self.levels.first_mut().ok_or(io::ErrorKind::NotFound)?;
            top.has_more = true;
            let (from, to) = (self.current()?, self.top()?);
            match renameat_with(from, name, to, &*new, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                Err(Errno::BUSY) => return Err(self.is_mounted(name)),
                moved => return Ok(moved?),
            }
        }
    }

    /// The directory is empty.
    fn leave(&mut self) -> io::Result<()> {
        if let Some(level) = self.levels.last_mut().filter(|level| level.has_more) {
            level.has_more = false;
            level.directory.rewind();
            return Ok(());
        }
        match self.levels.pop() {
            Some(level) => there(self.unlink(&level.name, AtFlags::REMOVEDIR)),
            None => Ok(()),
        }
    }

    fn unlink(&self, name: &CStr, flags: AtFlags) -> io::Result<()> {
        match unlinkat(self.current()?, name, flags) {
            Err(Errno::BUSY) => Err(self.is_mounted(name)),
            unlinked => Ok(unlinked?),
        }
    }

    fn current(&self) -> io::Result<BorrowedFd<'_>> {
        match self.levels.last() {
            Some(level) => Ok(level.directory.fd()?),
            None => Ok(self.above.as_fd()),
        }
    }

    fn top(&self) -> io::Result<BorrowedFd<'_>> {
        match self.levels.first() {
            Some(level) => Ok(level.directory.fd()?),
            None => Ok(self.above.as_fd()),
        }
    }

    fn is_mounted(&self, name: &CStr) -> io::Error {
        let mut path = self.path.to_owned();
        let below = self
            .levels
            .iter()
            .map(|level| level.name.as_c_str())
            .chain([name]);
        // The first one is the last of the path.
        path.extend(
            below
                .skip(1)
                .map(|name| Path::new(OsStr::from_bytes(name.to_bytes()))),
        );
        io::Error::new(io::ErrorKind::ResourceBusy, Mounted(path))
    }
}

/// A file that is gone need not be removed.
fn there(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Something is mounted at a place that was to be removed.
#[derive(Debug, thiserror::Error)]
#[error("something is mounted at {}, and is left; unmount it first", .0.display())]
struct Mounted(PathBuf);
