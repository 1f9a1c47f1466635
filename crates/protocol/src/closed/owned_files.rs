//! Files that belong to this user, and that no other user may change.

use std::path::Path;

use rustix::fs::{RawMode, Stat};

use super::error::{ClosedError, OTHERS_WRITE};

/// Refuses a file or directory of another user.
pub(super) fn check_owner(status: &Stat, path: &Path) -> Result<(), ClosedError> {
    let own = rustix::process::geteuid().as_raw();
    match status.st_uid == own {
        true => Ok(()),
        false => Err(ClosedError::Owner {
            path: path.to_owned(),
            owner: status.st_uid,
            own,
        }),
    }
}

/// Refuses a file that others may write to.
pub(super) fn check_mode(mode: RawMode, path: &Path) -> Result<(), ClosedError> {
    match mode & OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(ClosedError::Writable {
            path: path.to_owned(),
            mode: mode & 0o7777,
        }),
    }
}
