//! Mounts of others below directories that Xebec removes are left, whichever part removes them: the cache, containerd's snapshots,
//! recordings, containers. And every tree that a container can make can be removed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::mount::{MountFlags, mount};
use xebec_cache::disk::{Disk, RealDisk};
use xebec_container::{Directories as ContainerDirectories, cleanup_stale};
use xebec_format::digest::Digest;
use xebec_recordings::recording_store::KeptRecordings;
use xebec_snapshotter::directories::{Directories, Looks};

use crate::isolation::isolated;

const LIMIT: Duration = Duration::from_secs(30);

/// Somebody's mount, with a file.
fn mount_at(path: &Path) {
    fs::create_dir_all(path).unwrap();
    mount("none", path, "tmpfs", MountFlags::empty(), c"").unwrap();
    fs::write(path.join("theirs"), "x").unwrap();
}

#[test]
fn the_cache_leaves_what_is_mounted() {
    isolated("removed::the_cache_leaves_what_is_mounted", LIMIT, || {
        let directory = tempfile::tempdir().unwrap();
        let layer = directory.path().join("layer");
        mount_at(&layer.join("mounted"));
        let error = RealDisk.remove_all(&layer).unwrap_err();
        assert!(layer.join("mounted/theirs").exists(), "it was emptied");
        assert!(error.to_string().contains("layer/mounted"), "{error}");
    });
}

#[test]
fn snapshots_leave_what_is_mounted() {
    isolated("removed::snapshots_leave_what_is_mounted", LIMIT, || {
        let directory = tempfile::tempdir().unwrap();
        let directories = Directories::open(directory.path()).unwrap();
        directories.create(1, true, Looks::DEFAULT).unwrap();
        mount_at(&directories.upper(1).join("mounted"));
        directories.remove(1).unwrap();
        directories.delete_removed();
        let out = fs::read_dir(directory.path().join("out")).unwrap();
        let left: Vec<_> = out.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(left[0].join("mounted/theirs").exists(), "it was emptied");
    });
}

#[test]
fn recordings_leave_what_is_mounted() {
    isolated("removed::recordings_leave_what_is_mounted", LIMIT, || {
        let directory = tempfile::tempdir().unwrap();
        let (image, name) = (Digest::of(b"image"), Digest::of(b"recording"));
        let mounted = directory
            .path()
            .join(image.hex())
            .join(name.hex())
            .join("mounted");
        mount_at(&mounted);
        let kept = KeptRecordings::new(directory.path().to_owned());
        let error = kept.forget(image).unwrap_err();
        assert!(mounted.join("theirs").exists(), "it was emptied");
        assert!(error.to_string().contains("unmount it first"), "{error}");
    });
}

#[test]
fn containers_leave_what_is_mounted() {
    isolated("removed::containers_leave_what_is_mounted", LIMIT, || {
        let directory = tempfile::tempdir().unwrap();
        let dirs = ContainerDirectories {
            state: directory.path().join("state"),
            run: directory.path().join("run"),
        };
        let layer = dirs.state.join("dead");
        fs::create_dir_all(layer.join("upper")).unwrap();
        fs::write(layer.join("remove"), "").unwrap();
        mount_at(&layer.join("work/mounted"));
        let error = cleanup_stale(&dirs).unwrap_err();
        assert!(layer.join("work/mounted/theirs").exists(), "it was emptied");
        assert!(layer.join("upper").exists(), "what is beside it went");
        assert!(error.to_string().contains("unmount it first"), "{error}");
    });
}

/// A container can make a tree that is deeper than this process may open files, or call itself.
#[test]
fn snapshots_of_any_depth_are_deleted() {
    isolated("removed::snapshots_of_any_depth_are_deleted", LIMIT, || {
        let directory = tempfile::tempdir().unwrap();
        // Not on a disk, which others may keep busy.
        mount("none", directory.path(), "tmpfs", MountFlags::empty(), c"").unwrap();
        let directories = Directories::open(directory.path()).unwrap();
        directories.create(1, true, Looks::DEFAULT).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = openat(CWD, directories.upper(1), flags, Mode::empty()).unwrap();
        for _ in 0..30_000 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        drop(at);
        // As the daemon does: else it ends for want of files before it ends for want of stack.
        xebec_kernel::process::raise_open_file_limit().unwrap();
        directories.remove(1).unwrap();
        directories.delete_removed();
        assert_eq!(fs::read_dir(directory.path().join("out")).unwrap().count(), 0);
    });
}
