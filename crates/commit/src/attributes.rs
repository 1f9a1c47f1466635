//! Extended attributes of a file of an upper directory: those that the container's files have, and overlayfs' own, by which it notes
//! deletions.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{getxattr, listxattr};
use rustix::io::Errno;

use crate::error::CommitError;

/// Longest list of names, and longest value, that Linux gives (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MOST: usize = 64 << 10;
/// Most bytes of names and values of one entry: what the index of a layer takes (`TarLimits::XATTRS` of the crate `index`).
pub(crate) const MOST_OF_ENTRY: usize = 192 << 10;
/// The names of overlayfs' own attributes begin so.
const OVERLAY: &[u8] = b"trusted.overlay.";
/// So begin the names of attributes by which other runtimes, without root, note deletions, owners and permissions. Xebec mounts overlays
/// without `userxattr`, so here the container sets them; in a layer they would steer such a runtime.
const OF_RUNTIMES: [&[u8]; 3] = [b"user.overlay.", b"user.fuseoverlayfs.", b"user.containers."];

/// The extended attributes of one file.
#[derive(Debug, Default)]
pub(crate) struct Attributes {
    /// Those of the container, by name.
    pub(crate) own: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the container has others, which no layer can have.
    pub(crate) has_others: bool,
    /// Whether lower directories of this name do not show through.
    pub(crate) is_opaque: bool,
    /// Whether files with [`Self::is_whiteout`] may be in this directory.
    pub(crate) may_have_whiteouts: bool,
    /// Whether the file stands for a deletion. It counts in a directory that says so.
    pub(crate) is_whiteout: bool,
}

/// Reads the attributes of an open file (`O_PATH` is enough). `shown` is its path for messages.
pub(crate) fn read(file: BorrowedFd<'_>, shown: &Path) -> Result<Attributes, CommitError> {
    // A descriptor that opens nothing has no other way to them. The link leads to the file itself, also if that is a link.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let names = list(&path).map_err(CommitError::file("list the extended attributes of", shown))?;
    let mut found = Attributes::default();
    let mut size = 0;
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let value = || get(&path, name).map_err(CommitError::file("read an extended attribute of", shown));
        if let Some(rest) = name.strip_prefix(OVERLAY) {
            found.note_overlay(rest, value, shown)?;
        } else if is_of_container(name) {
            // A PAX record has no name with `=`.
            if name.contains(&b'=') || OF_RUNTIMES.iter().any(|&beginning| name.starts_with(beginning)) {
                found.has_others = true;
                continue;
            }
            // It was removed meanwhile.
            let Some(value) = value()? else { continue };
            size += name.len() + value.len();
            found.own.push((name.to_vec(), value));
        }
    }
    if size > MOST_OF_ENTRY {
        return Err(CommitError::Attributes {
            path: shown.to_owned(),
            size,
            limit: MOST_OF_ENTRY,
        });
    }
    found.own.sort();
    Ok(found)
}

impl Attributes {
    fn note_overlay(
        &mut self,
        name: &[u8],
        value: impl FnOnce() -> Result<Option<Vec<u8>>, CommitError>,
        shown: &Path,
    ) -> Result<(), CommitError> {
        let feature = |attribute| CommitError::Feature {
            path: shown.to_owned(),
            attribute,
        };
        match name {
            b"opaque" => match value()?.as_deref() {
                Some(b"y") => self.is_opaque = true,
                Some(b"x") => self.may_have_whiteouts = true,
                _ => {}
            },
            b"whiteout" => self.is_whiteout = true,
            b"redirect" => return Err(feature("trusted.overlay.redirect")),
            b"metacopy" => return Err(feature("trusted.overlay.metacopy")),
            // Where a copy came from, and numbers of links: facts about this host's files.
            _ => {}
        }
        Ok(())
    }
}

/// Whether an attribute belongs to the container. Labels of SELinux and hashes of IMA and EVM are those of this host; `trusted.*` steers
/// programs of the host, and what unpacks layers passes over it.
fn is_of_container(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || matches!(
            name,
            b"security.capability" | b"system.posix_acl_access" | b"system.posix_acl_default"
        )
}

fn list(path: &str) -> io::Result<Vec<u8>> {
    let mut names = vec![0; 1 << 10];
    let read = match listxattr(path, &mut names) {
        Err(Errno::RANGE) => {
            names.resize(MOST, 0);
            listxattr(path, &mut names)
        }
        read => read,
    };
    match read {
        Ok(length) => names.truncate(length),
        Err(Errno::NOTSUP) => names.clear(),
        Err(error) => return Err(error.into()),
    }
    Ok(names)
}

/// `None` if it is not there any more.
fn get(path: &str, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; 1 << 10];
    let read = match getxattr(path, name, &mut value) {
        Err(Errno::RANGE) => {
            value.resize(MOST, 0);
            getxattr(path, name, &mut value)
        }
        read => read,
    };
    match read {
        Ok(length) => value.truncate(length),
        Err(Errno::NODATA) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    Ok(Some(value))
}
