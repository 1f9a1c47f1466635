//! Paths below a directory that is not trusted.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// How often a lookup is repeated if the kernel saw a rename in the directory meanwhile (`openat2(2)`,
/// `EAGAIN`).
const ATTEMPTS: usize = 16;

/// Opens `path` as a process would whose root directory is `root`: absolute links and `..` do not lead out of
/// it, and links of `/proc` to open files are refused.
///
/// The descriptor (`O_PATH`) identifies the file and gives no access to its contents, so nothing happens to a
/// device or a FIFO.
///
/// # Errors
/// As for `open(2)`: `NotFound` if there is no such file, and other errors of the kernel.
pub fn open_in_root(root: &Path, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
    let root = openat(CWD, root, flags, Mode::empty())?;
    open_in_root_at(root.as_fd(), path, LastLink::Follow)
}

/// The way to open a link that is the last part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastLink {
    /// The file to which it leads is opened.
    Follow,
    /// The link itself is opened.
    Open,
}

/// The same as [`open_in_root`], for a root directory that is open.
///
/// # Errors
/// The same.
pub fn open_in_root_at(root: BorrowedFd<'_>, path: &Path, last: LastLink) -> io::Result<OwnedFd> {
    // `IN_ROOT` refuses links of /proc today, and may not later (openat2(2)).
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    open_resolved(root, path, last, resolve)
}

/// Opens `path` below the directory `above`. No part of the path may be a link, and none may lead upwards. The
/// descriptor is as for [`open_in_root`].
///
/// # Errors
/// The same; `ELOOP` if a part of the path is a link.
pub fn open_beneath(above: BorrowedFd<'_>, path: &Path) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    open_resolved(above, path, LastLink::Follow, resolve)
}

/// Whether something is mounted on `name` in an open directory, in the mount namespace of that directory.
///
/// # Errors
/// The error of the kernel, other than that there is no such file.
pub fn is_mount_point(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    match open_resolved(directory, Path::new(name), LastLink::Open, resolve) {
        Ok(_) => Ok(false),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::XDEV) => Ok(true),
            Some(Errno::NOENT) => Ok(false),
            _ => Err(error),
        },
    }
}

fn open_resolved(
    above: BorrowedFd<'_>,
    path: &Path,
    last: LastLink,
    resolve: ResolveFlags,
) -> io::Result<OwnedFd> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if last == LastLink::Open {
        flags |= OFlags::NOFOLLOW;
    }
    let mut outcome = Err(Errno::AGAIN);
    for _ in 0..ATTEMPTS {
        outcome = openat2(above, path, flags, Mode::empty(), resolve);
        if outcome.as_ref().err() != Some(&Errno::AGAIN) {
            break;
        }
    }
    Ok(outcome?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn links_do_not_lead_out_of_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("below")).unwrap();
        fs::write(directory.path().join("file"), "outside").unwrap();
        fs::write(root.join("file"), "inside").unwrap();
        symlink("/file", root.join("absolute")).unwrap();
        symlink("../../file", root.join("below/relative")).unwrap();
        let inside = fs::metadata(root.join("file")).unwrap().ino();
        for path in [
            "file",
            "/file",
            "../file",
            "absolute",
            "below/relative",
            "below/../../../file",
        ] {
            let opened = open_in_root(&root, Path::new(path)).unwrap();
            assert_eq!(rustix::fs::fstat(&opened).unwrap().st_ino, inside, "{path}");
        }
        let missing = open_in_root(&root, Path::new("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(open_in_root(&root.join("file"), Path::new("x")).is_err());
        let opened = File::open(&root).unwrap();
        let link = open_in_root_at(opened.as_fd(), Path::new("/absolute"), LastLink::Open).unwrap();
        let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&link).unwrap().st_mode);
        assert_eq!(kind, rustix::fs::FileType::Symlink);
        for path in ["absolute", "below/relative", "../file", "/file", "below/../file"] {
            let beneath = open_beneath(opened.as_fd(), Path::new(path));
            assert_eq!(beneath.is_ok(), path == "below/../file", "{path}");
        }
        let magic = open_in_root(Path::new("/"), Path::new("proc/self/root/proc"));
        assert!(magic.is_err(), "a link of /proc leads anywhere");
    }

    #[test]
    fn a_mount_point_is_told_from_other_names() {
        let top = File::open("/").unwrap();
        assert!(is_mount_point(top.as_fd(), OsStr::new("proc")).unwrap());
        assert!(!is_mount_point(top.as_fd(), OsStr::new("etc")).unwrap());
        assert!(!is_mount_point(top.as_fd(), OsStr::new("no such name")).unwrap());
    }
}
