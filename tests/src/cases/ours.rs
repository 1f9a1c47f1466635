//! What is not Xebec's is left alone: mounts of others, directories with files, and all that a mistyped path may name.

use std::fs;
use std::os::unix::fs::symlink;
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
    ]
}

/// The mounts of this namespace, without what counts or may change by itself.
fn table() -> Result<Vec<String>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Nothing but views is unmounted, whatever is named.
fn unmounting(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let file = contents(1, FILE);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(6))?;
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
        ended.expect(NOT_FOUND, &["is not a view of Xebec", "left alone"])?;
    }
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
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(6))?;
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
        (&full.join("kept"), "not a directory"),
    ];
    for (path, why) in attempts {
        let path = path.to_str().context("a path that is no text")?;
        lab.xebec("root", &["mount", &names.tag, path])?
            .expect(USAGE, &[path, why])?;
    }
    ensure!(table()? == before, "something was mounted");
    ensure!(fs::read_to_string(full.join("kept"))? == "theirs");
    run(Command::new("umount").arg(&others))?;

    // One upon the other is allowed: both are views.
    let path = mnt.to_str().context("a path that is no text")?;
    lab.xebec("root", &["mount", &names.tag, path])?.expect(0, &[])?;
    lab.umount("root", &mnt)?;
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
    let image = lab::image(&[&[("file", b"x")]], Compression::Gzip(6))?;
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
