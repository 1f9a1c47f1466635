//! The guarded mount: the cache directory, bound privately, with the one mark that makes the kernel ask.

use std::path::Path;

use tracing::{error, warn};
use xebec_kernel::fanotify::{FanotifyError, Group};
use xebec_kernel::file::is_same;
use xebec_kernel::mount::{Top, bind_private, is_mounted};

use crate::error::KeeperError;
use crate::files::make_directory;

/// More mounts than this are never stacked on one directory by accident.
const MAX_STACKED: usize = 64;
/// How the kernel shows that the cache which is mounted has been deleted (`Documentation/filesystems/proc.rst`).
const DELETED: &str = "/layers//deleted";

/// Whether the mount there shows a cache that has been deleted since.
pub(crate) fn shows_deleted_cache(mount: &Path) -> bool {
    let top = Top::at(mount).ok().flatten();
    top.is_some_and(|top| is_deleted(&top))
}

fn is_deleted(top: &Top) -> bool {
    top.info().root.to_string_lossy().ends_with(DELETED)
}

/// Binds `layers` to `mount` and marks that mount with a new group, before anyone can open a file through it.
///
/// If keeper and worker of an earlier daemon died, their mount is kept and marked again at once. Files that were opened through it
/// are guarded again from then on, though they were not in between. Tells whether it was so.
pub(crate) fn set_up(layers: &Path, mount: &Path) -> Result<(Group, bool), KeeperError> {
    make_directory(mount)?;
    let group = Group::new()?;
    if is_mounted(mount)? && is_same(layers, mount) {
        group.mark_mount(mount)?;
        error!(
            "{} is left from a daemon that was killed; the keeper guards it again and looks for processes that may have read zeros",
            mount.display()
        );
        return Ok((group, true));
    }
    clear_left(mount)?;
    bind_private(layers, mount)?;
    if let Err(error) = group.mark_mount(mount) {
        let top = Top::at(mount).ok().flatten();
        let filesystem = top.map_or_else(|| "another".to_owned(), |top| top.info().filesystem.clone());
        take_down(layers, mount);
        return Err(not_marked(error, layers, filesystem));
    }
    Ok((group, false))
}

/// The error when the mount of the cache cannot be marked: most file systems raise no events before a read.
fn not_marked(error: FanotifyError, layers: &Path, filesystem: String) -> KeeperError {
    let unsupported = Some(rustix::io::Errno::OPNOTSUPP.raw_os_error());
    let is_unsupported =
        matches!(&error, FanotifyError::Mark { source, .. } if source.raw_os_error() == unsupported);
    match is_unsupported {
        true => KeeperError::FileSystem {
            root: layers.parent().unwrap_or(layers).to_owned(),
            filesystem,
        },
        false => KeeperError::Fanotify(error),
    }
}

/// Unmounts a deleted cache that an earlier daemon left there. Any other mount there is not the keeper's.
fn clear_left(mount: &Path) -> Result<(), KeeperError> {
    for _ in 0..MAX_STACKED {
        let Some(top) = Top::at(mount)? else { break };
        if !is_deleted(&top) {
            let info = top.info();
            return Err(KeeperError::Stranger {
                at: mount.to_owned(),
                filesystem: info.filesystem.clone(),
                origin: info
                    .source
                    .join(info.root.strip_prefix("/").unwrap_or(&info.root)),
            });
        }
        warn!(
            "{} shows a cache that was deleted; the keeper unmounts it",
            mount.display()
        );
        top.detach()?;
    }
    Ok(())
}

/// Binds and marks the mount for a group that was taken over, if somebody took the mount away meanwhile.
pub(crate) fn restore(group: &Group, layers: &Path, mount: &Path) -> Result<(), KeeperError> {
    make_directory(mount)?;
    if is_mounted(mount)? && is_same(layers, mount) {
        return Ok(());
    }
    clear_left(mount)?;
    warn!(
        "{} is not mounted any more; the keeper mounts it",
        mount.display()
    );
    bind_private(layers, mount)?;
    Ok(group.mark_mount(mount)?)
}

/// Takes the mount out of the tree; lazily, since views of complete layers may stay mounted without a daemon, and
/// hold files of it open.
/// A mount that is not the cache is not Xebec's, and stays.
pub(crate) fn take_down(layers: &Path, mount: &Path) {
    let taken = match Top::at(mount) {
        Ok(Some(top)) if is_same(layers, mount) => top.detach(),
        Ok(Some(_)) => return warn!("{} is not the cache; the keeper leaves it alone", mount.display()),
        Ok(None) => Ok(()),
        Err(problem) => Err(problem),
    };
    if let Err(problem) = taken {
        warn!("{problem}");
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_file_system_that_raises_no_events_is_named() {
        let said = |errno: Errno| {
            let error = FanotifyError::Mark {
                action: "guard the mount",
                target: "/run/x/guarded".to_owned(),
                source: io::Error::from(errno),
            };
            not_marked(error, Path::new("/r/layers"), "tmpfs".to_owned()).to_string()
        };
        let unsupported = said(Errno::OPNOTSUPP);
        assert!(
            unsupported.starts_with("the root directory /r is on tmpfs"),
            "{unsupported}"
        );
        assert!(unsupported.contains("ext4, xfs or btrfs"), "{unsupported}");
        let other = said(Errno::PERM);
        assert!(
            other.starts_with("cannot guard the mount /run/x/guarded: "),
            "{other}"
        );
    }
}
