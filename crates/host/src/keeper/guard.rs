//! The guarded mount: the cache directory, bound privately, with the one mark that makes the kernel ask.

use std::path::Path;

use tracing::{error, warn};
use xebec_kernel::fanotify::Group;
use xebec_kernel::mount::{bind_private, is_mounted, unmount_lazily};

use super::KeeperError;
use super::files::make_directory;
use crate::file::is_same;

/// More mounts than this are never stacked on one directory by accident.
const MAX_STACKED: usize = 64;

/// Binds `layers` to `mount` and marks that mount with a new group, before anyone can open a file through it.
///
/// A mount that a daemon left which died whole is kept and marked again at once: what was opened through it is
/// guarded again from then on, though it was not in between. Tells whether it was so.
pub(super) fn set_up(layers: &Path, mount: &Path) -> Result<(Group, bool), KeeperError> {
    make_directory(mount)?;
    let group = Group::new()?;
    if is_mounted(mount)? && is_same(layers, mount) {
        group.mark_mount(mount)?;
        error!(
            "{} is left from a daemon that was killed; it is guarded again, and what may have been read meanwhile is looked for",
            mount.display()
        );
        return Ok((group, true));
    }
    for _ in 0..MAX_STACKED {
        if !is_mounted(mount)? {
            break;
        }
        warn!("{} was mounted by somebody else; unmounting it", mount.display());
        unmount_lazily(mount)?;
    }
    bind_private(layers, mount)?;
    group.mark_mount(mount).inspect_err(|_| take_down(mount))?;
    Ok((group, false))
}

/// Binds and marks the mount for a group that was taken over, if somebody took the mount away meanwhile.
pub(super) fn restore(group: &Group, layers: &Path, mount: &Path) -> Result<(), KeeperError> {
    make_directory(mount)?;
    if is_mounted(mount)? && is_same(layers, mount) {
        return Ok(());
    }
    warn!("{} is not mounted any more; mounting it", mount.display());
    bind_private(layers, mount)?;
    Ok(group.mark_mount(mount)?)
}

/// Takes the mount out of the tree; lazily, since views of complete layers may stay mounted without a daemon, and
/// hold files of it open.
pub(super) fn take_down(mount: &Path) {
    if let Err(problem) = unmount_lazily(mount) {
        warn!("{problem}");
    }
}
