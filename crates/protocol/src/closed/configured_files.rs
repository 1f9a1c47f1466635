//! Files that a user keeps in the root directory because Xebec's configuration names them: keys, certificates.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use serde::Deserialize;
use xebec_trust::{MAX_TRUST_FILE, TrustFile};

use super::error::{ClosedError, failed};
use super::owned_files::{check_mode, check_owner};
use super::parent_directories;

/// The part of `registries.toml` that names files; other errors in it are reported by the code that reads it whole.
#[derive(Deserialize)]
struct Registries {
    #[serde(default)]
    ca_files: Vec<String>,
}

/// The files below a directory that its `trust.toml` and its `registries.toml` name, by their paths there. None if such a file
/// belongs to another user or cannot be read: then nothing in it counts.
pub(super) fn files(directory: &OwnedFd, path: &Path) -> BTreeSet<PathBuf> {
    let keys = read(directory, "trust.toml").and_then(|text| TrustFile::parse(&text).ok());
    let keys = keys.into_iter().flat_map(|file| file.keys).map(|key| key.file);
    let registries = read(directory, "registries.toml").and_then(|text| String::from_utf8(text).ok());
    let registries = registries.and_then(|text| toml::from_str::<Registries>(&text).ok());
    let certificates = registries.into_iter().flat_map(|file| file.ca_files);
    keys.chain(certificates)
        .filter_map(|file| below(path, Path::new(&file)))
        .collect()
}

/// A file's path below a directory, if it is there.
fn below(directory: &Path, file: &Path) -> Option<PathBuf> {
    let below = match file.is_absolute() {
        true => file.strip_prefix(directory).ok()?,
        false => file,
    };
    let parts = below.components().filter(|part| *part != Component::CurDir);
    let below: PathBuf = parts.collect();
    first_part(&below).is_some().then_some(below)
}

/// The name in a directory by which a path below it begins.
pub(super) fn first_part(below: &Path) -> Option<&str> {
    match below.components().next()? {
        Component::Normal(name) => name.to_str(),
        _ => None,
    }
}

/// Refuses a file that others could change or replace: each part of its path is looked at, and where a link leads elsewhere, the
/// parts of that path too.
pub(super) fn check(directory: &OwnedFd, path: &Path, file: &Path) -> Result<(), ClosedError> {
    let mut part = PathBuf::new();
    for component in file.components() {
        part.push(component);
        let whole = path.join(&part);
        let status = match statat(directory, &part, AtFlags::SYMLINK_NOFOLLOW) {
            // The code that reads the file reports that it is missing.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            status => status.map_err(|error| failed("look at", &whole)(error.into()))?,
        };
        check_owner(&status, &whole)?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::Symlink => return check_elsewhere(&path.join(file)),
            _ => check_mode(status.st_mode, &whole)?,
        }
    }
    Ok(())
}

/// The same for a file that a link leads to: it is where it can be root's, too.
fn check_elsewhere(file: &Path) -> Result<(), ClosedError> {
    parent_directories::check(file).map_err(|error| match error {
        ClosedError::Above { path, above, why } => ClosedError::Named { path, above, why },
        error => error,
    })?;
    let Ok(status) = std::fs::metadata(file) else {
        return Ok(());
    };
    let own = rustix::process::geteuid().as_raw();
    if status.uid() != 0 && status.uid() != own {
        return Err(ClosedError::Owner {
            path: file.to_owned(),
            owner: status.uid(),
            own,
        });
    }
    check_mode(status.mode(), file)
}

fn read(directory: &OwnedFd, name: &str) -> Option<Vec<u8>> {
    // A FIFO would be waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory.as_fd(), name, flags, Mode::empty()).ok()?;
    let status = fstat(&file).ok()?;
    let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
    if !is_file || status.st_uid != rustix::process::geteuid().as_raw() {
        return None;
    }
    let mut text = Vec::new();
    let limit = MAX_TRUST_FILE as u64 + 1;
    File::from(file).take(limit).read_to_end(&mut text).ok()?;
    (text.len() <= MAX_TRUST_FILE).then_some(text)
}
