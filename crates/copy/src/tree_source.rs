//! A tree of files as the source of a copy.
//!
//! Every name is opened in its directory with `O_PATH` and `O_NOFOLLOW`. That descriptor tells the kind of the file, its contents and its
//! target, so it does not matter what the name becomes meanwhile.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, Stat, fstat, fstatfs, major, minor, openat, readlinkat};
use rustix::io::Errno;
use xebec_kernel::file::FileIdentity;

use super::entry::{Content, Entry, Kind, Meta, Note, Sink, Skipped};
use super::error::CopyError;
use super::limits::{LEVELS, LINKED_FILES};
use super::place::Source;

/// File systems that the kernel makes up (`linux/magic.h`): `proc`, `sysfs`, `cgroup`, `cgroup2`, `devpts`,
/// `mqueue`, `securityfs`, `debugfs`, `tracefs`.
const OF_THE_KERNEL: [rustix::fs::FsWord; 9] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x1cd1,
    0x1980_0202,
    0x7363_6673,
    0x6462_6720,
    0x7472_6163,
];

/// Passes a tree to a sink. `prefix` is its name there; without one, the contents of the directory are passed.
pub(super) fn walk(
    source: Source,
    prefix: Option<&Path>,
    sink: &mut dyn Sink,
    on_note: &mut dyn FnMut(Note),
) -> Result<(), CopyError> {
    let top = Path::new(&source.label);
    if is_of_the_kernel(&source.opened).map_err(CopyError::file("look at", top))? {
        return Err(CopyError::OfTheKernel(source.label));
    }
    let mut walk = Walk {
        label: source.label.clone(),
        sink,
        on_note,
        path: prefix.unwrap_or(Path::new("")).to_owned(),
        linked: HashMap::new(),
        skipped: None,
    };
    let directory = match prefix {
        Some(_) => walk.visit(source.opened)?,
        None => Some(source.opened),
    };
    if let Some(directory) = directory {
        walk.visit_all_below(directory)?;
    }
    // A source that is left out is no success.
    match walk.skipped {
        Some(path) if Some(path.as_path()) == prefix => Err(CopyError::Special(source.label)),
        _ => Ok(()),
    }
}

struct Walk<'a> {
    /// The source, for messages.
    label: String,
    sink: &'a mut dyn Sink,
    on_note: &'a mut dyn FnMut(Note),
    /// Of what is visited, below the destination.
    path: PathBuf,
    /// Files with several names.
    linked: HashMap<FileIdentity, PathBuf>,
    /// The path that was left out last.
    skipped: Option<PathBuf>,
}

impl Walk<'_> {
    /// Passes one file. Returns a directory whose contents are to be passed next.
    fn visit(&mut self, opened: OwnedFd) -> Result<Option<OwnedFd>, CopyError> {
        let status = fstat(&opened).map_err(CopyError::file("look at", &self.path))?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory => {
                if is_of_the_kernel(&opened).map_err(CopyError::file("look at", &self.path))? {
                    self.skip(Skipped::OfTheKernel);
                    return Ok(None);
                }
                self.pass(&status, Kind::Directory)?;
                return Ok(Some(opened));
            }
            FileType::RegularFile => self.visit_file(&opened, &status)?,
            FileType::Symlink => {
                let target = readlinkat(&opened, "", Vec::new());
                let target = target.map_err(CopyError::file("read the link", &self.path))?;
                self.pass(&status, Kind::Link(OsStr::from_bytes(target.to_bytes())))?;
            }
            FileType::Fifo => self.pass(&status, Kind::Fifo)?,
            kind @ (FileType::CharacterDevice | FileType::BlockDevice) => {
                let number = (major(status.st_rdev), minor(status.st_rdev));
                let is_block = kind == FileType::BlockDevice;
                self.pass(&status, Kind::Device { is_block, number })?;
            }
            FileType::Socket => self.skip(Skipped::Socket),
            _ => self.skip(Skipped::Unknown),
        }
        Ok(None)
    }

    /// Passes all that is in a directory, and in those below it.
    fn visit_all_below(&mut self, directory: OwnedFd) -> Result<(), CopyError> {
        let mut levels = vec![self.enter(directory)?];
        while let Some((directory, names)) = levels.last_mut() {
            let Some(entry) = names.read() else {
                levels.pop();
                self.path.pop();
                continue;
            };
            let entry = entry.map_err(CopyError::file("read the directory", &self.path))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            self.path.push(OsStr::from_bytes(name.to_bytes()));
            let below = match openat(&*directory, name, flags, Mode::empty()) {
                Ok(opened) => self.visit(opened)?,
                // It was removed meanwhile.
                Err(Errno::NOENT) => None,
                Err(error) => return Err(CopyError::file("open", &self.path)(error)),
            };
            match below {
                Some(_) if levels.len() >= LEVELS => return Err(CopyError::TooDeep(self.path.clone())),
                Some(below) => levels.push(self.enter(below)?),
                None => {
                    self.path.pop();
                }
            }
        }
        Ok(())
    }

    /// Opens a directory to read its names.
    fn enter(&self, directory: OwnedFd) -> Result<(OwnedFd, Dir), CopyError> {
        let identity = FileIdentity::of(&directory).map_err(CopyError::file("look at", &self.path))?;
        if self.sink.is_destination(identity) {
            return Err(CopyError::IntoItself {
                from: self.label.clone(),
                to: self.path.display().to_string(),
            });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let names = openat(&directory, ".", flags, Mode::empty()).and_then(Dir::new);
        let names = names.map_err(CopyError::file("read the directory", &self.path))?;
        Ok((directory, names))
    }

    fn visit_file(&mut self, opened: &OwnedFd, status: &Stat) -> Result<(), CopyError> {
        if status.st_nlink > 1 {
            let file = FileIdentity::from(status);
            if let Some(first) = self.linked.get(&file).cloned() {
                return self.pass(status, Kind::Same(&first));
            }
            if self.linked.len() < LINKED_FILES {
                self.linked.insert(file, self.path.clone());
            }
        }
        if status.st_size == 0 && is_of_the_kernel(opened).unwrap_or(false) {
            self.skip(Skipped::OfTheKernel);
            return Ok(());
        }
        let file = open_again(opened.as_fd()).map_err(CopyError::file("open", &self.path))?;
        let size = u64::try_from(status.st_size).unwrap_or_default();
        self.pass(status, Kind::File(Content::File(&file, size)))
    }

    fn pass(&mut self, status: &Stat, kind: Kind<'_>) -> Result<(), CopyError> {
        let entry = Entry {
            path: &self.path,
            meta: meta(status),
            kind,
        };
        if let Some(reason) = self.sink.add(entry)? {
            self.skip(reason);
        }
        Ok(())
    }

    fn skip(&mut self, reason: Skipped) {
        self.skipped = Some(self.path.clone());
        (self.on_note)(Note {
            path: self.path.clone(),
            reason,
        });
    }
}

fn meta(status: &Stat) -> Meta {
    Meta {
        mode: status.st_mode & 0o7777,
        uid: status.st_uid,
        gid: status.st_gid,
        modified: (
            status.st_mtime,
            u32::try_from(status.st_mtime_nsec).unwrap_or_default(),
        ),
    }
}

/// Opens a regular file to read it, by a descriptor that gives no access to its contents.
pub(super) fn open_again(opened: BorrowedFd<'_>) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

fn is_of_the_kernel(opened: &OwnedFd) -> io::Result<bool> {
    Ok(OF_THE_KERNEL.contains(&fstatfs(opened)?.f_type))
}
