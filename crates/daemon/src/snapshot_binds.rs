//! Views and directories that are bound once more for snapshots: how they are known, and how all of them are taken away.

use std::path::Path;

use tracing::warn;
use xebec_kernel::file::is_same;
use xebec_kernel::mount::{self, Top};
use xebec_protocol::paths::Paths;
use xebec_snapshotter::mapped::Mapped;

/// Takes away all that is bound for snapshots: views are to go under their users.
pub(crate) fn unbind_all(paths: &Paths) {
    let mounts = mount::mounts().unwrap_or_else(|error| {
        warn!("{error}");
        Vec::new()
    });
    for mount in mounts.iter().rev() {
        let target = &mount.target;
        if !is_bound_here(paths, target) {
            continue;
        }
        let unbound = match Top::still(mount) {
            Ok(Some(top)) if is_view_or_uppers(&top, target) => top.detach(),
            Ok(_) => {
                warn!(
                    "Xebec did not mount what is at {}, and leaves it alone",
                    target.display()
                );
                continue;
            }
            Err(error) => Err(error),
        };
        if let Err(error) = unbound {
            warn!("{error}");
            continue;
        }
        // A process that still mounts the layers of a container must not find the directory empty.
        let _ = std::fs::remove_dir(target);
    }
}

/// Whether a mount at `SNAPSHOTS/m/ID/NAME` is one that Xebec binds there: a view, or the directory that holds the unpacked layers.
pub(crate) fn is_view_or_uppers(top: &Top, at: &Path) -> bool {
    let info = top.info();
    let snapshots = at.ancestors().nth(3).unwrap_or(at);
    let root = snapshots.parent().unwrap_or(snapshots);
    // A metadata image whose path is too long for the kernel is given by its descriptor.
    let is_own = info.source.starts_with(root.join("views")) || info.source.starts_with("/proc/self/fd");
    let is_view = info.filesystem == "erofs" && info.root == Path::new("/") && is_own;
    is_view || is_same(at, &snapshots.join("u"))
}

/// Whether something mounted there was bound for a snapshot. Other mounts below the snapshots are the administrator's, such as a disk
/// of their own.
fn is_bound_here(paths: &Paths, target: &Path) -> bool {
    let places = Mapped::places(&paths.snapshots());
    target != places && target.starts_with(&places)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn what_others_mounted_stays() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths::create(&directory.path().join("root"), &directory.path().join("run")).unwrap();
        let is_bound = |target: &str| is_bound_here(&paths, &paths.root().join(target));
        assert!(is_bound("snapshots/m/1/v"));
        assert!(is_bound("snapshots/m/1/u"));
        for other in ["", "snapshots"] {
            assert!(!is_bound(other), "{other:?}");
        }
        for other in ["u", "u/1", "w", "out", "m", "more/1"] {
            assert!(!is_bound(&format!("snapshots/{other}")), "{other:?}");
        }
    }
}
