//! The guarded mount: the cache directory, bound privately, with the one mark that makes the kernel ask.

use std::path::{Path, PathBuf};

use tracing::{error, warn};
use xebec_kernel::fanotify::Group;
use xebec_kernel::mount::{MountInfo, bind_private, is_mounted, mounts, unmount_lazily};

use super::{KeeperError, make_directory};

/// More mounts than this are never stacked on one directory by accident.
const MAX_STACKED: usize = 64;

/// The mount and its group. Dropping it takes the mount out of the tree, then closes the group.
#[derive(Debug)]
pub(super) struct Guard {
    group: Group,
    mount: PathBuf,
}

impl Guard {
    /// Binds `layers` to `mount`, and marks that mount before anyone can open a file through it.
    pub(super) fn set_up(layers: &Path, mount: &Path) -> Result<Guard, KeeperError> {
        make_directory(mount)?;
        for _ in 0..MAX_STACKED {
            if !is_mounted(mount)? {
                break;
            }
            warn!("{} was still mounted; unmounting it", mount.display());
            unmount_lazily(mount)?;
        }
        let group = Group::new()?;
        bind_private(layers, mount)?;
        let guard = Guard {
            group,
            mount: mount.to_owned(),
        };
        guard.group.mark_mount(mount)?;
        Ok(guard)
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Lazily: views of complete layers may stay mounted without a daemon, and hold files of it open.
        if let Err(problem) = unmount_lazily(&self.mount) {
            warn!("{problem}");
        }
    }
}

/// After a keeper that did not end in order: its group is gone, so views that it guarded read zeros where data
/// is missing. They are taken out of the tree, each with a message.
pub(super) fn clear_stale_mounts(run: &Path, root: &Path) -> Result<(), KeeperError> {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (run, root) = (canonical(run), canonical(root));
    // Children first: the table lists parents before what is mounted on them.
    for mount in mounts()?.iter().rev().filter(|mount| is_ours(mount, &run, &root)) {
        error!(
            "{} ({}) is left from a daemon that was killed, and reads from it may have seen zeros: \
             unmounting it; restart whatever still runs in it",
            mount.target.display(),
            mount.filesystem
        );
        if let Err(problem) = unmount_lazily(&mount.target) {
            error!("{problem}");
        }
    }
    Ok(())
}

/// Mounts below the run directory, views mounted elsewhere, and overlays on top of either.
fn is_ours(mount: &MountInfo, run: &Path, root: &Path) -> bool {
    let below =
        |path: &Path| (path.starts_with(run) && path != run) || path.starts_with(root) && path != root;
    match mount.filesystem.as_str() {
        _ if mount.target.starts_with(run) && mount.target != run => true,
        "erofs" => below(&mount.source),
        "overlay" => mount.super_options.split(',').any(|option| {
            let value = option.split_once('=').map_or("", |(_, value)| value);
            value.split(':').any(|path| below(Path::new(path)))
        }),
        _ => false,
    }
}
