//! Copies a directory with all that is in it: owners, modes, times, extended attributes, links and devices.
//!
//! Neither side is trusted to stay what it is, so each directory is opened by its path below the top one,
//! through no link and onto no other mount. Runs of zeros become holes: a file may be far larger than what is
//! in it.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
    chmodat, chownat, lgetxattr, linkat, llistxattr, lsetxattr, mkdirat, mknodat, openat, openat2,
    readlinkat, statat, symlinkat, utimensat,
};
use rustix::io::Errno;

/// How much is read at a time.
const CHUNK: usize = 256 << 10;

/// A run of zeros of this length becomes a hole.
const BLOCK: usize = 4096;

/// The largest list of attributes, and the largest attribute (`xattr(7)`).
const ATTRIBUTE_LIMIT: usize = 64 << 10;

/// Attributes that belong to where a file is: the label of the container's overlay, and overlayfs's own.
const PLACES: [&[u8]; 2] = [b"security.selinux", b"trusted.overlay."];

/// Copies what is in `from`, and what `from` is itself, into `to`, which is empty. `go_on` is asked often.
pub(super) fn copy_tree(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    go_on: &mut dyn FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let copy = Copy {
        from,
        to,
        linked: HashMap::new(),
        buffer: vec![0; CHUNK],
        attribute: vec![0; ATTRIBUTE_LIMIT],
        go_on,
    };
    copy.run()
}

struct Copy<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    /// Where files with several names were copied to, by their numbers.
    linked: HashMap<u64, PathBuf>,
    buffer: Vec<u8>,
    attribute: Vec<u8>,
    go_on: &'a mut dyn FnMut() -> io::Result<()>,
}

impl Copy<'_> {
    fn run(mut self) -> io::Result<()> {
        let mut left = vec![PathBuf::from(".")];
        let mut directories = Vec::new();
        while let Some(path) = left.pop() {
            let (from, to) = (open_below(self.from, &path)?, open_below(self.to, &path)?);
            for entry in Dir::read_from(&from)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                (self.go_on)()?;
                let below = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
                if self.copy(from.as_fd(), to.as_fd(), name, &below)? {
                    left.push(below);
                }
            }
            directories.push(path);
        }
        // From below, so that nothing is added to one after its time is set, and each can be entered.
        for path in directories.iter().rev() {
            let (from, to) = (open_below(self.from, path)?, open_below(self.to, path)?);
            let status = statat(&from, c".", AtFlags::SYMLINK_NOFOLLOW)?;
            self.dress(from.as_fd(), to.as_fd(), c".", &status)?;
        }
        Ok(())
    }

    /// Copies one name. Returns whether it is a directory, which is empty yet.
    fn copy(
        &mut self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
        path: &Path,
    ) -> io::Result<bool> {
        let status = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(status.st_mode);
        if kind == FileType::Directory {
            mkdirat(to, name, Mode::RWXU)?;
            return Ok(true);
        }
        if status.st_nlink > 1 {
            if let Some(first) = self.linked.get(&status.st_ino) {
                linkat(self.to, first.as_path(), to, name, AtFlags::empty())?;
                return Ok(false);
            }
            self.linked.insert(status.st_ino, path.to_owned());
        }
        match kind {
            FileType::RegularFile => self.copy_contents(from, to, name, &status)?,
            FileType::Symlink => symlinkat(readlinkat(from, name, Vec::new())?, to, name)?,
            kind => mknodat(to, name, kind, Mode::RUSR, status.st_rdev)?,
        }
        self.dress(from, to, name, &status)?;
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

    /// Gives a copy the owner, the attributes, the mode and the times of what it is a copy of.
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

/// Opens a directory below another one, to list it.
pub(super) fn open_below(top: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(openat2(top, path, flags, Mode::empty(), resolve)?)
}

/// A path by which calls reach a name in a directory that take no descriptor.
pub(super) fn path_of(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<CString> {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    path.push(std::ffi::OsStr::from_bytes(name.to_bytes()));
    Ok(CString::new(path.into_os_string().into_vec())?)
}
