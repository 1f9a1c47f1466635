//! Files and mounts that are not Xebec's are left alone: mounts of others, directories with files, and all that a mistyped path may name.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use xebec_testkit::compression::Compression;

use crate::lab::{self, Lab, contents, expect_contents, mount_small};
use crate::runner::{Case, Outcome};
use crate::world::{World, run};

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Size of the file that the image has.
const FILE: usize = 100_000;
/// Exit codes of the command line.
const USAGE: i32 = 2;
const NOT_FOUND: i32 = 3;
const HOST: i32 = 125;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("ours/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("unmounting", unmounting),
        case("mounting", mounting),
        case("names", names),
        case("directories", directories),
        case("in-the-way", in_the_way),
    ]
}

/// The mounts of this namespace, without what counts or may change by itself.
fn table() -> Result<Vec<String>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Nothing but views is unmounted, whatever path is named.
fn unmounting(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(1, FILE);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "image")?;
    let mnt = lab.mount("root", &names.tag, &[])?;
    expect_contents(&mnt.join("file"), &file)?;

    let others = lab.mount_point("others")?;
    mount_small(&others, 1 << 20)?;
    fs::write(others.join("kept"), "theirs")?;
    let link = lab.path("link");
    symlink(&others, &link)?;
    let plain = lab.mount_point("plain")?;
    let before = table()?;
    let named = |path: &Path| path.display().to_string();
    for path in ["/", "/proc", "/sys", "/dev", "/tmp", "."].map(str::to_owned) {
        lab.xebec("root", &["umount", &path])?.expect(NOT_FOUND, &[])?;
    }
    for path in [&others, &link] {
        let ended = lab.xebec("root", &["umount", &named(path)])?;
        ended.expect(NOT_FOUND, &["is not a view of Xebec", "leaves it alone"])?;
    }
    // One that is there for containers. Nobody is told to take it away himself.
    let status = lab.status("root")?;
    let view = status.pointer("/views/0/path").and_then(|path| path.as_str());
    let ended = lab.xebec("root", &["umount", view.context("no view")?])?;
    ended.expect(NOT_FOUND, &["is a view of Xebec", "leaves it alone"])?;
    ensure!(!ended.err.contains("umount(8)"), "{}", ended.err);
    for path in [&plain, &mnt.join("file")] {
        lab.xebec("root", &["umount", &named(path)])?
            .expect(NOT_FOUND, &["holds no view"])?;
    }
    lab.xebec("root", &["umount", &named(&lab.path("missing"))])?
        .expect(NOT_FOUND, &["missing"])?;
    ensure!(table()? == before, "something was unmounted");

    // Somebody mounts upon the view: that is theirs, and the view waits below it.
    mount_small(&mnt, 1 << 20)?;
    let ended = lab.xebec("root", &["umount", &named(&mnt)])?;
    ended.expect(NOT_FOUND, &["is not a view of Xebec", "ext4"])?;
    run(Command::new("umount").arg(&mnt))?;
    expect_contents(&mnt.join("file"), &file)?;

    // Through a link, a view is found.
    let link = lab.path("link-to-view");
    symlink(&mnt, &link)?;
    lab.umount("root", &link)?;
    ensure!(fs::read_dir(&mnt)?.next().is_none(), "the view is still mounted");
    run(Command::new("umount").arg(&others))?;
    lab.stop("root")?;
    Ok(Outcome::Passed("nothing of others was unmounted".to_owned()))
}

/// A view hides nothing that was there.
fn mounting(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(2, FILE);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "image")?;
    let others = lab.mount_point("others")?;
    mount_small(&others, 1 << 20)?;
    let full = lab.mount_point("full")?;
    fs::write(full.join("kept"), "theirs")?;
    let mnt = lab.mount("root", &names.tag, &[])?;
    let before = table()?;
    let attempts = [
        (Path::new("/"), "is mounted there"),
        (Path::new("/proc"), "is mounted there"),
        (&others, "is mounted there"),
        (&full, "not empty"),
        (&full.join("kept"), "is a file"),
    ];
    for (path, why) in attempts {
        let path = path.to_str().context("a path that is no text")?;
        lab.xebec("root", &["mount", &names.tag, path])?
            .expect(USAGE, &[path, why])?;
    }
    ensure!(table()? == before, "something was mounted");
    ensure!(fs::read_to_string(full.join("kept"))? == "theirs");
    run(Command::new("umount").arg(&others))?;

    // The same image is mounted once, however often it is asked for. Another one is refused.
    let before = table()?;
    let path = mnt.to_str().context("a path that is no text")?;
    lab.xebec("root", &["mount", &names.tag, path])?.expect(0, &[])?;
    ensure!(table()? == before, "it was mounted twice");
    let other = lab::image(&[&[("file", b"other")]], Compression::Gzip(1))?;
    let other = lab.push_indexed(&other, "other")?;
    lab.xebec("root", &["mount", &other.tag, path])?
        .expect(USAGE, &[path, &names.tag])?;
    expect_contents(&mnt.join("file"), &file)?;
    lab.umount("root", &mnt)?;
    lab.xebec("root", &["umount", path])?
        .expect(NOT_FOUND, &["holds no view"])?;
    lab.stop("root")?;
    Ok(Outcome::Passed("nothing of others was hidden".to_owned()))
}

/// Names of containers and images are no paths.
fn names(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let image = lab::image(&[&[("file", b"x")]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "image")?;
    lab.mount("root", &names.tag, &[])?;
    let before = table()?;
    for name in ["..", ".", "/", "../../etc", "a/b", "/etc/passwd", ""] {
        let ended = lab.xebec("root", &["run", "--name", name, &names.tag, "true"])?;
        ended.expect(HOST, &["cannot name a container"])?;
    }
    for image in ["../../etc", "/etc/passwd", "..", "localhost/../x"] {
        let mnt = lab.mount_point("mnt")?;
        let path = mnt.to_str().context("a path that is no text")?;
        lab.xebec("root", &["mount", image, path])?.expect(USAGE, &[])?;
    }
    ensure!(table()? == before, "something was mounted");
    lab.stop("root")?;
    Ok(Outcome::Passed("no name was taken for a path".to_owned()))
}

/// The entries of a directory, with kinds, modes and owners.
fn listing(directory: &Path) -> Result<Vec<u8>> {
    let format = "%p %m %U %y\\n";
    let listed =
        run(Command::new("find")
            .arg(directory)
            .args(["-xdev", "-maxdepth", "2", "-printf", format]))?;
    let mut lines: Vec<&[u8]> = listed.stdout.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    Ok(lines.concat())
}

/// Directories that are not Xebec's, or are it for something else, are not taken for its root or run directory.
fn directories(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let image = lab::image(&[&[("file", b"x")]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "image")?;
    let _mounted = lab.mount("root", &names.tag, &[])?;
    let own = |name: &str| lab.path(name).display().to_string();
    lab.mount_point("mnt")?;
    let home = lab.mount_point("home")?;
    fs::write(home.join(".profile"), "theirs")?;
    fs::create_dir(home.join("layers"))?;
    fs::set_permissions(&home, Permissions::from_mode(0o700))?;
    let (root, run_directory, home, new) = (own("root"), own("root-run"), own("home"), own("new"));
    let inside = |outer: &str| format!("{outer}/inside");
    let attempts: &[(&str, &str, &str)] = &[
        ("/", &new, "one is in the other"),
        (&new, "/", "one is in the other"),
        ("/etc", &new, "not Xebec's"),
        (&new, "/etc", "not Xebec's"),
        (&home, &new, "not Xebec's"),
        (&new, &home, "not Xebec's"),
        (&root, &root, "one is in the other"),
        (&root, &inside(&root), "one is in the other"),
        (&inside(&run_directory), &run_directory, "one is in the other"),
        (&run_directory, &new, "is a run directory"),
        (&new, &root, "is a root directory"),
        (&new, &run_directory, "has another root directory"),
        (&root, &new, "root"),
    ];
    let kept: Vec<&str> = vec!["/etc", &home, &root, &run_directory];
    let look = || {
        kept.iter()
            .map(|path| listing(Path::new(path)))
            .collect::<Result<Vec<_>>>()
    };
    let (before, mounts) = (look()?, table()?);
    for (root, run_directory, why) in attempts {
        let mut command = world.xebec(&["--root", root, "--run", run_directory]);
        let output = command.args(["mount", &names.tag, &own("mnt")]).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            !output.status.success(),
            "--root {root} --run {run_directory}: it was taken"
        );
        ensure!(said.contains(why), "--root {root} --run {run_directory}: {said}");
        let _ = fs::remove_dir_all(&new);
    }
    ensure!(look()? == before, "a directory was changed");
    ensure!(table()? == mounts, "something was mounted or unmounted");
    lab.stop("root")?;
    Ok(Outcome::Passed(format!("{} pairs refused", attempts.len())))
}

/// Mounts of others where Xebec is about to mount, or to clean up, stay, and messages name them.
fn in_the_way(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let image = lab::image(&[&[("file", b"x")]], Compression::Gzip(1))?;
    let names = lab.push_indexed(&image, "image")?;
    lab.xebec("root", &["images"])?.expect(0, &[])?;
    let guarded = lab.path("root-run").join("guarded");
    fs::create_dir_all(&guarded)?;
    mount_small(&guarded, 1 << 20)?;
    fs::write(guarded.join("kept"), "theirs")?;
    let before = table()?;
    let mnt = lab.mount_point("mnt")?;
    let path = mnt.to_str().context("a path that is no text")?;
    let refused = lab.xebec("root", &["mount", &names.tag, path])?;
    refused.expect(HOST, &["left alone", "ext4"])?;
    ensure!(table()? == before, "something was mounted or unmounted");
    ensure!(fs::read_to_string(guarded.join("kept"))? == "theirs");
    run(Command::new("umount").arg(&guarded))?;

    // In the bundle of a container that a killed `xebec run` left.
    lab.xebec("root", &["mount", &names.tag, path])?.expect(0, &[])?;
    let merged = lab.path("root-run").join("bundles/left/merged");
    fs::create_dir_all(&merged)?;
    mount_small(&merged, 1 << 20)?;
    fs::write(merged.join("kept"), "theirs")?;
    // Each run cleans up first.
    lab.xebec("root", &["run", "--rm", &names.tag, "/nothing"])?;
    ensure!(
        fs::read_to_string(merged.join("kept")).is_ok_and(|kept| kept == "theirs"),
        "what was mounted in a bundle is gone"
    );
    run(Command::new("umount").arg(&merged))?;
    lab.umount("root", &mnt)?;
    lab.stop("root")?;
    Ok(Outcome::Passed("at the cache's mount and in a bundle".to_owned()))
}
