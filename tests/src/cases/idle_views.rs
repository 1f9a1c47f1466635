//! A view that nobody uses any more stays mounted for the next start, and in nobody's way.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use xebec_testkit::compression::Compression;

use crate::lab::{self, Lab, Names, contents, expect_contents, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// Size of the file that each image has.
const FILE: usize = 300_000;
/// Views that linger at a time.
const MOST: u64 = 8;
/// Asks statx for a number of a mount that is never used again.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("lingering/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("used-again", used_again),
        case("goes-first", goes_first),
        case("for-a-while", for_a_while),
        case("trust", trust),
    ]
}

/// An image with one file, `file`, of contents that its number determines.
fn push(lab: &Lab<'_>, number: u64) -> Result<Names> {
    let file = contents(number, FILE);
    let image = lab::image(&[&[("file", &file)]], Compression::Gzip(1))?;
    lab.push_indexed(&image, &format!("image{number}"))
}

/// Mounts an image, reads its file cold, and unmounts it.
fn use_once(lab: &Lab<'_>, names: &Names, number: u64) -> Result<()> {
    let mnt = lab.mount("root", &names.tag, &[])?;
    expect_contents(&mnt.join("file"), &contents(number, FILE))?;
    lab.umount("root", &mnt)
}

/// Numbers of the daemon's mounts of views, which are never used again.
fn mounts(lab: &Lab<'_>) -> Result<Vec<u64>> {
    let entries = fs::read_dir(lab.path("root-run/views")).into_iter().flatten();
    let paths = entries.flatten().map(|entry| entry.path());
    let paths: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    let mut found = paths.iter().map(|path| mount(path)).collect::<Result<Vec<_>>>()?;
    found.sort_unstable();
    Ok(found)
}

fn mount(path: &Path) -> Result<u64> {
    let status = rustix::fs::statx(CWD, path, AtFlags::empty(), MNT_ID_UNIQUE)?;
    Ok(status.stx_mnt_id)
}

fn lingering(lab: &Lab<'_>) -> Result<u64> {
    let status = lab.status("root")?;
    let held = status.get("views").and_then(Value::as_array);
    ensure!(held.is_some_and(Vec::is_empty), "{status:#}");
    let number = status.get("lingering_views").and_then(Value::as_u64);
    number.context("no number of lingering views")
}

/// The next start finds the mount of the last one, also when another worker has come between, and when it goes on with
/// another one's view it is the whole image.
fn used_again(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = push(&lab, 1)?;
    use_once(&lab, &names, 1)?;
    let first = mounts(&lab)?;
    ensure!(first.len() == 1 && lingering(&lab)? == 1, "{first:?}");
    use_once(&lab, &names, 1)?;
    ensure!(mounts(&lab)? == first, "it was mounted again");
    kill_process(lab.pid("root", "worker_pid")?, Signal::KILL)?;
    use_once(&lab, &names, 1)?;
    ensure!(mounts(&lab)? == first, "another worker mounted it again");
    use_once(&lab, &names, 1)?;
    ensure!(mounts(&lab)? == first, "another worker mounted it again later");
    // It is there while it is used and afterwards.
    let mnt = lab.mount("root", &names.tag, &[])?;
    let other = push(&lab, 2)?;
    use_once(&lab, &other, 2)?;
    expect_contents(&mnt.join("file"), &contents(1, FILE))?;
    lab.umount("root", &mnt)?;
    ensure!(lingering(&lab)? == 2 && mounts(&lab)?.contains(&first[0]));
    lab.stop("root")?;
    let after = mounts(&lab)?;
    ensure!(after.is_empty(), "still mounted after the end: {after:?}");
    Ok(Outcome::Passed("one mount for five starts".to_owned()))
}

/// It keeps nobody from removing, evicting or ending.
fn goes_first(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (one, two) = (push(&lab, 1)?, push(&lab, 2)?);
    use_once(&lab, &one, 1)?;
    lab.xebec("root", &["rmi", &one.tag])?.expect(0, &[])?;
    ensure!(mounts(&lab)?.is_empty(), "it is mounted though its image is gone");
    use_once(&lab, &one, 1)?;
    use_once(&lab, &two, 2)?;
    let collected = lab.xebec("root", &["cache", "gc", "--to", "0", "--json"])?;
    collected.expect(0, &[])?;
    ensure!(!collected.out.contains("in use"), "{collected:?}");
    ensure!(mounts(&lab)?.is_empty(), "it is mounted though its layer is gone");
    use_once(&lab, &two, 2)?;
    ensure!(lingering(&lab)? == 1);
    lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    ensure!(
        mounts(&lab)?.is_empty(),
        "it is mounted though the daemon has ended"
    );
    use_once(&lab, &two, 2)?;
    // Somebody else's hand: the next start is not shown an empty directory.
    let views = fs::read_dir(lab.path("root-run/views"))?;
    let view = views
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.is_dir());
    rustix::mount::unmount(view.context("no view")?, rustix::mount::UnmountFlags::empty())?;
    use_once(&lab, &two, 2)?;
    ensure!(lingering(&lab)? == 1);
    Ok(Outcome::Passed("gone for rmi, gc and stop".to_owned()))
}

/// Not for ever, and not any number of them.
fn for_a_while(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    for number in 0..MOST + 3 {
        use_once(&lab, &push(&lab, number)?, number)?;
    }
    ensure!(lingering(&lab)? == MOST);
    lab.stop("root")?;
    lab.daemon_settings("root", "linger = \"1s\"\n")?;
    let names = push(&lab, 1)?;
    use_once(&lab, &names, 1)?;
    wait_until(LIMIT, "it is unmounted after its time", || {
        Ok(mounts(&lab)?.is_empty() && lingering(&lab)? == 0)
    })?;
    lab.stop("root")?;
    lab.daemon_settings("root", "linger = \"0s\"\n")?;
    use_once(&lab, &names, 1)?;
    ensure!(mounts(&lab)?.is_empty(), "it lingers though that is not wanted");
    Ok(Outcome::Passed(format!("{MOST} at a time, and a second")))
}

/// An image that is not trusted any more is not started because it is mounted.
fn trust(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = push(&lab, 1)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    lab.umount("root", &mnt)?;
    ensure!(lingering(&lab)? == 1);
    // By digest more is asked of its index than that the registry lists it.
    let refused = lab.try_mount("root", &names.digest, &["--require-lazy"])?;
    refused.expect(6, &[])?;
    lab.trust("root", "registry-root = \"never\"\n")?;
    let refused = lab.try_mount("root", &names.tag, &["--require-lazy"])?;
    refused.expect(6, &["never"])?;
    ensure!(lingering(&lab)? == 1, "what is refused uses nothing");
    Ok(Outcome::Passed(refused.err.trim().to_owned()))
}
