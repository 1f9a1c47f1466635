//! Copies below temporary directories that stand for the roots of containers.

mod tar_streams;

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FileType, Mode, RenameFlags, mknodat, renameat_with};

use super::*;

/// A directory that stands for the root of a container.
fn root(path: &Path) -> ContainerRoot {
    ContainerRoot {
        name: "box".into(),
        directory: OwnedFd::from(File::open(path).unwrap()),
    }
}

fn within(root: &ContainerRoot) -> Root<'_> {
    Root::Within(root.directory.as_fd(), &root.name)
}

const KEEP: CopyOptions = CopyOptions {
    archive: true,
    follow_link: false,
};

fn cp(from: (&Path, &str), to: (&Path, &str)) -> Result<Vec<Note>, CopyError> {
    cp_with(from, to, KEEP, false)
}

fn cp_with(
    from: (&Path, &str),
    to: (&Path, &str),
    options: CopyOptions,
    is_host: bool,
) -> Result<Vec<Note>, CopyError> {
    let mut notes = Vec::new();
    copy_between(
        (&within(&root(from.0)), Path::new(from.1)),
        (&within(&root(to.0)), Path::new(to.1)),
        options.follow_link,
        Rules::new(options.archive, is_host),
        &mut |note| notes.push(note),
    )?;
    Ok(notes)
}

/// The entry at each path below a directory: kind, mode, time, and contents or target.
fn listing(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![top.to_owned()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let text = if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            format!("directory {:o}", meta.mode())
        } else if meta.is_symlink() {
            format!("link {}", fs::read_link(&path).unwrap().display())
        } else if meta.is_file() {
            let contents = fs::read(&path).unwrap();
            format!("file {:o} {} {contents:?}", meta.mode(), meta.mtime())
        } else {
            format!("other {:o}", meta.mode())
        };
        found.insert(path.strip_prefix(top).unwrap().to_owned(), text);
    }
    found
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + text.len() as u64);
    File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_modified(time)
        .unwrap();
}

fn make_source(top: &Path, kind: &str) {
    let source = top.join("s");
    match kind {
        "file" => write(&source, "source", 0o640),
        "directory" => {
            fs::create_dir_all(source.join("d/e")).unwrap();
            write(&source.join("a"), "a", 0o600);
            write(&source.join("d/b"), "bb", 0o755);
            symlink("../a", source.join("d/link")).unwrap();
            fs::set_permissions(source.join("d"), Permissions::from_mode(0o711)).unwrap();
        }
        "link to file" | "link to directory" => {
            make_source(top, kind.rsplit(' ').next().unwrap());
            fs::rename(&source, top.join("real")).unwrap();
            symlink("real", &source).unwrap();
        }
        _ => {}
    }
}

fn make_destination(top: &Path, kind: &str) {
    let destination = top.join("t");
    match kind {
        "file" => write(&destination, "old destination", 0o604),
        "directory" => fs::create_dir(&destination).unwrap(),
        "directory with file s" => {
            fs::create_dir(&destination).unwrap();
            write(&destination.join("s"), "old", 0o600);
        }
        "directory with directory s" => {
            fs::create_dir_all(destination.join("s/d")).unwrap();
            write(&destination.join("s/d/b"), "old", 0o600);
            write(&destination.join("s/other"), "other", 0o600);
        }
        "link to file" | "link to directory" => {
            make_destination(top, kind.rsplit(' ').next().unwrap());
            fs::rename(&destination, top.join("target")).unwrap();
            symlink("target", &destination).unwrap();
        }
        "dangling link" => symlink("nowhere", &destination).unwrap(),
        _ => {}
    }
}

/// Docker's rules are those of `cp -a`: every combination is tried with both.
#[test]
fn sources_and_destinations_mean_what_they_mean_to_cp() {
    let mut compared = 0;
    let sources = ["none", "file", "directory", "link to file", "link to directory"];
    let destinations = [
        "none",
        "file",
        "directory",
        "directory with file s",
        "directory with directory s",
        "link to file",
        "link to directory",
        "dangling link",
    ];
    for source in sources {
        for destination in destinations {
            for from in ["s", "s/", "s/.", "/s"] {
                for to in ["t", "t/", "t/.", "t/n", "t/../t"] {
                    // `cp` replaces such a link of the destination by a link, and Docker follows it.
                    let is_link = source.starts_with("link") && from.ends_with('s');
                    let to_link = destination == "link to file" || destination == "dangling link";
                    if is_link && to_link && to == "t" {
                        continue;
                    }
                    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
                    for top in [ours.path(), theirs.path()] {
                        make_source(top, source);
                        make_destination(top, destination);
                    }
                    let outcome = cp((ours.path(), from), (ours.path(), to));
                    let mut reference = Command::new("cp");
                    reference.args(["-a", from.trim_start_matches('/'), to]);
                    let reference = reference.current_dir(theirs.path()).output().unwrap();
                    let what = format!("{source}: {from} to {destination}: {to}: {outcome:?} {reference:?}");
                    assert_eq!(outcome.is_ok(), reference.status.success(), "{what}");
                    if outcome.is_ok() {
                        assert_eq!(listing(ours.path()), listing(theirs.path()), "{what}");
                    }
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 500);
}

#[test]
fn links_lead_nowhere_outside() {
    let top = tempfile::tempdir().unwrap();
    let (inside, outside) = (top.path().join("inside"), top.path().join("outside"));
    fs::create_dir_all(inside.join("etc")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    fs::write(inside.join("secret"), "own").unwrap();
    fs::create_dir(inside.join("to")).unwrap();
    symlink(&outside, inside.join("absolute")).unwrap();
    symlink("../../../outside", inside.join("relative")).unwrap();
    symlink("../outside/new", inside.join("etc/dangling")).unwrap();
    for path in ["absolute/secret", "relative/secret", "absolute/", "relative/."] {
        assert!(cp((&inside, path), (&inside, "to")).is_err(), "{path}");
        assert!(cp((&inside, "secret"), (&inside, path)).is_err(), "{path}");
    }
    assert!(cp((&inside, "secret"), (&inside, "etc/dangling")).is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    // `..` at the root is the root.
    cp((&inside, "../../secret"), (&inside, "/../to/../../to")).unwrap();
    assert_eq!(fs::read_to_string(inside.join("to/secret")).unwrap(), "own");
}

#[test]
fn links_are_followed_only_if_asked() {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("file"), "text").unwrap();
    symlink("file", top.path().join("link")).unwrap();
    fs::create_dir(top.path().join("to")).unwrap();
    cp((top.path(), "link"), (top.path(), "to")).unwrap();
    assert_eq!(
        fs::read_link(top.path().join("to/link")).unwrap(),
        Path::new("file")
    );
    let follow = CopyOptions {
        follow_link: true,
        ..KEEP
    };
    cp_with((top.path(), "link"), (top.path(), "to"), follow, false).unwrap();
    let copied = fs::symlink_metadata(top.path().join("to/link")).unwrap();
    assert!(copied.is_file());
}

#[test]
fn owners_modes_and_bits_are_kept_only_as_asked() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: changing owners needs root");
        return;
    }
    let top = tempfile::tempdir().unwrap();
    let path = top.path().join("program");
    write(&path, "program", 0o755);
    std::os::unix::fs::chown(&path, Some(1234), Some(5678)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
    let tried = |archive, is_host| {
        let options = CopyOptions {
            archive,
            follow_link: false,
        };
        cp_with((top.path(), "program"), (top.path(), "copy"), options, is_host).unwrap();
        let meta = fs::metadata(top.path().join("copy")).unwrap();
        assert_eq!(meta.mtime(), 1_000_007);
        (meta.uid(), meta.gid(), meta.mode() & 0o7777)
    };
    assert_eq!(tried(true, true), (1234, 5678, 0o6755));
    assert_eq!(tried(true, false), (1234, 5678, 0o6755));
    assert_eq!(tried(false, false), (0, 0, 0o6755));
    assert_eq!(
        tried(false, true),
        (0, 0, 0o755),
        "a program of root's on the host"
    );
}

#[test]
fn names_of_one_file_stay_names_of_one_file_and_holes_stay_holes() {
    let top = tempfile::tempdir().unwrap();
    let source = top.path().join("s");
    fs::create_dir_all(source.join("d")).unwrap();
    let sparse = File::create(source.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(b"middle", 32 << 20).unwrap();
    fs::hard_link(source.join("sparse"), source.join("d/other")).unwrap();
    // Twice: the second copy finds the first in its place.
    for _ in 0..2 {
        cp((top.path(), "s/."), (top.path(), "t/"))
            .or_else(|_| {
                fs::create_dir(top.path().join("t")).unwrap();
                cp((top.path(), "s/."), (top.path(), "t/"))
            })
            .unwrap();
        let [one, other] = ["t/sparse", "t/d/other"].map(|name| fs::metadata(top.path().join(name)).unwrap());
        assert_eq!(one.ino(), other.ino());
        assert_eq!(one.len(), 64 << 20);
        assert!(one.blocks() * 512 < 1 << 20, "{} blocks", one.blocks());
        let mut text = [0; 6];
        let copied = File::open(top.path().join("t/sparse")).unwrap();
        copied.read_exact_at(&mut text, 32 << 20).unwrap();
        assert_eq!(&text, b"middle");
    }
    let names: Vec<_> = listing(&top.path().join("t")).into_keys().collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn special_files_are_left_out_and_named() {
    let top = tempfile::tempdir().unwrap();
    let source = top.path().join("s");
    fs::create_dir(&source).unwrap();
    fs::create_dir(top.path().join("t")).unwrap();
    let opened = File::open(&source).unwrap();
    let mode = Mode::from_raw_mode(0o640);
    mknodat(&opened, "fifo", FileType::Fifo, mode, 0).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap();
    let zero = rustix::fs::makedev(1, 5);
    let has_device = mknodat(&opened, "zero", FileType::CharacterDevice, mode, zero).is_ok();
    // A FIFO without a writer would block a process that opens it.
    let mut notes = cp((top.path(), "s"), (top.path(), "t")).unwrap();
    notes.sort_by(|one, other| one.path.cmp(&other.path));
    let socket = Note {
        path: "s/socket".into(),
        reason: Skipped::Socket,
    };
    let device = Note {
        path: "s/zero".into(),
        reason: Skipped::Device,
    };
    match has_device {
        true => assert_eq!(notes, [socket, device]),
        false => assert_eq!(notes, [socket]),
    }
    let left = listing(&top.path().join("t/s"));
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(left[Path::new("fifo")], "other 10640");
    let alone = cp((top.path(), "s/socket"), (top.path(), "t"));
    assert!(matches!(alone, Err(CopyError::Special(_))), "{alone:?}");
}

#[test]
fn nothing_is_copied_to_itself() {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir_all(top.path().join("s/d")).unwrap();
    fs::write(top.path().join("s/file"), "text").unwrap();
    for (from, to) in [
        ("s", "s/d"),
        ("s", "s/new"),
        ("s", "."),
        ("s/.", "s"),
        ("s/.", "s/d"),
        ("s/file", "s/file"),
        ("s/file", "s"),
        (".", "s"),
    ] {
        let outcome = cp((top.path(), from), (top.path(), to));
        assert!(
            matches!(outcome, Err(CopyError::IntoItself { .. })),
            "{from} {to}: {outcome:?}"
        );
    }
    assert_eq!(fs::read_to_string(top.path().join("s/file")).unwrap(), "text");
}

#[test]
fn files_of_the_kernel_are_not_copied() {
    let top = tempfile::tempdir().unwrap();
    let from = Root::Host;
    let to = root(top.path());
    let to = within(&to);
    let tried = copy_between(
        (&from, Path::new("/proc/self/status")),
        (&to, Path::new("status")),
        false,
        Rules::new(false, false),
        &mut |_| (),
    );
    assert!(matches!(tried, Err(CopyError::OfTheKernel(_))), "{tried:?}");
}

#[test]
fn a_tree_that_is_too_deep_is_refused() {
    let top = tempfile::tempdir().unwrap();
    let mut directory = OwnedFd::from(File::open(top.path()).unwrap());
    for _ in 0..limits::LEVELS + 2 {
        rustix::fs::mkdirat(&directory, "d", Mode::from_raw_mode(0o755)).unwrap();
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        directory = rustix::fs::openat(&directory, "d", flags, Mode::empty()).unwrap();
    }
    let outcome = cp((top.path(), "d"), (top.path(), "t"));
    assert!(matches!(outcome, Err(CopyError::TooDeep(_))), "{outcome:?}");
}

/// An attacker swaps a directory for a link as fast as possible, in the source and in the destination.
#[test]
fn a_directory_that_becomes_a_link_leads_nowhere() {
    let top = tempfile::tempdir().unwrap();
    let (source, target, outside) = (
        top.path().join("source"),
        top.path().join("target"),
        top.path().join("outside"),
    );
    for directory in [source.join("d"), target.join("d"), outside.join("d")] {
        fs::create_dir_all(&directory).unwrap();
    }
    for name in ["1", "2", "3"] {
        fs::write(source.join("d").join(name), "harmless").unwrap();
        fs::write(outside.join(name), "secret").unwrap();
    }
    fs::create_dir(source.join("d/d")).unwrap();
    fs::write(source.join("d/d/file"), "harmless").unwrap();
    for directory in [&source, &target] {
        symlink(&outside, directory.join("other")).unwrap();
    }
    let before = listing(&outside);
    let (mut succeeded, mut failed) = (0, 0);
    for _ in 0..8 {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for directory in [&source, &target] {
                let opened = File::open(directory).unwrap();
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        renameat_with(&opened, "d", &opened, "other", RenameFlags::EXCHANGE).unwrap();
                    }
                });
            }
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(250) {
                for (from, to) in [(".", "."), ("d/.", "d"), ("d/1", "d/1")] {
                    match cp((&source, from), (&target, to)) {
                        Ok(_) => succeeded += 1,
                        Err(_) => failed += 1,
                    }
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let secret = format!("{:?}", b"secret");
        let copied = listing(&target);
        assert!(copied.values().all(|text| !text.contains(&secret)), "{copied:?}");
        assert_eq!(listing(&outside), before);
    }
    assert!(succeeded > 0, "{failed} failed");
}
