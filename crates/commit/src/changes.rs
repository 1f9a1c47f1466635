//! Walks the upper directory of an overlay, and writes the changes that it says as entries of a layer.
//!
//! Entries come in the order of their bytes, a directory before what is in it, and deletions before their siblings, as the OCI
//! specification asks for. What overlayfs says by a device 0/0, or by an attribute, becomes an entry with the name of a deletion.
//!
//! Every name is opened in its directory with `O_PATH`, not through a link and not onto another mount. That descriptor tells the kind of
//! the file, its attributes and its contents, so it does not matter what the name becomes meanwhile.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, major, minor, openat, openat2,
    readlinkat, statat,
};
use rustix::io::Errno;
use xebec_kernel::file::FileIdentity;
use xebec_kernel::process::raise_open_file_limit;

use crate::attributes::{self, Attributes};
use crate::error::{CommitError, shown};
use crate::limits::{LEVELS, MAX_NAME, MAX_NAMES};
use crate::measure::{Measure, check_path};
use crate::tar::{END, Entry, Kind, pad};

/// How much of a file is read at once, in bytes.
const PART: usize = 128 << 10;

/// The beginning of names that mean deletions in a layer (OCI image specification, "Whiteouts").
const WHITEOUT: &[u8] = b".wh.";
/// The name of the entry by which nothing of lower layers is in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Empty files that the container's runtime makes where Xebec mounts something: docker keeps them in a layer of its own below.
const MOUNT_POINTS: [&[u8]; 4] = [
    b"etc/hostname",
    b"etc/hosts",
    b"etc/resolv.conf",
    b"sbin/docker-init",
];
/// Empty directories of that kind.
const MOUNT_DIRECTORIES: [&[u8]; 3] = [b"dev", b"proc", b"sys"];

/// Why a file was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// It is a socket, which is nothing without the process that listens.
    Socket,
    /// Its name means a deletion in a layer.
    Name,
    /// Of its extended attributes only: some steer the overlays of other runtimes, or have a name that a layer cannot have.
    Attributes,
}

impl fmt::Display for Skipped {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Socket => "it is a socket",
            Self::Name => "in a layer a name that begins with .wh. means a deletion",
            Self::Attributes => {
                "they are for the overlays of other runtimes, or a layer cannot have their names"
            }
        })
    }
}

/// A file, or some of its attributes, was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its path in the container, without a slash at its beginning.
    pub path: PathBuf,
    /// Why.
    pub reason: Skipped,
}

/// A sentence for the user, without characters that steer a terminal.
impl fmt::Display for Note {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.reason {
            Skipped::Attributes => "some extended attributes of ",
            Skipped::Socket | Skipped::Name => "",
        };
        write!(to, "left out {what}/{}: {}", shown(&self.path), self.reason)
    }
}

/// Takes the bytes of the tar file.
pub(crate) trait Output {
    /// Takes bytes, in order.
    fn write(&mut self, bytes: &[u8]) -> Result<(), CommitError>;
}

/// What the caller is asked and told meanwhile.
pub(crate) struct Caller<'a> {
    /// Asked now and then; an error ends the walk.
    pub(crate) go_on: &'a mut dyn FnMut() -> io::Result<()>,
    /// Told of files that are left out.
    pub(crate) note: &'a mut dyn FnMut(Note),
}

/// Writes the changes in `upper`. Gives the number of entries, the root's own not counted.
pub(crate) fn write_changes<'a>(
    upper: &Path,
    output: &'a mut dyn Output,
    caller: Caller<'a>,
) -> Result<u64, CommitError> {
    let _ = raise_open_file_limit();
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = openat(CWD, upper, flags, Mode::empty()).map_err(CommitError::file("open", upper))?;
    let mut walk = Walk {
        output,
        caller,
        path: Vec::new(),
        linked: HashMap::new(),
        entries: 0,
        measure: Measure::default(),
        names: 0,
        levels: Vec::new(),
    };
    walk.root(&top)?;
    walk.all_below(top)?;
    walk.output.write(&END)?;
    Ok(walk.entries)
}

/// A directory of which some entries are written.
struct Level {
    directory: OwnedFd,
    /// Names that are to come, the last one first.
    names: Vec<CString>,
    /// The memory of all names that it had.
    memory: usize,
    may_have_whiteouts: bool,
    /// The length of its path.
    length: usize,
}

struct Walk<'a> {
    output: &'a mut dyn Output,
    caller: Caller<'a>,
    /// Of what is visited; a directory's ends with a slash.
    path: Vec<u8>,
    /// Files with several names: the path of the first.
    linked: HashMap<FileIdentity, Vec<u8>>,
    /// The root's own not counted.
    entries: u64,
    measure: Measure,
    /// Bytes of names in memory.
    names: usize,
    levels: Vec<Level>,
}

impl Walk<'_> {
    fn shown(&self) -> PathBuf {
        PathBuf::from(OsStr::from_bytes(&self.path))
    }

    /// The container sees the attributes of its root in the upper directory itself.
    fn root(&mut self, top: &OwnedFd) -> Result<(), CommitError> {
        let shown = Path::new("/");
        let status = fstat(top).map_err(CommitError::file("look at", shown))?;
        let attributes = attributes::read(top.as_fd(), shown)?;
        self.put(b"./", &status, Kind::Directory, &attributes)
    }

    fn all_below(&mut self, top: OwnedFd) -> Result<(), CommitError> {
        self.enter(&top, &Attributes::default())?;
        while let Some(level) = self.levels.last_mut() {
            let Some(name) = level.names.pop() else {
                self.names -= level.memory;
                self.levels.pop();
                continue;
            };
            self.path.truncate(level.length);
            self.path.extend(name.to_bytes());
            check_path(&self.path)?;
            (self.caller.go_on)().map_err(CommitError::Stopped)?;
            let opened = match open_in(&level.directory, &name) {
                // Somebody who is not paused removed it.
                Err(Errno::NOENT) => continue,
                Err(Errno::XDEV) => return Err(CommitError::Mount(self.shown())),
                opened => opened.map_err(CommitError::file("open", &self.shown()))?,
            };
            self.visit(opened)?;
        }
        Ok(())
    }

    fn visit(&mut self, opened: OwnedFd) -> Result<(), CommitError> {
        let shown = self.shown();
        let status = fstat(&opened).map_err(CommitError::file("look at", &shown))?;
        let attributes = attributes::read(opened.as_fd(), &shown)?;
        let name = self.path.rsplit(|&byte| byte == b'/').next();
        if name.is_some_and(|name| name.starts_with(WHITEOUT)) {
            return self.skip(Skipped::Name);
        }
        let path = self.path.clone();
        let is_announced = self.levels.last().is_some_and(|level| level.may_have_whiteouts);
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => self.directory(opened, &status, &attributes),
            FileType::Socket => self.skip(Skipped::Socket),
            // Somebody who is not paused deleted it since the names were read.
            kind if is_deletion(kind, &status, is_announced && attributes.is_whiteout) => {
                let start = path.rsplit(|&byte| byte == b'/').next().map_or(0, <[u8]>::len);
                let (above, name) = path.split_at(path.len() - start);
                self.put_deletion(above, name)
            }
            FileType::RegularFile if MOUNT_POINTS.contains(&&*path) && status.st_size == 0 => Ok(()),
            kind => match self.first_name(&status)? {
                Some(first) => self.put_entry(&status, Kind::Link(&first), &Attributes::default()),
                None => self.other(kind, &opened, &status, &attributes),
            },
        }
    }

    fn directory(
        &mut self,
        opened: OwnedFd,
        status: &Stat,
        attributes: &Attributes,
    ) -> Result<(), CommitError> {
        if self.levels.len() >= LEVELS {
            return Err(CommitError::TooDeep(self.shown()));
        }
        let is_mount_point = MOUNT_DIRECTORIES.contains(&&*self.path);
        self.path.push(b'/');
        self.enter(&opened, attributes)?;
        let level = self.levels.last();
        if is_mount_point && !attributes.is_opaque && level.is_some_and(|level| level.names.is_empty()) {
            return Ok(());
        }
        self.put_entry(status, Kind::Directory, attributes)?;
        if attributes.is_opaque {
            let path = [&*self.path, OPAQUE].concat();
            self.put_marker(&path)?;
        }
        self.whiteouts()
    }

    /// Anything but a directory or a socket.
    fn other(
        &mut self,
        kind: FileType,
        opened: &OwnedFd,
        status: &Stat,
        attributes: &Attributes,
    ) -> Result<(), CommitError> {
        let device = (major(status.st_rdev), minor(status.st_rdev));
        match kind {
            FileType::RegularFile => self.file(opened, status, attributes),
            FileType::Symlink => {
                let target = readlinkat(opened, c"", Vec::new());
                let target = target.map_err(CommitError::file("read the link", &self.shown()))?;
                self.put_entry(status, Kind::Symlink(target.to_bytes()), attributes)
            }
            FileType::Fifo => self.put_entry(status, Kind::Fifo, attributes),
            FileType::CharacterDevice => {
                self.put_entry(status, Kind::Character(device.0, device.1), attributes)
            }
            FileType::BlockDevice => self.put_entry(status, Kind::Block(device.0, device.1), attributes),
            _ => Ok(()),
        }
    }

    fn file(&mut self, opened: &OwnedFd, status: &Stat, attributes: &Attributes) -> Result<(), CommitError> {
        let shown = self.shown();
        let size = u64::try_from(status.st_size).unwrap_or_default();
        let held = u64::try_from(status.st_blocks).unwrap_or_default() * 512;
        self.measure.claim(size, held, &shown)?;
        let file = open_again(opened.as_fd()).map_err(CommitError::file("open", &shown))?;
        self.put_entry(status, Kind::File(size), attributes)?;
        let mut part = vec![0; PART];
        let mut at = 0;
        while at < size {
            (self.caller.go_on)().map_err(CommitError::Stopped)?;
            let length = usize::try_from(size - at).unwrap_or(PART).min(PART);
            let read = file.read_at(part.get_mut(..length).unwrap_or_default(), at);
            match read.map_err(CommitError::file("read", &shown))? {
                0 => return Err(CommitError::Shrunk(shown)),
                length => {
                    self.output.write(part.get(..length).unwrap_or_default())?;
                    at += length as u64;
                }
            }
        }
        let mut padding = Vec::new();
        pad(&mut padding, size);
        self.output.write(&padding)
    }

    /// Reads a directory's names, of which the deletions are kept apart until its own entry is written.
    fn enter(&mut self, opened: &OwnedFd, attributes: &Attributes) -> Result<(), CommitError> {
        let shown = self.shown();
        let failed = |error: Errno| CommitError::file("read the directory", &shown)(error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(opened, c".", flags, Mode::empty()).map_err(failed)?;
        let (mut names, mut memory) = (Vec::new(), 0);
        for entry in Dir::read_from(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            (self.caller.go_on)().map_err(CommitError::Stopped)?;
            memory += name.to_bytes().len() + size_of::<CString>();
            if self.names + memory > MAX_NAMES {
                return Err(CommitError::TooManyNames(shown));
            }
            names.push(name.to_owned());
        }
        names.sort_unstable_by(|one, other| other.cmp(one));
        self.names += memory;
        self.levels.push(Level {
            directory,
            names,
            memory,
            may_have_whiteouts: attributes.may_have_whiteouts,
            length: self.path.len(),
        });
        match self.path.is_empty() {
            // Its entry is written already.
            true => self.whiteouts(),
            false => Ok(()),
        }
    }

    /// Writes the deletions in the directory that was entered last, and leaves the other names.
    fn whiteouts(&mut self) -> Result<(), CommitError> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(());
        };
        let shown = PathBuf::from(OsStr::from_bytes(&self.path));
        let mut deleted = Vec::new();
        let mut others = Vec::new();
        for name in std::mem::take(&mut level.names) {
            (self.caller.go_on)().map_err(CommitError::Stopped)?;
            match is_whiteout(level, &name, &shown)? {
                true => deleted.push(name),
                false => others.push(name),
            }
        }
        level.names = others;
        let above = self.path.clone();
        for name in deleted.iter().rev() {
            (self.caller.go_on)().map_err(CommitError::Stopped)?;
            self.put_deletion(&above, name.to_bytes())?;
        }
        Ok(())
    }

    /// Writes that a name is deleted in the directory `above`, which ends with a slash unless it is the root.
    fn put_deletion(&mut self, above: &[u8], name: &[u8]) -> Result<(), CommitError> {
        if WHITEOUT.len() + name.len() > MAX_NAME {
            let deleted = [above, name].concat();
            return Err(CommitError::DeletedName(OsStr::from_bytes(&deleted).into()));
        }
        self.put_marker(&[above, WHITEOUT, name].concat())
    }

    /// The first name of the same file. A file with one name only is not looked for.
    fn first_name(&mut self, status: &Stat) -> Result<Option<Vec<u8>>, CommitError> {
        if status.st_nlink < 2 {
            return Ok(None);
        }
        let file = FileIdentity::from(status);
        let first = self.linked.get(&file).cloned();
        if first.is_none() {
            self.measure.linked(&self.path)?;
            self.linked.insert(file, self.path.clone());
        }
        Ok(first)
    }

    fn put_entry(
        &mut self,
        status: &Stat,
        kind: Kind<'_>,
        attributes: &Attributes,
    ) -> Result<(), CommitError> {
        self.entries += 1;
        let path = self.path.clone();
        self.put(&path, status, kind, attributes)
    }

    fn put(
        &mut self,
        path: &[u8],
        status: &Stat,
        kind: Kind<'_>,
        attributes: &Attributes,
    ) -> Result<(), CommitError> {
        let entry = Entry {
            path,
            kind,
            mode: status.st_mode & 0o7777,
            owner: (status.st_uid, status.st_gid),
            modified: (
                status.st_mtime,
                u32::try_from(status.st_mtime_nsec).unwrap_or_default(),
            ),
            xattrs: &attributes.own,
        };
        self.measure.entry(&entry)?;
        if attributes.has_others {
            let (path, reason) = (self.shown(), Skipped::Attributes);
            (self.caller.note)(Note { path, reason });
        }
        let mut bytes = Vec::new();
        entry.write(&mut bytes);
        self.output.write(&bytes)
    }

    /// An empty file whose name says something. It has no attributes of its own.
    fn put_marker(&mut self, path: &[u8]) -> Result<(), CommitError> {
        self.entries += 1;
        let entry = Entry {
            path,
            kind: Kind::File(0),
            mode: 0o600,
            owner: (0, 0),
            modified: (0, 0),
            xattrs: &[],
        };
        self.measure.entry(&entry)?;
        let mut bytes = Vec::new();
        entry.write(&mut bytes);
        self.output.write(&bytes)
    }

    fn skip(&mut self, reason: Skipped) -> Result<(), CommitError> {
        self.measure.left_out()?;
        let path = self.shown();
        (self.caller.note)(Note { path, reason });
        Ok(())
    }
}

/// Whether a file of an upper directory stands for a deletion. `is_marked`: it has the attribute, in a directory that announces such.
fn is_deletion(kind: FileType, status: &Stat, is_marked: bool) -> bool {
    match kind {
        FileType::CharacterDevice => status.st_rdev == 0,
        FileType::RegularFile => is_marked && status.st_size == 0,
        _ => false,
    }
}

/// Whether a name stands for a deletion: a character device 0/0, or an empty file with an attribute in a directory that announces such.
fn is_whiteout(level: &Level, name: &CStr, above: &Path) -> Result<bool, CommitError> {
    let shown = || above.join(OsStr::from_bytes(name.to_bytes()));
    let status = match statat(&level.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(false),
        status => status.map_err(CommitError::file("look at", &shown()))?,
    };
    match FileType::from_raw_mode(status.st_mode) {
        kind @ FileType::CharacterDevice => Ok(is_deletion(kind, &status, false)),
        FileType::RegularFile if level.may_have_whiteouts && status.st_size == 0 => {
            match open_in(&level.directory, name) {
                Ok(file) => Ok(attributes::read(file.as_fd(), &shown())?.is_whiteout),
                // Found again when its turn comes.
                Err(_) => Ok(false),
            }
        }
        _ => Ok(false),
    }
}

/// Opens a name in a directory, itself and not its target, and nothing that is mounted on it.
fn open_in(directory: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    openat2(directory, name, flags, Mode::empty(), resolve)
}

/// Opens a regular file to read it, by a descriptor that gives no access to its contents.
fn open_again(opened: BorrowedFd<'_>) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}
