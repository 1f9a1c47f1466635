//! A directory into which files are copied.
//!
//! The directories on the way to the current entry are open, each by its name in the one above, and never
//! through a link. Everything but a directory appears under a temporary name first.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, chownat, fchmod,
    fchown, fstat, futimens, linkat, mkdirat, mknodat, openat, renameat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use xebec_kernel::file::FileIdentity;
use xebec_kernel::path::{is_mount_point, open_beneath};
use xebec_kernel::random::random_name;

use super::entry::{Content, Entry, Kind, Meta, Sink, Skipped};
use super::error::CopyError;
use super::limits::LEVELS;
use super::tree_source::open_again;

/// The bits that let a program run as its owner or group.
const SET_ID: u32 = 0o6000;

/// Random bytes in the temporary name of a file.
const RANDOM_BYTES: usize = 6;

/// The mode of a directory that a tar stream does not have, but something in it.
const DEFAULT_MODE: u32 = 0o755;

/// The attributes that copied files keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The owner of what is copied. `None` if it keeps its own.
    owner: Option<(u32, u32)>,
    keeps_set_id: bool,
}

impl Rules {
    pub(super) fn new(archive: bool, is_host: bool) -> Self {
        let caller = || {
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            (user.as_raw(), group.as_raw())
        };
        let owner = if is_host { caller() } else { (0, 0) };
        Self {
            owner: (!archive).then_some(owner),
            keeps_set_id: archive || !is_host,
        }
    }

    fn apply(self, meta: Meta) -> Meta {
        let (uid, gid) = self.owner.unwrap_or((meta.uid, meta.gid));
        let dropped = if self.keeps_set_id { 0 } else { SET_ID };
        Meta {
            mode: meta.mode & !dropped,
            uid,
            gid,
            ..meta
        }
    }
}

/// A directory on the way to the current entry.
struct Level {
    name: OsString,
    opened: OwnedFd,
    /// The attributes that the directory gets once nothing more is copied into it.
    meta: Option<Meta>,
}

/// A directory into which files are copied.
pub(super) struct TreeSink {
    base: OwnedFd,
    label: String,
    rules: Rules,
    levels: Vec<Level>,
    /// The name under which files appear first.
    temporary: OsString,
}

impl TreeSink {
    /// `label` names the directory in messages.
    pub(super) fn new(base: OwnedFd, label: String, rules: Rules) -> Self {
        let random = random_name(RANDOM_BYTES).unwrap_or_else(|_| std::process::id().to_string());
        Self {
            base,
            label,
            rules,
            levels: Vec::new(),
            temporary: format!(".xebec-cp-{random}").into(),
        }
    }

    /// Ends the copy.
    pub(super) fn finish(mut self) -> Result<(), CopyError> {
        self.leave_to(0)
    }

    /// Leaves directories until so many are open.
    fn leave_to(&mut self, count: usize) -> Result<(), CopyError> {
        while self.levels.len() > count {
            let Some(level) = self.levels.pop() else { break };
            let Some(meta) = level.meta else { continue };
            let path = self.levels.iter().map(|level| level.name.as_os_str());
            let path: PathBuf = path.chain([level.name.as_os_str()]).collect();
            dress(&level.opened, meta).map_err(CopyError::file("change the attributes of", &path))?;
        }
        Ok(())
    }

    /// Enters a directory, which is made if it is not there, and leaves all others.
    fn enter(&mut self, path: &Path) -> Result<(), CopyError> {
        let names: Vec<&OsStr> = path.components().map(Component::as_os_str).collect();
        let same = self.levels.iter().zip(&names);
        let same = same.take_while(|(level, name)| level.name == **name).count();
        self.leave_to(same)?;
        for name in names.into_iter().skip(same) {
            self.enter_one(name, path, None)?;
        }
        Ok(())
    }

    /// Enters a directory of the current one. It is made if it is not there.
    fn enter_one(&mut self, name: &OsStr, path: &Path, meta: Option<Meta>) -> Result<(), CopyError> {
        if self.levels.len() >= LEVELS {
            return Err(CopyError::TooDeep(path.to_owned()));
        }
        // Closed until it gets its own mode.
        let mode = meta.map_or(DEFAULT_MODE, |_| 0o700);
        let is_new = match mkdirat(self.current(), name, Mode::from_raw_mode(mode)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(CopyError::file("create the directory", path)(error)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = match openat(self.current(), name, flags, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(CopyError::InTheWay {
                    path: path.to_owned(),
                    destination: self.label.clone(),
                });
            }
            opened => opened.map_err(CopyError::file("open the directory", path))?,
        };
        if is_new && meta.is_none() {
            let mode = fchmod(&opened, Mode::from_raw_mode(mode));
            mode.map_err(CopyError::file("change the mode of", path))?;
        }
        self.levels.push(Level {
            name: name.to_owned(),
            opened,
            meta,
        });
        Ok(())
    }

    fn current(&self) -> BorrowedFd<'_> {
        self.levels
            .last()
            .map_or(self.base.as_fd(), |level| level.opened.as_fd())
    }

    /// Gives what has the temporary name its own.
    fn name(&self, name: &OsStr, path: &Path) -> Result<(), CopyError> {
        let in_the_way = |is_mount: bool| {
            let (path, destination) = (path.to_owned(), self.label.clone());
            match is_mount {
                true => CopyError::MountInTheWay { path, destination },
                false => CopyError::FileOntoDirectory { path, destination },
            }
        };
        let is_mount = is_mount_point(self.current(), name);
        if is_mount.map_err(CopyError::file("look at", path))? {
            return Err(in_the_way(true));
        }
        match renameat(self.current(), &self.temporary, self.current(), name) {
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY) => Err(in_the_way(false)),
            Err(Errno::BUSY) => Err(in_the_way(true)),
            renamed => renamed.map_err(CopyError::file("create", path)),
        }
    }

    /// Removes the temporary name. There is none if all went well, unless the file had its own name already.
    fn remove_temporary(&self) {
        let _ = unlinkat(self.current(), &self.temporary, AtFlags::empty());
    }

    fn add_file(&self, name: &OsStr, path: &Path, content: Content<'_>, meta: Meta) -> Result<(), CopyError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(self.current(), &self.temporary, flags, Mode::from_raw_mode(0o600));
        let mut file = File::from(file.map_err(CopyError::file("create", path))?);
        fill(&mut file, content).map_err(CopyError::file("write", path))?;
        if is_mount_point(self.current(), name).map_err(CopyError::file("look at", path))? {
            return self.write_in_place(name, path, &mut file);
        }
        dress(&file, meta).map_err(CopyError::file("change the attributes of", path))?;
        self.name(name, path)
    }

    /// Writes into a file that is mounted there, such as a volume: another file in its place would hide it.
    fn write_in_place(&self, name: &OsStr, path: &Path, from: &mut File) -> Result<(), CopyError> {
        let mut write = || -> io::Result<bool> {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = openat(self.current(), name, flags, Mode::empty())?;
            if FileType::from_raw_mode(fstat(&opened)?.st_mode) != FileType::RegularFile {
                return Ok(false);
            }
            let to = format!("/proc/self/fd/{}", opened.as_raw_fd());
            let mut to = File::from(openat(
                CWD,
                to,
                OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC,
                Mode::empty(),
            )?);
            from.rewind()?;
            io::copy(from, &mut to)?;
            Ok(true)
        };
        match write().map_err(CopyError::file("write", path))? {
            true => Ok(()),
            false => Err(CopyError::MountInTheWay {
                path: path.to_owned(),
                destination: self.label.clone(),
            }),
        }
    }

    /// Gives a file that was copied before another name.
    fn add_same(&self, name: &OsStr, path: &Path, first: &Path, meta: Meta) -> Result<(), CopyError> {
        let opened = open_beneath(self.base.as_fd(), first);
        let opened = opened.map_err(CopyError::file("find, for another name of it,", first))?;
        let by_number = format!("/proc/self/fd/{}", opened.as_raw_fd());
        match linkat(
            CWD,
            by_number,
            self.current(),
            &self.temporary,
            AtFlags::SYMLINK_FOLLOW,
        ) {
            Ok(()) => self.name(name, path),
            // One is in a volume, and the other is not.
            Err(Errno::XDEV) => {
                let status = fstat(&opened).map_err(CopyError::file("look at", first))?;
                let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
                if !is_file {
                    return Err(CopyError::file("link", path)(Errno::XDEV));
                }
                let file = open_again(opened.as_fd()).map_err(CopyError::file("open", first))?;
                let size = u64::try_from(status.st_size).unwrap_or_default();
                self.add_file(name, path, Content::File(&file, size), meta)
            }
            Err(error) => Err(CopyError::file("link", path)(error)),
        }
    }

    fn add_link(&self, name: &OsStr, path: &Path, target: &OsStr, meta: Meta) -> Result<(), CopyError> {
        let failed = || CopyError::file("create the link", path);
        symlinkat(target, self.current(), &self.temporary).map_err(failed())?;
        self.dress_temporary(meta).map_err(failed())?;
        self.name(name, path)
    }

    fn add_fifo(&self, name: &OsStr, path: &Path, meta: Meta) -> Result<(), CopyError> {
        let failed = || CopyError::file("create the FIFO", path);
        let mode = Mode::from_raw_mode(0o600);
        mknodat(self.current(), &self.temporary, FileType::Fifo, mode, 0).map_err(failed())?;
        self.dress_temporary(meta).map_err(failed())?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(self.current(), &self.temporary, flags, Mode::empty()).map_err(failed())?;
        let by_number = format!("/proc/self/fd/{}", opened.as_raw_fd());
        rustix::fs::chmod(by_number, Mode::from_raw_mode(meta.mode)).map_err(failed())?;
        self.name(name, path)
    }

    /// Owner and time of a link or a special file.
    fn dress_temporary(&self, meta: Meta) -> rustix::io::Result<()> {
        let (user, group) = owner(meta);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        chownat(self.current(), &self.temporary, user, group, flags)?;
        utimensat(self.current(), &self.temporary, &times(meta), flags)
    }
}

impl Sink for TreeSink {
    fn add(&mut self, entry: Entry<'_, '_>) -> Result<Option<Skipped>, CopyError> {
        let Entry { path, meta, kind } = entry;
        let Some(name) = path.file_name() else {
            return Ok(None);
        };
        let meta = self.rules.apply(meta);
        if let Kind::Device { .. } = kind {
            return Ok(Some(Skipped::Device));
        }
        self.enter(path.parent().unwrap_or(Path::new("")))?;
        let outcome = match kind {
            Kind::Directory => return self.enter_one(name, path, Some(meta)).map(|()| None),
            Kind::File(content) => self.add_file(name, path, content, meta),
            Kind::Link(target) => self.add_link(name, path, target, meta),
            Kind::Same(first) => self.add_same(name, path, first, meta),
            Kind::Fifo => self.add_fifo(name, path, meta),
            Kind::Device { .. } => Ok(()),
        };
        self.remove_temporary();
        outcome.map(|()| None)
    }

    fn is_destination(&self, directory: FileIdentity) -> bool {
        FileIdentity::of(&self.base).is_ok_and(|base| base == directory)
    }
}

/// After a failure, the directories that were made get their modes nevertheless.
impl Drop for TreeSink {
    fn drop(&mut self) {
        let _ = self.leave_to(0);
    }
}

fn owner(meta: Meta) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)))
}

fn times(meta: Meta) -> Timestamps {
    let (seconds, nanoseconds) = meta.modified;
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds.into(),
        },
    }
}

/// Gives a file or a directory its owner, then its mode, which a change of the owner would reset, and its time.
fn dress(opened: impl AsFd, meta: Meta) -> rustix::io::Result<()> {
    let (user, group) = owner(meta);
    fchown(&opened, user, group)?;
    fchmod(&opened, Mode::from_raw_mode(meta.mode))?;
    futimens(&opened, &times(meta))
}

/// Writes the contents of a file. Holes of a file stay holes.
fn fill(to: &mut File, content: Content<'_>) -> io::Result<()> {
    let (from, size) = match content {
        Content::Stream(from) => return io::copy(from, to).map(drop),
        Content::File(from, size) => (from, size),
    };
    let mut at = 0;
    while at < size {
        let (start, end) = match next_data(from, at, size)? {
            Some(range) => range,
            None => break,
        };
        let mut from = from;
        from.seek(SeekFrom::Start(start))?;
        to.seek(SeekFrom::Start(start))?;
        let copied = io::copy(&mut from.take(end - start), to)?;
        if copied < end - start {
            // It became shorter meanwhile.
            return Ok(());
        }
        at = end;
    }
    to.set_len(size)?;
    to.flush()
}

/// The next range of a file that is no hole.
fn next_data(file: &File, at: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // A file system that knows no holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((at, size))),
        Err(error) => return Err(error.into()),
    };
    if start >= size {
        return Ok(None);
    }
    let end = seek(file, SeekFrom::Hole(start)).unwrap_or(size);
    Ok(Some((start, end.min(size))))
}
