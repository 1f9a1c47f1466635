//! Volumes on the disk: files, records and copies.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::super::copy::copy_tree;
use super::super::fill::fill;
use super::super::*;

struct Root {
    directory: tempfile::TempDir,
    containers: PathBuf,
}

impl Root {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            containers: directory.path().join("containers"),
            directory,
        }
    }

    fn store(&self) -> VolumeStore {
        VolumeStore::new(self.directory.path().join("volumes"), self.containers.clone())
    }

    /// A container that uses a volume.
    fn container(&self, id: &str, name: &str) -> PathBuf {
        let state = self.containers.join(id);
        fs::create_dir_all(&state).unwrap();
        usage::add(&state, name, false, Path::new("/data")).unwrap();
        state
    }
}

#[test]
fn volumes_are_made_listed_and_removed() {
    let root = Root::new();
    let store = root.store();
    assert_eq!(store.list().unwrap(), []);
    let labels = [("tier".to_owned(), "db".to_owned())];
    assert_eq!(store.create(Some("data"), labels.clone()).unwrap(), "data");
    assert_eq!(
        store.create(Some("data"), []).unwrap(),
        "data",
        "it is there already"
    );
    let random = store.create(None, []).unwrap();
    let volumes = store.list().unwrap();
    assert_eq!(volumes.len(), 2);
    let data = store.get("data").unwrap();
    assert!(volumes.contains(&data) && !data.anonymous && data.created > 0);
    assert_eq!(data.labels, BTreeMap::from(labels));
    assert_eq!(fs::metadata(&data.mountpoint).unwrap().mode() & 0o777, 0o755);
    let closed = fs::metadata(data.mountpoint.parent().unwrap()).unwrap();
    assert_eq!(closed.mode() & 0o777, 0o700);
    for bad in ["..", "a/b", "", ".new-1", "../containers"] {
        assert!(
            matches!(store.create(Some(bad), []), Err(VolumeError::Name(_))),
            "{bad}"
        );
        assert!(matches!(store.remove(bad), Err(VolumeError::Name(_))), "{bad}");
        assert!(matches!(store.get(bad), Err(VolumeError::Name(_))), "{bad}");
    }
    assert!(matches!(store.remove("other"), Err(VolumeError::Missing(_))));
    assert_eq!(store.prune(false).unwrap().0, [random]);
    store.remove("data").unwrap();
    assert_eq!(store.list().unwrap(), []);
}

#[test]
fn a_volume_stays_while_a_container_uses_it() {
    let root = Root::new();
    let store = root.store();
    store.create(Some("data"), []).unwrap();
    let state = root.container("web", "data");
    let error = store.remove("data").unwrap_err().to_string();
    assert!(error.contains("data") && error.contains("web"), "{error}");
    assert_eq!(store.prune(true).unwrap().0, Vec::<String>::new());
    assert_eq!(store.get("data").unwrap().containers, ["web"]);
    fs::write(state.join("volumes.json"), "{").unwrap();
    assert!(
        store.remove("data").is_err(),
        "nobody knows what that container uses"
    );
    fs::remove_dir_all(&state).unwrap();
    store.remove("data").unwrap();
}

#[test]
fn a_removal_follows_no_link_and_a_killed_one_is_finished() {
    let root = Root::new();
    let store = root.store();
    let outside = root.containers.with_file_name("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "kept").unwrap();
    store.create(Some("data"), []).unwrap();
    let data = store.get("data").unwrap().mountpoint;
    symlink(&outside, data.join("link")).unwrap();
    // Leftovers of a killed command.
    let volumes = root.containers.with_file_name("volumes");
    fs::create_dir_all(volumes.join(".gone-1/_data/x")).unwrap();
    fs::create_dir_all(volumes.join(".new-1/_data")).unwrap();
    store.remove("data").unwrap();
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "kept");
    assert_eq!(fs::read_dir(&volumes).unwrap().count(), 0);
    // A link in the place of a volume is none of Xebec's.
    symlink(&outside, volumes.join("data")).unwrap();
    let _ = store.remove("data");
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "kept");
}

/// A directory with one of everything that does not need root.
fn odd_tree(top: &Path) {
    fs::create_dir_all(top.join("d/e")).unwrap();
    fs::write(top.join("d/e/file"), "text").unwrap();
    fs::hard_link(top.join("d/e/file"), top.join("d/other")).unwrap();
    symlink("/etc/passwd", top.join("absolute")).unwrap();
    symlink("missing", top.join("d/dangling")).unwrap();
    let sparse = fs::File::create(top.join("sparse")).unwrap();
    sparse.set_len(1 << 26).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (1 << 26) - 3).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, top.join("fifo"), fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    fs::set_permissions(top.join("d/e/file"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(top.join("d"), fs::Permissions::from_mode(0o1750)).unwrap();
    let _ = rustix::fs::setxattr(
        top.join("d"),
        "user.test",
        b"value",
        rustix::fs::XattrFlags::empty(),
    );
    let times =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000));
    fs::File::open(top.join("d")).unwrap().set_times(times).unwrap();
}

fn listing(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut listing = BTreeMap::new();
    let mut left = vec![top.to_owned()];
    while let Some(path) = left.pop() {
        let status = fs::symlink_metadata(&path).unwrap();
        if status.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let link = fs::read_link(&path).unwrap_or_default();
        let mut value = [0; 16];
        let length = rustix::fs::lgetxattr(&path, "user.test", &mut value[..]).unwrap_or(0);
        let line = format!(
            "{:o} {} {} {} {} {link:?} {:?}",
            status.mode(),
            status.uid(),
            if status.is_dir() { 0 } else { status.size() },
            if status.is_dir() { 0 } else { status.nlink() },
            status.mtime(),
            &value[..length]
        );
        listing.insert(path.strip_prefix(top).unwrap().to_owned(), line);
    }
    listing
}

#[test]
fn a_copy_is_like_what_it_is_a_copy_of() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::create_dir(&to).unwrap();
    odd_tree(&from);
    let (one, other) = (fs::File::open(&from).unwrap(), fs::File::open(&to).unwrap());
    copy_tree(one.as_fd(), other.as_fd(), &mut || Ok(())).unwrap();
    assert_eq!(listing(&to), listing(&from));
    assert_eq!(fs::read_to_string(to.join("d/other")).unwrap(), "text");
    let sparse = fs::metadata(to.join("sparse")).unwrap();
    assert!(sparse.blocks() < 100, "{} blocks", sparse.blocks());
    let mut end = [0; 3];
    std::os::unix::fs::FileExt::read_exact_at(
        &fs::File::open(to.join("sparse")).unwrap(),
        &mut end,
        (1 << 26) - 3,
    )
    .unwrap();
    assert_eq!(&end, b"end");
}

#[test]
fn an_empty_volume_is_filled_whole_or_not_at_all() {
    let root = Root::new();
    let store = root.store();
    let view = root.containers.with_file_name("view");
    odd_tree(&view.join("srv/data"));
    fs::write(view.join("file"), "").unwrap();
    symlink("/srv", view.join("link")).unwrap();
    store.create(Some("data"), []).unwrap();
    let info = store.get("data").unwrap();
    let volume = info.mountpoint.parent().unwrap().to_owned();
    // Leftovers of a killed command.
    fs::create_dir_all(volume.join("_new/half")).unwrap();
    let mut steps = 0;
    let mut full = || {
        steps += 1;
        match steps {
            4 => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    };
    let target = Path::new("/link/data");
    let error = fill(&view, target, &volume, &mut full).unwrap_err().to_string();
    assert!(error.contains("copy the image's files"), "{error}");
    assert_eq!(fs::read_dir(&info.mountpoint).unwrap().count(), 0);
    assert!(!volume.join("_new").exists());
    let mut stop = || Err(io::ErrorKind::Interrupted.into());
    assert!(matches!(
        fill(&view, target, &volume, &mut stop),
        Err(VolumeError::Interrupted)
    ));
    let mut go_on = || Ok(());
    fill(&view, Path::new("/missing"), &volume, &mut go_on).unwrap();
    assert_eq!(fs::read_dir(&info.mountpoint).unwrap().count(), 0);
    assert!(matches!(
        fill(&view, Path::new("/file"), &volume, &mut go_on),
        Err(VolumeError::NotADirectory(_))
    ));
    fill(&view, target, &volume, &mut go_on).unwrap();
    let expected = listing(&view.join("srv/data"));
    assert_eq!(listing(&info.mountpoint), expected);
    fs::remove_file(info.mountpoint.join("fifo")).unwrap();
    fill(&view, target, &volume, &mut go_on).unwrap();
    assert_ne!(
        listing(&info.mountpoint),
        expected,
        "one that is not empty stays as it is"
    );
}

#[test]
fn labels_are_set_through_no_link() {
    let directory = tempfile::tempdir().unwrap();
    let (top, outside) = (directory.path().join("top"), directory.path().join("outside"));
    fs::create_dir_all(top.join("a/b")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(top.join("a/b/file"), "").unwrap();
    symlink(&outside, top.join("a/link")).unwrap();
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    let opened = rustix::fs::open(&top, flags, rustix::fs::Mode::empty()).unwrap();
    // root may set attributes of this kind on links, too.
    let set = relabel::label_tree(opened.as_fd(), c"trusted.xebec-test", b"label");
    if let Err(error) = set {
        println!("SKIPPED: the file system takes no attributes: {error}");
        return;
    }
    let has = |path: &Path| rustix::fs::lgetxattr(path, "trusted.xebec-test", &mut [0_u8; 16][..]).is_ok();
    assert!(has(&top) && has(&top.join("a/b/file")) && !has(&outside));
    relabel::relabel(&top, &opened, Relabel::Private, None).unwrap();
    let host = relabel::relabel(
        Path::new("/usr"),
        &opened,
        Relabel::Shared,
        Some("u:r:t:s0:c1,c2"),
    );
    assert!(matches!(host, Err(VolumeError::HostsLabel(_))));
}

/// A tree whose paths are longer than the kernel takes. Returns how many levels it has below `top`.
fn long_tree(top: &Path) -> usize {
    let name = "n".repeat(255);
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
    let mut at = rustix::fs::open(top, flags, rustix::fs::Mode::empty()).unwrap();
    let levels = 20;
    for _ in 0..levels {
        rustix::fs::mkdirat(&at, &*name, rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &*name, flags, rustix::fs::Mode::empty()).unwrap();
    }
    levels
}

/// How many directories there are, one in the other.
fn depth(top: &Path) -> usize {
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let mut at = rustix::fs::open(top, flags, rustix::fs::Mode::empty()).unwrap();
    for depth in 0.. {
        let mut names = rustix::fs::Dir::read_from(&at)
            .unwrap()
            .map(|entry| entry.unwrap());
        let Some(next) = names.find(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")) else {
            return depth;
        };
        at = rustix::fs::openat(&at, next.file_name(), flags, rustix::fs::Mode::empty()).unwrap();
    }
    unreachable!()
}

fn opened(path: &Path) -> std::os::fd::OwnedFd {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap()
}

const ATTRIBUTE: &std::ffi::CStr = c"trusted.xebec-test";

/// Labels a tree. False if the file system takes no attributes.
fn labelled(top: &Path) -> bool {
    match relabel::label_tree(opened(top).as_fd(), ATTRIBUTE, b"label") {
        Ok(()) => true,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
            ) =>
        {
            println!("SKIPPED: the file system or this user sets no attributes of this kind: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

fn has_label(path: &Path) -> bool {
    rustix::fs::lgetxattr(path, ATTRIBUTE, &mut [0_u8; 16][..]).is_ok()
}

#[test]
fn trees_with_long_paths_are_copied_and_labelled() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&to).unwrap();
    let levels = long_tree(&from);
    let (one, other) = (fs::File::open(&from).unwrap(), fs::File::open(&to).unwrap());
    copy_tree(one.as_fd(), other.as_fd(), &mut || Ok(())).unwrap();
    assert_eq!(depth(&to), levels);
    labelled(&to);
}

#[test]
fn a_tree_that_is_too_deep_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::create_dir(&to).unwrap();
    fs::create_dir_all(from.join("d/".repeat(levels::LEVELS))).unwrap();
    let (one, other) = (fs::File::open(&from).unwrap(), fs::File::open(&to).unwrap());
    let error = copy_tree(one.as_fd(), other.as_fd(), &mut || Ok(())).unwrap_err();
    assert!(error.to_string().contains("deeper"), "{error}");
    let error = relabel::label_tree(opened(&from).as_fd(), ATTRIBUTE, b"label").unwrap_err();
    let is_possible = !matches!(
        error.kind(),
        io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
    );
    assert!(!is_possible || error.to_string().contains("deeper"), "{error}");
}

/// A container that runs may use the directory, too.
#[test]
fn labels_are_set_while_directories_and_links_change_places() {
    let directory = tempfile::tempdir().unwrap();
    let (top, outside) = (directory.path().join("top"), directory.path().join("outside"));
    fs::create_dir_all(top.join("a/b")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "").unwrap();
    symlink("round", top.join("round")).unwrap();
    symlink(&outside, top.join("link")).unwrap();
    if !labelled(&top) {
        return;
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let swap = rustix::fs::RenameFlags::EXCHANGE;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, top.join("a"), cwd, top.join("link"), swap).unwrap();
            }
        });
        let outcomes: Vec<_> = (0..5000)
            .map(|_| relabel::label_tree(opened(&top).as_fd(), ATTRIBUTE, b"label"))
            .collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        let failed = outcomes.into_iter().find_map(Result::err);
        assert!(failed.is_none(), "{failed:?}");
    });
    assert!(!has_label(&outside) && !has_label(&outside.join("file")));
}

/// Tells the program in a namespace of its own where to mount.
const MOUNTS: &str = "XEBEC_TEST_MOUNTS";

#[test]
fn what_is_mounted_in_a_directory_keeps_its_label() {
    if let Some(directory) = std::env::var_os(MOUNTS) {
        let (top, other) = (
            Path::new(&directory).join("top"),
            Path::new(&directory).join("other"),
        );
        let bound = std::process::Command::new("mount")
            .arg("--bind")
            .args([&other, &top.join("mounted")])
            .status();
        assert!(bound.unwrap().success());
        if labelled(&top) {
            assert!(has_label(&top) && has_label(&top.join("after")) && !has_label(&other));
        }
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for name in ["top/mounted", "top/after", "other"] {
        fs::create_dir_all(directory.path().join(name)).unwrap();
    }
    let own = std::process::Command::new("unshare")
        .args(["-m", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "tests::files::what_is_mounted_in_a_directory_keeps_its_label",
            "--nocapture",
        ])
        .env(MOUNTS, directory.path())
        .output()
        .unwrap();
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root mounts");
        return;
    }
    let said = String::from_utf8_lossy(&own.stdout);
    assert!(own.status.success() && said.contains("1 passed"), "{own:?}");
}
