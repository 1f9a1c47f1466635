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

/// The guarded mount, views wherever they are mounted, and overlays on top of them. The run directory may hold
/// other people's mounts, so being below it is not enough.
fn is_ours(mount: &MountInfo, run: &Path, root: &Path) -> bool {
    let below = |path: &Path| {
        [run, root]
            .iter()
            .any(|directory| path.starts_with(directory) && path != *directory)
    };
    match mount.filesystem.as_str() {
        _ if mount.target == run.join("guarded") => true,
        // A metadata image whose path is too long for the kernel is given by its descriptor.
        "erofs" => below(&mount.source) || mount.source.starts_with("/proc/self/fd") && below(&mount.target),
        "overlay" => mount.super_options.split(',').any(|option| {
            let directories = option.split_once('=').map_or("", |(_, directories)| directories);
            directories
                .split(':')
                .any(|directory| below(Path::new(directory)))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use xebec_kernel::mount::parse_mountinfo;

    use super::*;

    #[test]
    fn only_our_own_mounts_are_stale() {
        let table = b"\
1 0 254:0 / /run/user rw - tmpfs tmpfs rw
2 0 254:0 /x/layers /run/guarded rw - ext4 /dev/vda rw
3 0 0:30 / /run/views/a ro - erofs /var/lib/xebec/views/a ro
4 0 0:30 / /mnt/image ro - erofs /var/lib/xebec/views/a ro
5 0 0:31 / /run/views/b ro - erofs /proc/self/fd/9 ro
6 0 0:32 / /mnt/other ro - erofs /proc/self/fd/9 ro
7 0 0:33 / /run/containerd/rootfs rw - overlay overlay rw,lowerdir=/var/lib/containerd/1:/var/lib/containerd/2
8 0 0:34 / /srv/box rw - overlay overlay rw,lowerdir+=/run/views/a,upperdir=/srv/upper,workdir=/srv/work
9 0 0:35 / /srv/box rw - overlay overlay rw,lowerdir=/somewhere,upperdir=/var/lib/xebec/containers/c/upper
10 0 0:36 / /run/elsewhere ro - erofs /var/lib/containerd/layer.erofs ro
";
        let mounts = parse_mountinfo(table).unwrap();
        let (run, root) = (Path::new("/run"), Path::new("/var/lib/xebec"));
        let ours: Vec<u64> = mounts
            .iter()
            .filter(|mount| is_ours(mount, run, root))
            .map(|mount| mount.id)
            .collect();
        assert_eq!(ours, [2, 3, 4, 5, 8, 9]);
    }
}
