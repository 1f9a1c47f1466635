//! Copies a directory with all that is in it: owners, modes, times, extended attributes, links and devices.
//!
//! Either side may change at any moment. So each directory is opened by its name in the one above, which is open,
//! through no link and onto no other mount. Runs of zeros become holes: a file may be far larger than its
//! data.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat,
    fstat, lgetxattr, linkat, llistxattr, lsetxattr, mkdirat, mknodat, openat, readlinkat, statat, symlinkat,
    utimensat,
};
use rustix::io::Errno;
use xebec_kernel::file::FileIdentity;

use super::levels::{LEVELS, below, too_deep};

/// How much is read at a time.
const CHUNK: usize = 256 << 10;

/// A run of zeros of this length becomes a hole.
const BLOCK: usize = 4096;

/// The largest list of attributes, and the largest attribute (`xattr(7)`).
const ATTRIBUTE_LIMIT: usize = 64 << 10;

/// Attributes that belong to where a file is: the label of the container's overlay, and overlayfs's own.
const PLACES: [&[u8]; 2] = [b"security.selinux", b"trusted.overlay."];

/// How many files with several names are remembered, so that their other names become links to them. The rest is copied once for
/// each name.
const LINKED_FILES: usize = 1 << 20;

/// The longest path that the kernel takes (`PATH_MAX`). A file with a longer one is copied once for each of its names.
const PATH_LIMIT: usize = 4095;

/// Copies the contents and the attributes of the directory `from` into `to`, which is empty. `go_on` is asked often.
pub(super) fn copy_tree(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    go_on: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let mut copy = Copy {
        to,
        linked: HashMap::new(),
        buffer: vec![0; CHUNK],
        attribute: vec![0; ATTRIBUTE_LIMIT],
        go_on,
    };
    let mut levels = vec![Level::enter(from, to, c".")?];
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.from.read() else {
            // Nothing is added to it after its time is set.
            let status = fstat(level.from.fd()?)?;
            copy.dress(level.from.fd()?, level.to.as_fd(), c".", &status)?;
            levels.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        (copy.go_on)()?;
        if let Some(below) = copy.copy(&levels, name)? {
            levels.push(below);
        }
    }
    Ok(())
}

/// A directory that is being copied.
struct Level {
    from: Dir,
    to: OwnedFd,
    /// In the one above.
    name: CString,
}

impl Level {
    /// A directory in one that is open on both sides.
    fn enter(from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &CStr) -> io::Result<Self> {
        Ok(Self {
            from: Dir::new(below(from, name)?)?,
            to: below(to, name)?,
            name: name.to_owned(),
        })
    }
}

/// Where a name in the last of these directories is, from the first one.
fn path_from_top(levels: &[Level], name: &CStr) -> PathBuf {
    let above = levels.iter().skip(1).map(|level| level.name.as_c_str());
    let names = above.chain([name]);
    names.map(|name| OsStr::from_bytes(name.to_bytes())).collect()
}

struct Copy<'a> {
    to: BorrowedFd<'a>,
    /// Where files with several names were copied to.
    linked: HashMap<FileIdentity, PathBuf>,
    buffer: Vec<u8>,
    attribute: Vec<u8>,
    go_on: &'a mut dyn FnMut() -> io::Result<()>,
}

impl Copy<'_> {
    /// Copies one name in the last of these directories. Returns a directory, which is empty yet.
    fn copy(&mut self, levels: &[Level], name: &CStr) -> io::Result<Option<Level>> {
        let Some(level) = levels.last() else {
            return Ok(None);
        };
        let (from, to) = (level.from.fd()?, level.to.as_fd());
        let status = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(status.st_mode);
        if kind == FileType::Directory {
            if levels.len() >= LEVELS {
                return Err(too_deep("add nocopy, so that nothing is copied"));
            }
            mkdirat(to, name, Mode::RWXU)?;
            return Level::enter(from, to, name).map(Some);
        }
        if status.st_nlink > 1 && self.link(levels, name, &status)? {
            return Ok(None);
        }
        match kind {
            FileType::RegularFile => self.copy_contents(from, to, name, &status)?,
            FileType::Symlink => symlinkat(readlinkat(from, name, Vec::new())?, to, name)?,
            kind => mknodat(to, name, kind, Mode::RUSR, status.st_rdev)?,
        }
        self.dress(from, to, name, &status)?;
        Ok(None)
    }

    /// Makes a link to the copy of a file that has several names. Returns false if this is the first of them, or nobody
    /// remembers.
    fn link(&mut self, levels: &[Level], name: &CStr, status: &Stat) -> io::Result<bool> {
        let file = FileIdentity::from(status);
        if let (Some(first), Some(level)) = (self.linked.get(&file), levels.last()) {
            linkat(self.to, first.as_path(), &level.to, name, AtFlags::empty())?;
            return Ok(true);
        }
        let path = path_from_top(levels, name);
        if self.linked.len() < LINKED_FILES && path.as_os_str().len() <= PATH_LIMIT {
            self.linked.insert(file, path);
        }
        Ok(false)
    }

    fn copy_contents(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        status: &Stat,
    ) -> io::Result<()> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut from = File::from(openat(
            from,
            name,
            flags | OFlags::RDONLY | OFlags::NONBLOCK,
            Mode::empty(),
        )?);
        let new = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut to = File::from(openat(to, name, new, Mode::RUSR | Mode::WUSR)?);
        loop {
            (self.go_on)()?;
            let length = from.read(&mut self.buffer)?;
            if length == 0 {
                break;
            }
            for block in self.buffer.get(..length).unwrap_or_default().chunks(BLOCK) {
                match block.iter().all(|byte| *byte == 0) {
                    true => drop(to.seek(SeekFrom::Current(block.len() as i64))?),
                    false => to.write_all(block)?,
                }
            }
        }
        to.set_len(status.st_size.cast_unsigned())
    }

    /// Gives a copy the owner, the attributes, the mode and the times of its original.
    fn dress(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        status: &Stat,
    ) -> io::Result<()> {
        let (owner, group) = (Uid::from_raw(status.st_uid), Gid::from_raw(status.st_gid));
        chownat(to, name, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::Symlink {
            chmodat(
                to,
                name,
                Mode::from_raw_mode(status.st_mode & 0o7777),
                AtFlags::empty(),
            )?;
        }
        self.copy_attributes(&path_of(from, name)?, &path_of(to, name)?)?;
        let time = |seconds: i64, nanoseconds: u64| Timespec {
            tv_sec: seconds,
            tv_nsec: nanoseconds.cast_signed(),
        };
        let times = Timestamps {
            last_access: time(status.st_atime, status.st_atime_nsec),
            last_modification: time(status.st_mtime, status.st_mtime_nsec),
        };
        Ok(utimensat(to, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn copy_attributes(&mut self, from: &CStr, to: &CStr) -> io::Result<()> {
        let length = match llistxattr(from, &mut self.attribute[..]) {
            Err(Errno::NOTSUP) => return Ok(()),
            length => length?,
        };
        let names = self.attribute.get(..length).unwrap_or_default().to_owned();
        for name in names.split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else {
                continue;
            };
            if PLACES.iter().any(|place| name.to_bytes().starts_with(place)) {
                continue;
            }
            let length = lgetxattr(from, name, &mut self.attribute[..])?;
            let value = self.attribute.get(..length).unwrap_or_default();
            match lsetxattr(to, name, value, XattrFlags::empty()) {
                // As in docker: a file system without them shows none.
                Err(Errno::NOTSUP) => {
                    tracing::debug!(?to, ?name, "the file system of volumes has no such attribute")
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

/// A path by which calls reach a name in a directory that take no descriptor.
fn path_of(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<CString> {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    path.push(OsStr::from_bytes(name.to_bytes()));
    Ok(CString::new(path.into_os_string().into_vec())?)
}
