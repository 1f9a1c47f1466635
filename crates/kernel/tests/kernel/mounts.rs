//! Bind mounts, overlays and unmounting, as containers use them.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use crate::isolation::isolated;
use rustix::fs::XattrFlags;

use xebec_kernel::mount::{self, Attributes, MountError, Overlay, Top};

const LIMIT: Duration = Duration::from_secs(20);

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

#[test]
fn an_overlay_keeps_attributes_and_leaves_lower_directories_alone() {
    isolated(
        "mounts::an_overlay_keeps_attributes_and_leaves_lower_directories_alone",
        LIMIT,
        || {
            let place = tempfile::tempdir().unwrap();
            // Every character that overlayfs options would have to escape.
            let lower = place.path().join("low:er, with \\ and \u{e9}");
            let (upper, work, root) = (
                place.path().join("upper"),
                place.path().join("work"),
                place.path().join("root"),
            );
            for directory in [&lower, &upper, &work, &root] {
                fs::create_dir(directory).unwrap();
            }
            fs::write(lower.join("ping"), b"binary").unwrap();
            set(&lower.join("ping"), "user.note", b"from below");
            set(&lower.join("ping"), "trusted.note", b"kept");
            // struct vfs_cap_data, revision 2: CAP_NET_RAW, effective.
            let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            set(&lower.join("ping"), "security.capability", &capability);
            fs::write(lower.join("gone"), b"").unwrap();

            let overlay = Overlay::new().lower(&lower).upper(&upper, &work);
            overlay.mount_at(&root, Attributes::empty()).unwrap();
            assert!(mount::is_mounted(&root).unwrap());
            assert_eq!(fs::read(root.join("ping")).unwrap(), b"binary");
            assert_eq!(get(&root.join("ping"), "user.note").unwrap(), b"from below");
            assert_eq!(get(&root.join("ping"), "trusted.note").unwrap(), b"kept");
            assert_eq!(
                get(&root.join("ping"), "security.capability").unwrap(),
                capability
            );

            set(&root.join("ping"), "user.note", b"from above");
            fs::remove_file(root.join("gone")).unwrap();
            assert_eq!(get(&root.join("ping"), "user.note").unwrap(), b"from above");
            assert_eq!(
                get(&root.join("ping"), "security.capability").unwrap(),
                capability,
                "lost by copying up"
            );
            assert_eq!(get(&lower.join("ping"), "user.note").unwrap(), b"from below");
            assert!(lower.join("gone").exists() && !root.join("gone").exists());
            Top::at(&root).unwrap().unwrap().unmount().unwrap();
            assert!(!mount::is_mounted(&root).unwrap());
        },
    );
}

/// `trusted.overlay.*` attributes in a layer are other people's data: they must not move contents about.
#[test]
fn a_lower_directory_cannot_redirect_to_another() {
    isolated(
        "mounts::a_lower_directory_cannot_redirect_to_another",
        LIMIT,
        || {
            let place = tempfile::tempdir().unwrap();
            let path = |name: &str| place.path().join(name);
            for directory in ["top/shown", "bottom/secret", "root"] {
                fs::create_dir_all(path(directory)).unwrap();
            }
            fs::write(path("bottom/secret/key"), b"secret").unwrap();
            set(&path("top/shown"), "trusted.overlay.redirect", b"/secret");
            let overlay = Overlay::new().lower(path("top")).lower(path("bottom"));

            let following = overlay.clone().option("redirect_dir", Some("follow"));
            following.mount_at(&path("root"), Attributes::empty()).unwrap();
            assert!(
                path("root/shown/key").exists(),
                "this kernel would not redirect anyway: the test shows nothing"
            );
            Top::at(&path("root")).unwrap().unwrap().unmount().unwrap();

            overlay.mount_at(&path("root"), Attributes::empty()).unwrap();
            assert!(!path("root/shown/key").exists());
        },
    );
}

#[test]
fn many_lower_directories_with_long_names_mount() {
    isolated(
        "mounts::many_lower_directories_with_long_names_mount",
        LIMIT,
        || {
            let place = tempfile::tempdir().unwrap();
            let mut overlay = Overlay::new();
            for number in 0..200 {
                let lower = place.path().join(format!("{number:0200}"));
                fs::create_dir(&lower).unwrap();
                fs::write(lower.join("top"), number.to_string()).unwrap();
                fs::write(lower.join(number.to_string()), b"").unwrap();
                overlay = overlay.lower(lower);
            }
            let root = place.path().join("root");
            fs::create_dir(&root).unwrap();
            overlay.mount_at(&root, Attributes::empty()).unwrap();
            assert_eq!(
                fs::read(root.join("top")).unwrap(),
                b"0",
                "the first one given is the topmost"
            );
            assert_eq!(fs::read_dir(&root).unwrap().count(), 201);
        },
    );
}

#[test]
fn a_private_bind_stays_private() {
    isolated("mounts::a_private_bind_stays_private", LIMIT, || {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for directory in ["shared/origin/inner", "shared/bound"] {
            fs::create_dir_all(path(directory)).unwrap();
        }
        // As on a systemd host, everything around is shared.
        mount::bind_private(&path("shared"), &path("shared")).unwrap();
        rustix::mount::mount_change(path("shared"), rustix::mount::MountPropagationFlags::SHARED).unwrap();
        mount::bind_private(&path("shared/origin"), &path("shared/bound")).unwrap();
        let mounts = mount::mounts().unwrap();
        let bound = mounts
            .iter()
            .find(|mount| mount.target == path("shared/bound"))
            .unwrap();
        assert!(bound.is_private(), "{bound:?}");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", path("shared/origin/inner"), "tmpfs", flags, c"").unwrap();
        assert!(!mount::is_mounted(&path("shared/bound/inner")).unwrap());
    });
}

#[test]
fn a_busy_mount_says_so_and_can_be_taken_out_lazily() {
    isolated(
        "mounts::a_busy_mount_says_so_and_can_be_taken_out_lazily",
        LIMIT,
        || {
            let place = tempfile::tempdir().unwrap();
            let path = |name: &str| place.path().join(name);
            fs::create_dir(path("origin")).unwrap();
            fs::create_dir(path("bound")).unwrap();
            fs::write(path("origin/file"), b"").unwrap();
            mount::bind_private(&path("origin"), &path("bound")).unwrap();
            let held = File::open(path("bound/file")).unwrap();
            let bound = || Top::at(&path("bound")).unwrap();
            let error = bound().unwrap().unmount().unwrap_err();
            assert!(
                matches!(error, MountError::Unmount { .. }) && error.to_string().contains("still uses it")
            );
            bound().unwrap().detach().unwrap();
            assert!(!mount::is_mounted(&path("bound")).unwrap());
            drop(held);
            assert!(bound().is_none());
        },
    );
}

#[test]
fn what_is_mounted_is_found_when_its_directory_was_removed() {
    isolated(
        "mounts::what_is_mounted_is_found_when_its_directory_was_removed",
        LIMIT,
        || {
            let place = tempfile::tempdir().unwrap();
            let path = |name: &str| place.path().join(name);
            fs::create_dir(path("origin")).unwrap();
            fs::create_dir(path("bound")).unwrap();
            mount::bind_private(&path("origin"), &path("bound")).unwrap();
            fs::remove_dir(path("origin")).unwrap();
            let top = Top::at(&path("bound")).unwrap().expect("it is still mounted");
            assert!(top.info().root.to_string_lossy().ends_with("//deleted"));
            top.detach().unwrap();
            assert!(!mount::is_mounted(&path("bound")).unwrap());
        },
    );
}
