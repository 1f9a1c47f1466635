//! Finding the source and the destination of a copy.
//!
//! The rules are docker's, which are those of `cp -a`. A `/` at the end of a path means a directory, and
//! `/.` the contents of one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;
use xebec_kernel::path::{LastLink, open_in_root_at};

use super::error::CopyError;

/// How many links a destination may lead through; the kernel's own limit.
const LINKS: usize = 40;

/// Where a path begins.
pub(super) enum Root<'a> {
    /// The host, as this process sees it.
    Host,
    /// The root directory of a container, and its name.
    Within(BorrowedFd<'a>, &'a str),
}

impl Root<'_> {
    /// A path as the user wrote it.
    pub(super) fn label(&self, path: &Path) -> String {
        match self {
            Self::Host => path.display().to_string(),
            Self::Within(_, name) => format!("{name}:{}", path.display()),
        }
    }

    /// Opens a path (`O_PATH`). In a container, nothing leads out of its root.
    fn open(&self, path: &Path, last: LastLink) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        match self {
            Self::Within(root, _) => open_in_root_at(*root, path, last),
            Self::Host => {
                let mut flags = OFlags::PATH | OFlags::CLOEXEC;
                if last == LastLink::Open {
                    flags |= OFlags::NOFOLLOW;
                }
                Ok(openat(CWD, path, flags, Mode::empty())?)
            }
        }
    }
}

/// A path as the user wrote it.
struct Spelled {
    /// Without slashes at its end, unless it is `/`.
    path: PathBuf,
    /// The last part, unless the path means a directory's contents.
    name: Option<OsString>,
    /// Whether it can only mean a directory.
    must_be_directory: bool,
}

fn spelled(path: &Path) -> Spelled {
    let bytes = path.as_os_str().as_bytes();
    let length = bytes
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(0, |last| last + 1);
    let trimmed = bytes.get(..length).unwrap_or_default();
    let last = trimmed.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let is_contents = matches!(last, b"" | b"." | b"..");
    let path = if trimmed.is_empty() && !bytes.is_empty() {
        b"/"
    } else {
        trimmed
    };
    Spelled {
        path: PathBuf::from(OsStr::from_bytes(path)),
        name: (!is_contents).then(|| OsStr::from_bytes(last).to_owned()),
        must_be_directory: is_contents || length < bytes.len(),
    }
}

/// The file, directory or link that is copied.
pub(super) struct Source {
    /// Opened with `O_PATH`; perhaps a link.
    pub(super) opened: OwnedFd,
    /// The name that it has in a directory into which it is copied. `None` if its contents are copied.
    pub(super) name: Option<OsString>,
    pub(super) is_directory: bool,
    /// As the user wrote it.
    pub(super) label: String,
}

impl Source {
    pub(super) fn open(root: &Root<'_>, path: &Path, follow_link: bool) -> Result<Self, CopyError> {
        let label = root.label(path);
        let Spelled {
            path,
            name,
            must_be_directory,
        } = spelled(path);
        let last = match follow_link || must_be_directory {
            true => LastLink::Follow,
            false => LastLink::Open,
        };
        let opened = root
            .open(&path, last)
            .map_err(|error| not_opened(error, &label))?;
        let is_directory = kind(&opened, &label)? == FileType::Directory;
        if must_be_directory && !is_directory {
            return Err(CopyError::NotADirectory(label));
        }
        Ok(Self {
            opened,
            name,
            is_directory,
            label,
        })
    }
}

/// Where something is copied to.
pub(super) enum Destination {
    /// A directory that exists.
    Directory(OwnedFd),
    /// A name in a directory.
    Name {
        directory: OwnedFd,
        name: OsString,
        /// Whether it is there. Then it is no directory.
        exists: bool,
        /// Whether the user wrote it as a directory.
        must_be_directory: bool,
    },
}

impl Destination {
    /// Finds the destination. Links are followed, within the root.
    pub(super) fn find(root: &Root<'_>, wanted: &Path) -> Result<Self, CopyError> {
        let label = root.label(wanted);
        let Spelled {
            mut path,
            name,
            must_be_directory,
        } = spelled(wanted);
        let mut is_link = false;
        for _ in 0..LINKS {
            let opened = match root.open(&path, LastLink::Open) {
                Ok(opened) => opened,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if is_link {
                        return Err(CopyError::DanglingLink(label));
                    }
                    if name.is_none() {
                        return Err(CopyError::NoDirectory(label));
                    }
                    return Self::name(root, &path, false, must_be_directory, &label);
                }
                Err(error) => return Err(not_opened(error, &label)),
            };
            match kind(&opened, &label)? {
                FileType::Directory => return Ok(Self::Directory(opened)),
                FileType::Symlink => {
                    let target = readlinkat(&opened, "", Vec::new());
                    let target = target.map_err(CopyError::file("read the link", &path))?;
                    let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                    path = path.parent().unwrap_or(Path::new("")).join(target);
                    is_link = true;
                }
                _ if must_be_directory => return Err(CopyError::NotADirectory(label)),
                _ => return Self::name(root, &path, true, false, &label),
            }
        }
        Err(CopyError::file("find", wanted)(Errno::LOOP))
    }

    fn name(
        root: &Root<'_>,
        path: &Path,
        exists: bool,
        must_be_directory: bool,
        label: &str,
    ) -> Result<Self, CopyError> {
        let no_directory = || CopyError::NoDirectory(label.to_owned());
        let name = path.file_name().ok_or_else(no_directory)?.to_owned();
        let above = path.parent().unwrap_or(Path::new(""));
        let directory = match root.open(above, LastLink::Follow) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_directory()),
            opened => opened.map_err(|error| not_opened(error, label))?,
        };
        Ok(Self::Name {
            directory,
            name,
            exists,
            must_be_directory,
        })
    }
}

fn not_opened(error: io::Error, label: &str) -> CopyError {
    match error.kind() {
        io::ErrorKind::NotFound => CopyError::Missing(label.to_owned()),
        _ => CopyError::file("open", Path::new(label))(error),
    }
}

fn kind(opened: &OwnedFd, label: &str) -> Result<FileType, CopyError> {
    let status = fstat(opened).map_err(CopyError::file("look at", Path::new(label)))?;
    Ok(FileType::from_raw_mode(status.st_mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_path_tells_what_it_means() {
        for (text, path, name, must_be_directory) in [
            ("a", "a", Some("a"), false),
            ("/a/b", "/a/b", Some("b"), false),
            ("a//", "a", Some("a"), true),
            ("a/.", "a/.", None, true),
            ("a/./", "a/.", None, true),
            (".", ".", None, true),
            ("a/..", "a/..", None, true),
            ("/", "/", None, true),
            ("///", "/", None, true),
            ("", "", None, true),
            ("a/...", "a/...", Some("..."), false),
        ] {
            let found = spelled(Path::new(text));
            assert_eq!(found.path, Path::new(path), "{text:?}");
            assert_eq!(found.name.as_deref(), name.map(OsStr::new), "{text:?}");
            assert_eq!(found.must_be_directory, must_be_directory, "{text:?}");
        }
    }
}
