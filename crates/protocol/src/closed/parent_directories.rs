//! Whether another user could put another directory in the place of one of Xebec's.
//!
//! The daemon and each command find their files by name. A user who may rename something on the way there could put a directory of
//! their own in its place while the daemon works. That user could then read the files that Xebec writes, and decide on those that
//! it reads. Permissions of the directory itself do not help against that. So only root and this process's user may change a
//! directory on the way, or a link by which the way leads (as sshd's `StrictModes` has it for keys). In a directory in which
//! everybody may make files but not rename those of others (the sticky bit, as of `/tmp`), the owner of each file on the way
//! counts.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use super::{ClosedError, OTHERS_WRITE, failed};

/// Most links on the way: as many as the kernel follows (path_resolution(7)).
const LINKS: usize = 40;
/// `S_ISVTX`.
const STICKY: u32 = 0o1000;

/// Looks at all that is above a directory, as far as it is there.
///
/// # Errors
/// [`ClosedError::Above`] with the directory or link that others could change, and other [`ClosedError`]s when one cannot be looked at.
pub(super) fn check(path: &Path) -> Result<(), ClosedError> {
    let whole = std::path::absolute(path).map_err(failed("find", path))?;
    let (mut at, mut left) = (PathBuf::from("/"), Vec::new());
    push(&mut left, &whole);
    let mut links = 0;
    while let Some(part) = left.pop() {
        let there = look(&at)?;
        let next = at.join(&part);
        check_directory(path, &at, &there)?;
        let found = match fs::symlink_metadata(&next) {
            // This process makes the missing directories.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(failed("look at", &next))?,
        };
        if FileType::from_raw_mode(found.mode()) != FileType::Symlink {
            at = match part == ".." {
                true => at.parent().map_or_else(|| at.clone(), Path::to_owned),
                false => next,
            };
            continue;
        }
        check_owner(path, &next, &found)?;
        links += 1;
        if links > LINKS {
            let error = io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error());
            return Err(failed("follow the links of", path)(error));
        }
        let target = fs::read_link(&next).map_err(failed("read the link", &next))?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        push(&mut left, &target);
    }
    Ok(())
}

/// Puts the parts of a path before the rest of the way, the first one last.
fn push(left: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    left.extend(parts);
}

fn look(path: &Path) -> Result<Metadata, ClosedError> {
    fs::symlink_metadata(path).map_err(failed("look at", path))
}

fn check_directory(path: &Path, above: &Path, status: &Metadata) -> Result<(), ClosedError> {
    check_owner(path, above, status)?;
    let mode = status.mode() & 0o7777;
    match mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        true => Err(refused(
            path,
            above,
            format!("others may write to (mode {mode:04o})"),
        )),
        false => Ok(()),
    }
}

fn check_owner(path: &Path, above: &Path, status: &Metadata) -> Result<(), ClosedError> {
    let own = rustix::process::geteuid().as_raw();
    match status.uid() {
        owner if owner == 0 || owner == own => Ok(()),
        owner => Err(refused(path, above, format!("is user {owner}'s"))),
    }
}

fn refused(path: &Path, above: &Path, why: String) -> ClosedError {
    ClosedError::Above {
        path: path.to_owned(),
        above: above.to_owned(),
        why,
    }
}
