//! The directory of another registry, read without trust in it: nothing is opened through a symbolic link, by `..`, or outside of it, and
//! nothing but regular files is read.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, openat, openat2, unlinkat};

/// A link file has an algorithm, a colon and digits.
const MAX_LINK: u64 = 1024;

/// See the module.
pub(super) struct Source {
    top: OwnedFd,
    shown: PathBuf,
}

impl Source {
    /// Opens the directory that has `repositories` and `blobs`: `directory` itself, or what distribution makes below it.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let given = openat(CWD, directory, flags, Mode::empty())?;
        for below in ["docker/registry/v2", "registry/v2", "v2", "."] {
            let opened = openat2(
                &given,
                below,
                flags,
                Mode::empty(),
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            );
            let Ok(top) = opened else { continue };
            let source = Self {
                top,
                shown: directory.join(below),
            };
            if source.open_at("repositories", flags).is_ok() && source.open_at("blobs", flags).is_ok() {
                return Ok(source);
            }
        }
        let advice = "it has no docker/registry/v2 with blobs and repositories; name the rootdirectory of the other registry's storage";
        Err(io::Error::other(advice))
    }

    /// The path of something in it, for people.
    pub(super) fn shown(&self, path: &str) -> String {
        self.shown.join(path).display().to_string()
    }

    /// The file system that it is on.
    pub(super) fn device(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.top)?.st_dev)
    }

    fn open_at(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        Ok(openat2(
            &self.top,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )?)
    }

    /// The names in a directory, in order; none if it is not there.
    pub(super) fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let opened = match self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(opened.as_fd())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Whether a path leads to a directory, and not to a link to one.
    pub(super) fn is_directory(&self, path: &str) -> io::Result<bool> {
        match self.open_at(path, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens a regular file.
    pub(super) fn file(&self, path: &str) -> io::Result<File> {
        // A FIFO would wait for its other end.
        let file = File::from(self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it is no regular file")),
        }
    }

    /// A small file, and when it was written, in milliseconds since 1970.
    pub(super) fn read(&self, path: &str, limit: u64) -> io::Result<(Vec<u8>, u64)> {
        let file = self.file(path)?;
        let metadata = file.metadata()?;
        if metadata.len() > limit {
            return Err(io::Error::other(format!(
                "it has {} bytes, and {limit} are read at most",
                metadata.len()
            )));
        }
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes)?;
        let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
        let written = u64::try_from(
            seconds
                .saturating_mul(1000)
                .saturating_add(nanoseconds / 1_000_000),
        );
        Ok((bytes, written.unwrap_or(0)))
    }

    /// The digest that a link file names, and when it was written.
    pub(super) fn link(&self, path: &str) -> io::Result<(String, u64)> {
        let (bytes, written) = self.read(path, MAX_LINK)?;
        Ok((String::from_utf8_lossy(&bytes).trim().to_owned(), written))
    }

    /// Removes a file that has become an object of the store.
    pub(super) fn remove(&self, directory: &str, name: &str) -> io::Result<()> {
        let directory = self.open_at(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        match unlinkat(&directory, name, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => Ok(()),
            removed => Ok(removed?),
        }
    }
}

/// Why something could not be read, for people.
pub(super) fn said(error: &io::Error) -> String {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOENT) => "it is missing".to_owned(),
        Some(rustix::io::Errno::LOOP) => {
            "it is a symbolic link, or is reached by one, and those are not followed".to_owned()
        }
        Some(rustix::io::Errno::XDEV) => "it leads out of the directory".to_owned(),
        _ => error.to_string(),
    }
}
