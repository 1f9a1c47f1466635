//! Directories of the host and volumes, as a container sees them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use xebec_volume::{VolumeError, VolumeStore};

use crate::support::{Case, case};

fn volumes(case: &Case) -> VolumeStore {
    case.dirs().volumes()
}

fn data(case: &Case, name: &str) -> PathBuf {
    volumes(case).get(name).unwrap().mountpoint
}

/// Gives the image a directory with files of another user, and some that are not usual.
fn image_directory(case: &Case) -> PathBuf {
    let directory = case.view().join("srv/data");
    fs::create_dir_all(directory.join("sub")).unwrap();
    fs::write(directory.join("sub/file"), "of the image\n").unwrap();
    fs::hard_link(directory.join("sub/file"), directory.join("again")).unwrap();
    symlink("/etc/passwd", directory.join("link")).unwrap();
    std::os::unix::fs::chown(directory.join("sub/file"), Some(1000), Some(50)).unwrap();
    std::os::unix::fs::chown(&directory, Some(1000), Some(100)).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o2770)).unwrap();
    directory
}

#[test]
fn a_new_volume_shows_what_the_image_has_there() {
    let mut case = case!();
    image_directory(&case);
    let before = case.view_listing();
    case.flag("rm").set("volume", "data:/srv/data").shell(
        "cat /srv/data/sub/file; stat -c '%a %u:%g' /srv/data; stat -c '%h %u:%g' /srv/data/sub/file; echo new > /srv/data/new",
    );
    let run = case.run();
    assert_eq!(run.stdout, "of the image\n2770 1000:100\n2 1000:50\n", "{run:?}");
    assert_eq!(case.view_listing(), before);
    let data = data(&case, "data");
    assert_eq!(
        fs::read_link(data.join("link")).unwrap(),
        PathBuf::from("/etc/passwd")
    );
    // Files of the volume stay, also if the image has something else by now.
    fs::write(case.view().join("srv/data/later"), "").unwrap();
    case.shell("cat /srv/data/new; test -e /srv/data/later");
    let run = case.run();
    assert_eq!((run.stdout.as_str(), run.code), ("new\n", 1), "{run:?}");
    case.assert_clean();
    volumes(&case).remove("data").unwrap();
    assert!(!data.exists());
}

/// The runtime is slower than the mount of the root, and is there before all is copied.
#[test]
fn a_volume_that_takes_long_to_fill_is_mounted_full() {
    const FILES: usize = 20_000;
    let mut case = case!();
    let directory = case.view().join("srv/many");
    fs::create_dir_all(&directory).unwrap();
    for number in 0..FILES {
        fs::File::create(directory.join(number.to_string())).unwrap();
    }
    case.flag("rm")
        .set("volume", "data:/srv/many")
        .shell("ls /srv/many | wc -l");
    let run = case.run();
    assert_eq!(run.stdout.trim(), FILES.to_string(), "{run:?}");
    case.assert_clean();
}

#[test]
fn a_volume_is_not_filled_against_the_users_will() {
    let mut case = case!();
    image_directory(&case);
    case.flag("rm")
        .set("volume", "data:/srv/data:nocopy")
        .add("volume", "deep:/srv/data/sub/deep")
        .shell("ls /srv/data; stat -c %u /srv/data");
    let run = case.run();
    assert_eq!(run.stdout, "sub\n0\n", "{run:?}");
    case.set("volume", "data:/etc/passwd");
    let run = case.run();
    assert!(run.code == 125 && run.error.contains("/etc/passwd"), "{run:?}");
    case.assert_clean();
}

#[test]
fn an_image_that_is_not_there_makes_no_volume_and_no_directory() {
    let mut case = case!();
    let missing = case.view().with_file_name("missing");
    case.flag("rm")
        .set("volume", "data:/data")
        .add("volume", &format!("{}:/other", missing.display()))
        .set("view", "no-such-view")
        .shell("true");
    let run = case.run();
    assert_eq!(run.code, 125, "{run:?}");
    assert!(volumes(&case).list().unwrap().is_empty() && !missing.exists());
}

#[test]
fn anonymous_volumes_go_with_their_container() {
    let mut case = case!();
    image_directory(&case);
    case.flag("rm")
        .set("volume", "/srv/data")
        .set("mount", "type=volume,target=/other")
        .shell("cat /srv/data/again; grep -c /_data /proc/self/mountinfo");
    let run = case.run();
    assert_eq!(run.stdout, "of the image\n2\n", "{run:?}");
    assert_eq!(volumes(&case).list().unwrap(), []);
    // A container that is kept keeps them, and they are not removed meanwhile.
    let mut kept = case!();
    kept.set("volume", "/data").set("id", "kept").shell("true");
    assert_eq!(kept.run().code, 0);
    let all = volumes(&kept).list().unwrap();
    assert!(
        all.len() == 1 && all[0].anonymous && all[0].containers == ["kept"],
        "{all:?}"
    );
    let error = volumes(&kept).remove(&all[0].name).unwrap_err();
    assert!(matches!(error, VolumeError::Used { .. }), "{error}");
    assert!(volumes(&kept).prune(true).unwrap().0.is_empty());
    fs::remove_dir_all(kept.state().join("kept")).unwrap();
    assert_eq!(volumes(&kept).prune(false).unwrap().0.len(), 1);
}

#[test]
fn two_containers_share_a_volume_that_is_filled_once() {
    let mut one = case!();
    image_directory(&one);
    let path = one.make_directory("meeting");
    one.set("id", "one")
        .flag("rm")
        .set("volume", "data:/srv/data")
        .add("volume", &format!("{}:/meet", path.display()))
        .shell("rm -r /srv/data/*; touch /meet/ready; while [ ! -e /meet/end ]; do sleep 0.02; done; ls /srv/data");
    let running = one.start();
    crate::support::wait_until("ready", || path.join("ready").exists());
    // The volume is empty again, and in use: it is not replaced under the other container.
    one.set("id", "two")
        .shell("ls /srv/data; echo two > /srv/data/two; touch /meet/end");
    let two = one.run();
    assert_eq!((two.stdout.as_str(), two.code), ("", 0), "{two:?}");
    let run = running.finish();
    assert_eq!((run.stdout.as_str(), run.code), ("two\n", 0), "{run:?}");
    one.assert_clean();
}

#[test]
fn a_missing_directory_is_made_for_volume_and_refused_for_mount() {
    let mut case = case!();
    let above = case.make_directory("above");
    let missing = above.join("a/b");
    case.flag("rm")
        .set("volume", &format!("{}:/data", missing.display()))
        .shell("echo x > /data/file");
    assert_eq!(case.run().code, 0);
    assert_eq!(fs::read_to_string(missing.join("file")).unwrap(), "x\n");
    assert_eq!(fs::metadata(above.join("a")).unwrap().mode() & 0o777, 0o755);
    let mut case = case!();
    case.flag("rm")
        .set("mount", "type=bind,source=/no/such/source,target=/data")
        .shell("true");
    let run = case.run();
    assert!(
        run.code == 125 && run.error.contains("/no/such/source"),
        "{run:?}"
    );
    case.assert_clean();
}

#[test]
fn a_read_only_mount_is_read_only_all_the_way_down() {
    let mut case = case!();
    let shared = case.make_directory("shared");
    fs::create_dir(shared.join("below")).unwrap();
    rustix::mount::mount(
        "tmpfs",
        shared.join("below"),
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        None,
    )
    .unwrap();
    let script = "echo x > /data/below/file; echo $?; ls -d /data/below";
    let mut outputs = Vec::new();
    for options in [
        "readonly",
        "readonly,bind-recursive=writable",
        "readonly,bind-recursive=disabled",
    ] {
        case.flag("rm")
            .set(
                "mount",
                &format!("type=bind,source={},target=/data,{options}", shared.display()),
            )
            .shell(script);
        outputs.push(case.run().stdout);
    }
    rustix::mount::unmount(shared.join("below"), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_eq!(
        outputs,
        ["1\n/data/below\n", "0\n/data/below\n", "1\n/data/below\n"]
    );
    assert!(!shared.join("below/file").exists());
}

#[test]
fn mounts_come_from_above_and_tmpfs_too() {
    let mut case = case!();
    let (one, two) = (case.make_directory("one"), case.make_directory("two"));
    fs::write(two.join("in"), "in\n").unwrap();
    case.flag("rm")
        .set("volume", &format!("{}:/data/sub", two.display()))
        .add("volume", &format!("{}:/data", one.display()))
        .set(
            "mount",
            "type=tmpfs,target=/data/memory,tmpfs-size=1m,tmpfs-mode=1770",
        )
        .shell("cat /data/sub/in; stat -c %a /data/memory; echo x > /data/file");
    let run = case.run();
    assert_eq!(run.stdout, "in\n1770\n", "{run:?}");
    assert!(one.join("file").exists());
    case.add("volume", "/tmp:/data");
    let run = case.run();
    assert!(run.code == 125 && run.error.contains("/data"), "{run:?}");
    case.assert_clean();
}

/// A user with write access above the source replaces it by a link while the container is created. Without a
/// prediction the runtime receives its configuration after the source was opened; here it is told to wait until
/// the replacement.
#[test]
fn a_source_that_is_replaced_meanwhile_is_refused() {
    let mut case = case!();
    let (shared, outside) = (case.make_directory("shared"), case.make_directory("outside"));
    let source = shared.join("source");
    fs::create_dir(&source).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    // The directory of the container's control groups, its layer and its record are made before this; a volume
    // that is listed after the source tells that the source was opened.
    let uses = case.state().join("box/volumes.json");
    case.before_create(&format!(
        "(while [ ! -e '{uses}' ]; do sleep 0.01; done; sleep 0.1; rm -rf '{source}'; ln -s '{outside}' '{source}'; touch '{done}') &
         (while [ ! -e '{done}' ]; do sleep 0.01; done); exec runc \"$@\"",
        uses = uses.display(),
        source = source.display(),
        outside = outside.display(),
        done = shared.join("done").display(),
    ));
    case.set("id", "box")
        .set("predicted_image", "none")
        .set("volume", &format!("{}:/data", source.display()))
        .add("volume", "later:/later")
        .shell("cat /data/secret");
    let run = case.run();
    assert!(run.code == 125 && run.error.contains("replaced"), "{run:?}");
    assert_eq!(run.stdout, "");
    case.assert_clean();
}

#[test]
fn propagation_needs_a_shared_mount_and_then_works() {
    use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
    let mut case = case!();
    let shared = case.make_directory("shared");
    mount("tmpfs", &shared, "tmpfs", MountFlags::empty(), None).unwrap();
    mount_change(&shared, MountPropagationFlags::PRIVATE).unwrap();
    case.flag("rm")
        .set("volume", &format!("{}:/data:rslave", shared.display()))
        .shell("touch /data/ready; while [ ! -e /data/sub/in ]; do sleep 0.02; done; echo seen");
    let refused = case.run();
    mount_change(&shared, MountPropagationFlags::SHARED).unwrap();
    fs::create_dir(shared.join("sub")).unwrap();
    let running = case.start();
    crate::support::wait_until("ready", || shared.join("ready").exists());
    mount("tmpfs", shared.join("sub"), "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(shared.join("sub/in"), "").unwrap();
    let run = running.finish();
    case.set("volume", &format!("{}:/data:rshared", shared.display()))
        .shell("true");
    let both = case.run();
    unmount(&shared, UnmountFlags::DETACH).unwrap();
    assert!(
        refused.code == 125 && refused.error.contains("make-rshared"),
        "{refused:?}"
    );
    assert_eq!(run.stdout, "seen\n", "{run:?}");
    assert_eq!(both.code, 0, "{both:?}");
    case.assert_clean();
}

#[test]
fn a_volume_of_a_full_disk_stays_empty() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let mut case = case!();
    let directory = image_directory(&case);
    fs::write(directory.join("large"), vec![1; 2 << 20]).unwrap();
    let store = case.state().with_file_name("volumes");
    fs::create_dir(&store).unwrap();
    let size = std::ffi::CString::new("size=1m").unwrap();
    mount(
        "tmpfs",
        &store,
        "tmpfs",
        MountFlags::empty(),
        Some(size.as_c_str()),
    )
    .unwrap();
    case.flag("rm").set("volume", "data:/srv/data").shell("true");
    let run = case.run();
    let listed = volumes(&case).get("data").map(|volume| {
        let left = fs::read_dir(volume.mountpoint.parent().unwrap()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        (fs::read_dir(&volume.mountpoint).unwrap().count(), left)
    });
    unmount(&store, UnmountFlags::DETACH).unwrap();
    assert!(run.code == 125 && run.error.contains("No space left"), "{run:?}");
    let (entries, left) = listed.unwrap();
    assert_eq!((entries, left), (0, vec!["_data".into(), "volume.json".into()]));
    case.assert_clean();
}
