//! Trees are removed whole, whatever their shape, and mounts in them are left.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::isolation::isolated;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use xebec_kernel::mount::is_mounted;
use xebec_kernel::remove::remove_tree;

#[test]
fn all_kinds_of_files_go_and_what_links_lead_to_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (tree, outside) = (directory.path().join("tree"), directory.path().join("outside"));
    fs::create_dir_all(outside.join("kept")).unwrap();
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    for number in 0..3000 {
        fs::write(tree.join("a/b").join(number.to_string()), "x").unwrap();
    }
    symlink(&outside, tree.join("a/link")).unwrap();
    symlink("nowhere", tree.join("a/dangling")).unwrap();
    fs::hard_link(tree.join("a/b/7"), outside.join("7")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap());
    fs::create_dir(tree.join(".removed-0")).unwrap();
    remove_tree(&tree).unwrap();
    assert!(!tree.exists() && outside.join("kept").exists() && outside.join("7").exists());
    assert_eq!(remove_tree(&tree).unwrap_err().kind(), ErrorKind::NotFound);
    // A link and a file, which are no directories.
    symlink(&outside, &tree).unwrap();
    remove_tree(&tree).unwrap();
    assert!(fs::symlink_metadata(&tree).is_err());
    let error = remove_tree(&outside.join("7")).unwrap_err();
    assert!(error.kind() == ErrorKind::NotADirectory && outside.join("7").exists());
    assert!(outside.join("kept").exists());
    assert_eq!(
        remove_tree(Path::new("/")).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(
        remove_tree(Path::new("..")).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

/// A container may make one: a path has an end, and a tree has not.
#[test]
fn deep_trees_take_few_descriptors_and_little_stack() {
    isolated(
        "remove::deep_trees_take_few_descriptors_and_little_stack",
        Duration::from_secs(20),
        || {
            const DEPTH: usize = 50_000;
            let directory = tempfile::tempdir().unwrap();
            // Not on a disk, which others may keep busy.
            mount("none", directory.path(), "tmpfs", MountFlags::empty(), c"").unwrap();
            let tree = directory.path().join("tree");
            fs::create_dir(&tree).unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let mut at = openat(CWD, &tree, flags, Mode::empty()).unwrap();
            for level in 0..DEPTH {
                mkdirat(&at, "d", Mode::RWXU).unwrap();
                if level % 1000 == 0 {
                    // It has the name of a directory that is moved up.
                    mkdirat(&at, format!(".removed-{}", level / 1000), Mode::RWXU).unwrap();
                }
                at = openat(&at, "d", flags, Mode::empty()).unwrap();
            }
            drop(at);
            let is_over = AtomicBool::new(false);
            let most = std::thread::scope(|scope| {
                let watch = scope.spawn(|| {
                    let mut most = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        most = most.max(fs::read_dir("/proc/self/fd").unwrap().count());
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    most
                });
                let small = std::thread::Builder::new().stack_size(128 << 10);
                let remove = small.spawn_scoped(scope, || remove_tree(&tree)).unwrap();
                remove.join().unwrap().unwrap();
                is_over.store(true, Ordering::Relaxed);
                watch.join().unwrap()
            });
            assert!(!tree.exists());
            assert!(most < 100, "{most} descriptors");
        },
    );
}

#[test]
fn what_is_mounted_is_left() {
    isolated("remove::what_is_mounted_is_left", Duration::from_secs(20), || {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        fs::create_dir(&other).unwrap();
        let tmpfs = |at: &Path| mount("none", at, "tmpfs", MountFlags::empty(), c"").unwrap();
        // Of the same file system, which no device tells.
        let bind = |at: &Path| mount_bind(&other, at).unwrap();
        let mounts: [&dyn Fn(&Path); 2] = [&tmpfs, &bind];
        for (number, mounted) in mounts.into_iter().enumerate() {
            let deep = vec!["d"; 100].join("/");
            for place in ["", "a/b", &deep] {
                let tree = directory.path().join("tree");
                let at = tree.join(place);
                fs::create_dir_all(&at).unwrap();
                fs::create_dir_all(tree.join("a/c")).unwrap();
                mounted(&at);
                fs::write(at.join("theirs"), "x").unwrap();
                let error = remove_tree(&tree).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{number} {place}: {error}");
                let said = error.to_string();
                assert!(said.contains("unmount it first"), "{said}");
                let moved = xebec_kernel::mount::mounts().unwrap();
                let moved = moved.into_iter().find(|mount| mount.target.starts_with(&tree));
                let at = moved.unwrap().target;
                assert!(
                    said.contains(at.to_str().unwrap()),
                    "{said}: it is at {}",
                    at.display()
                );
                assert!(at.join("theirs").exists(), "{number} {place}: it was emptied");
                unmount(&at, UnmountFlags::DETACH).unwrap();
                remove_tree(&tree).unwrap();
                assert!(!tree.exists());
                let _ = fs::remove_file(other.join("theirs"));
            }
        }
        // On a file.
        let (tree, file) = (directory.path().join("tree"), other.join("file"));
        fs::create_dir(&tree).unwrap();
        for path in [&file, &tree.join("file")] {
            fs::write(path, "x").unwrap();
        }
        mount_bind(&file, tree.join("file")).unwrap();
        let error = remove_tree(&tree).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
        assert!(is_mounted(&tree.join("file")).unwrap() && file.exists());
    });
}
