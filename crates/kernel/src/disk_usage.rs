//! The size of a directory on disk: blocks that are allocated, and inodes, a file with several names once.
//!
//! A container may change the directory meanwhile, and it would like to be told of files of the host. So every step goes by a
//! descriptor, to a name that is no link and below the directory that it was reached from (`openat2`). A directory may be moved, and
//! another file put in its place: nothing outside is looked at. The walk holds few descriptors and little memory, however deep and
//! wide the tree is.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, statat,
};
use rustix::io::Errno;

use crate::file::FileIdentity;

/// Bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes, in whole blocks.
    pub bytes: u64,
    /// Inodes, the directory's own among them.
    pub inodes: u64,
}

/// The unit in which `stat` counts blocks, in bytes.
const BLOCK: u64 = 512;
/// Levels that are looked at; deeper ones are not counted. Paths end at 4,096 bytes, so that most programs reach no more than half
/// as many, and a descriptor is held for some of the levels only.
const MAX_DEPTH: usize = 4096;
/// Levels for which one descriptor is held: names have 255 bytes at most, and a path that is opened fewer than 4,096.
const LEVELS: usize = 15;
/// Files with several names that are remembered, so that each is counted once: 16 MB. Of more, names are counted.
const MAX_LINKED: usize = 1 << 20;
/// Bytes of names of directories that are still to be looked at; a directory without room there counts, but not its contents. A
/// tree that a program made by itself has some thousand directories in the widest of them.
const MAX_NAMES: usize = 16 << 20;
/// Times that a directory is opened again when something was renamed on the way; then it is not counted.
const TRIES: usize = 16;

/// A directory: where it is from one that is held open.
struct Place {
    held: Rc<OwnedFd>,
    path: Vec<u8>,
    levels: usize,
    depth: usize,
}

impl Place {
    /// Opens it; `None` if it is gone, or something else by now.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        for _ in 0..TRIES {
            match openat2(&self.held, &*self.path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) => {}
                other => return there(other),
            }
        }
        Ok(None)
    }

    /// The directory `name` in this one, which is open as `directory`.
    fn below(&self, directory: &Rc<OwnedFd>, name: &CString) -> Self {
        let (held, mut path, levels) = match self.levels < LEVELS {
            true => (self.held.clone(), self.path.clone(), self.levels + 1),
            false => (directory.clone(), b".".to_vec(), 1),
        };
        path.push(b'/');
        path.extend_from_slice(name.as_bytes());
        Self {
            held,
            path,
            levels,
            depth: self.depth + 1,
        }
    }
}

/// The count so far.
#[derive(Default)]
struct Count {
    usage: DiskUsage,
    /// Only files with several names can be met twice.
    met: HashSet<FileIdentity>,
    /// Bytes of names that may still be held.
    room: usize,
    /// Whether a directory that cannot be read counts nothing, instead of ending the count.
    is_lenient: bool,
}

impl Count {
    fn add(&mut self, status: &Stat, is_directory: bool) {
        let is_linked = !is_directory && status.st_nlink > 1;
        let has_room = self.met.len() < MAX_LINKED;
        let id = FileIdentity::from(status);
        if is_linked && (self.met.contains(&id) || (has_room && !self.met.insert(id))) {
            return;
        }
        let blocks = u64::try_from(status.st_blocks).unwrap_or(0);
        self.usage.bytes = self.usage.bytes.saturating_add(blocks.saturating_mul(BLOCK));
        self.usage.inodes += 1;
    }

    /// Counts the entries of a directory that is open; gives the directories among them.
    fn add_all(&mut self, directory: &OwnedFd) -> io::Result<Vec<CString>> {
        let mut below = Vec::new();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Some(status) = there(statat(directory, name, AtFlags::SYMLINK_NOFOLLOW))? else {
                continue;
            };
            let is_directory = FileType::from_raw_mode(status.st_mode).is_dir();
            match self.room.checked_sub(room_of(name)) {
                // Counted when it is open.
                Some(left) if is_directory => {
                    self.room = left;
                    below.push(name.to_owned());
                }
                _ => self.add(&status, is_directory),
            }
        }
        Ok(below)
    }
}

/// The usage of all at and below `directory`. Files that go meanwhile are not counted, nor are files of other mounts.
///
/// # Errors
/// When a directory cannot be read.
pub fn of(directory: &Path) -> io::Result<DiskUsage> {
    walk(directory, MAX_NAMES)
}

/// The usage of all that can be read at and below any of these directories: a file that has a name in several of them is counted
/// once, and a directory that cannot be read counts nothing.
pub fn of_all<'a>(directories: impl IntoIterator<Item = &'a Path>) -> DiskUsage {
    let mut count = Count {
        room: MAX_NAMES,
        is_lenient: true,
        ..Count::default()
    };
    for directory in directories {
        // Of a directory of this list as of those below it.
        let _ = count.add_tree(directory);
    }
    count.usage
}

/// As [`of`]; names of directories are held up to so many bytes.
fn walk(directory: &Path, room: usize) -> io::Result<DiskUsage> {
    let mut count = Count {
        room,
        ..Count::default()
    };
    count.add_tree(directory)?;
    Ok(count.usage)
}

impl Count {
    /// An error, or nothing in its place.
    fn unless_lenient<T>(&self, read: io::Result<Option<T>>) -> io::Result<Option<T>> {
        match read {
            Err(_) if self.is_lenient => Ok(None),
            read => read,
        }
    }

    /// Counts a directory and all that is below it.
    fn add_tree(&mut self, directory: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = directory.as_os_str().as_bytes();
        let Some(top) = there(openat(CWD, path, flags, Mode::empty()))? else {
            return Ok(());
        };
        let top = Place {
            held: Rc::new(top),
            path: b".".to_vec(),
            levels: 0,
            depth: 0,
        };
        // Directories, and which of those in them are left; a name takes little room, a path would take much.
        let mut way: Vec<(Place, Rc<OwnedFd>, Vec<CString>)> = Vec::new();
        let mut next = Some(top);
        loop {
            if let Some(place) = next.take()
                && let Some(opened) = self.unless_lenient(place.open())?
            {
                self.add(&fstat(&opened)?, true);
                let below = match place.depth < MAX_DEPTH {
                    true => {
                        let below = self.add_all(&opened).map(Some);
                        self.unless_lenient(below)?.unwrap_or_default()
                    }
                    false => Vec::new(),
                };
                // Held open only if those below are reached from it.
                let held = match place.levels < LEVELS {
                    true => place.held.clone(),
                    false => Rc::new(opened),
                };
                way.push((place, held, below));
            }
            let Some((place, held, below)) = way.last_mut() else {
                return Ok(());
            };
            match below.pop() {
                Some(name) => {
                    self.room += room_of(&name);
                    next = Some(place.below(held, &name));
                }
                None => _ = way.pop(),
            }
        }
    }
}

/// The memory that a name takes, in bytes.
fn room_of(name: &CStr) -> usize {
    name.to_bytes_with_nul().len() + size_of::<CString>()
}

/// `None` for a name that is gone, or is no directory any more, or another file system's.
fn there<T>(result: rustix::io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use rustix::fs::{RenameFlags, mkdirat, renameat_with};

    use super::*;

    #[test]
    fn blocks_and_not_sizes_and_links_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let empty = of(path).unwrap();
        assert_eq!(empty.inodes, 1);
        fs::write(path.join("file"), vec![7; 100_000]).unwrap();
        let one = of(path).unwrap();
        assert!(one.bytes - empty.bytes >= 100_000, "{one:?}");
        fs::hard_link(path.join("file"), path.join("again")).unwrap();
        assert_eq!(of(path).unwrap(), one);
        // A hole takes an inode and no blocks.
        let hole = fs::File::create(path.join("hole")).unwrap();
        hole.set_len(1 << 30).unwrap();
        let with_hole = of(path).unwrap();
        assert_eq!(with_hole.inodes, one.inodes + 1);
        assert!(with_hole.bytes - one.bytes < 1 << 20, "{with_hole:?}");
        symlink("/", path.join("link")).unwrap();
        fs::create_dir(path.join("below")).unwrap();
        fs::write(path.join("below/x"), "x").unwrap();
        assert_eq!(of(path).unwrap().inodes, one.inodes + 4);
        assert_eq!(of(&path.join("gone")).unwrap(), DiskUsage::default());
    }

    #[test]
    fn a_file_with_names_in_two_directories_counts_once() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
        for path in [&one, &other] {
            fs::create_dir(path).unwrap();
        }
        fs::write(one.join("file"), vec![7; 100_000]).unwrap();
        let alone = of_all([&*one, &*other]);
        fs::hard_link(one.join("file"), other.join("again")).unwrap();
        assert_eq!(of_all([&*one, &*other]), alone);
    }

    #[test]
    fn what_cannot_be_read_counts_nothing_and_hides_nothing() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), vec![7; 100_000]).unwrap();
        // Longer than a name may be: for root nothing else is certain to be refused.
        let refused = directory.path().join("x".repeat(300));
        assert!(of(&refused).is_err());
        assert_eq!(
            of_all([&*refused, directory.path()]),
            of(directory.path()).unwrap()
        );
    }

    #[test]
    fn wide_trees_take_little_memory() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..50 {
            let below = directory.path().join(format!("directory-{number:02}"));
            fs::create_dir(&below).unwrap();
            fs::write(below.join("file"), "").unwrap();
        }
        let all = of(directory.path()).unwrap();
        assert_eq!(all.inodes, 1 + 50 + 50);
        let room = 10 * room_of(c"directory-00");
        let some = walk(directory.path(), room).unwrap();
        assert_eq!(
            some.inodes,
            1 + 50 + 10,
            "each counts itself, and ten what is in them"
        );
    }

    /// A container swaps a directory of its own and a link to one of the host's while it is counted.
    #[test]
    fn no_link_leads_out_whenever_it_is_put_there() {
        let directory = tempfile::tempdir().unwrap();
        let [inside, outside] = ["inside", "outside"].map(|name| directory.path().join(name));
        for path in ["a/b", "a/c"] {
            fs::create_dir_all(inside.join(path)).unwrap();
        }
        fs::create_dir_all(outside.join("b")).unwrap();
        for number in 0..200 {
            fs::write(outside.join(number.to_string()), "").unwrap();
            fs::write(outside.join("b").join(number.to_string()), "").unwrap();
        }
        symlink(&outside, inside.join("link")).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (one, other) = (inside.join("a"), inside.join("link"));
                while !is_over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                }
            });
            let end = Instant::now() + Duration::from_secs(2);
            let mut most = 0;
            while Instant::now() < end && most < 10 {
                most = most.max(of(&inside).unwrap().inodes);
            }
            is_over.store(true, Ordering::Relaxed);
            // The directory, two others in one of them, and the link; that twice if it was met by both names.
            assert!(most <= 8, "{most} inodes were counted: some outside");
        });
    }

    /// A directory in which trees may have more levels than descriptors are allowed. The usual one, when it is dropped, holds a
    /// descriptor for each level, and leaves the files that it cannot reach.
    struct Deep(tempfile::TempDir);

    impl Drop for Deep {
        fn drop(&mut self) {
            let _ = crate::remove::remove_tree(&self.0.path().join("x".repeat(255)));
        }
    }

    #[test]
    fn deep_trees_take_few_descriptors() {
        const LEVELS: usize = 3000;
        let deep = Deep(tempfile::tempdir().unwrap());
        let directory = &deep.0;
        let long = "x".repeat(255);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = openat(CWD, directory.path(), flags, Mode::empty()).unwrap();
        for _ in 0..LEVELS {
            mkdirat(&at, &*long, Mode::RWXU).unwrap();
            at = openat(&at, &*long, flags, Mode::empty()).unwrap();
        }
        let open = || fs::read_dir("/proc/self/fd").unwrap().count();
        let is_over = AtomicBool::new(false);
        let most = std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !is_over.load(Ordering::Relaxed) {
                    most = most.max(open());
                }
                most
            });
            assert_eq!(of(directory.path()).unwrap().inodes, LEVELS as u64 + 1);
            is_over.store(true, Ordering::Relaxed);
            watch.join().unwrap()
        });
        assert!(most < LEVELS / super::LEVELS + 100, "{most} descriptors");
    }
}
