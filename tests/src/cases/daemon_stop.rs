//! Daemons that are told to end while processes read: missing pages are refused, local ones given, nothing is zeros.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use xebec_testkit::registry::{Fault, When};

use super::succession::one_file;
use crate::lab::{Lab, expect_contents, is_eio, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
/// How long the daemon may take to notice that nobody reads any more, on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// Offset of a page that is read before the stop.
const LOCAL: usize = 1 << 20;
/// How often something is tried that needs a machine which is not too busy.
const ATTEMPTS: usize = 5;
/// Offset of a page that nobody has read.
const MISSING: usize = 20 << 20;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("succession/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("stop-by-force", stop_by_force),
        case("stop-by-force-in-an-outage", stop_in_an_outage),
        case("stop-by-signal", stop_by_signal),
        case("stop-while-replaced", stop_while_replaced),
        case("stop-while-pulling", stop_while_pulling),
        case("cache-removed", cache_removed),
    ]
}

/// Something that has a view in a mount namespace of its own, as a container has, and no file of it open.
struct Namespace(Child);

impl Namespace {
    fn new() -> Result<Self> {
        let child = Command::new("unshare")
            .args(["--mount", "sleep", "1000"])
            .spawn()?;
        let namespace = Self(child);
        let is_own = || Ok(fs::read_link(namespace.at("ns/mnt"))? != fs::read_link("/proc/self/ns/mnt")?);
        wait_until(SOON, "a mount namespace", is_own)?;
        Ok(namespace)
    }

    fn at(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.0.id().to_string()).join(name)
    }

    /// Opens a file by its path in the namespace.
    fn open(&self, path: &Path) -> Result<File> {
        let path = self.at("root").join(path.strip_prefix("/")?);
        File::open(&path).with_context(|| format!("open {}", path.display()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A page, from its file system and not from the page cache.
fn read(file: &File, offset: usize) -> io::Result<[u8; 4096]> {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, offset as u64)?;
    Ok(bytes)
}

fn expect_page(file: &File, offset: usize, wanted: &[u8]) -> Result<()> {
    let bytes = read(file, offset).with_context(|| format!("read at {offset}"))?;
    ensure!(bytes == wanted[offset..][..4096], "wrong bytes at {offset}");
    Ok(())
}

fn expect_refused(file: &File, offset: usize) -> Result<()> {
    ensure!(
        is_eio(&read(file, offset))?,
        "the page at {offset} is not refused"
    );
    Ok(())
}

fn is_ending(lab: &Lab<'_>) -> Result<bool> {
    let status = lab.status("root")?;
    let ending = status.get("ending").and_then(Value::as_bool);
    ending.with_context(|| format!("not said in {status}"))
}

fn wait_for_the_end(keeper: Pid) -> Result<()> {
    wait_until(SOON, "the daemon ends", || Ok(test_kill_process(keeper).is_err()))
}

/// Stopped by force while something like a container reads on: refused until somebody wants the image again; then
/// stopped again, and gone with the reader.
fn stop_by_force(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, wanted) = one_file(&lab)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_page(&File::open(mnt.join("file"))?, LOCAL, &wanted)?;
    let namespace = Namespace::new()?;
    let (keeper, worker) = (lab.pid("root", "keeper_pid")?, lab.pid("root", "worker_pid")?);
    let stop = || {
        lab.xebec("root", &["daemon", "stop", "--force"])?
            .expect(0, &["still read", "EIO", "The daemon stops"])
    };
    stop()?;
    ensure!(fs::read_dir(&mnt)?.next().is_none(), "the view is still mounted");
    ensure!(is_ending(&lab)?, "the status does not say that it is ending");
    let file = namespace.open(&mnt.join("file"))?;
    expect_refused(&file, MISSING)?;
    expect_page(&file, LOCAL, &wanted)?;
    lab.logged("root", &["a reader gets EIO", "told to stop"])?;
    // Not because nobody had looked yet: it looks every few seconds, and reads do not mislead it.
    for _ in 0..40 {
        expect_refused(&file, MISSING)?;
        expect_page(&file, LOCAL, &wanted)?;
        std::thread::sleep(Duration::from_millis(100));
    }
    lab.xebec("root", &["daemon", "stop"])?
        .expect(2, &["still read"])?;
    // Somebody wants the image.
    let again = lab.mount("root", &names.tag, &["--require-lazy"])?;
    ensure!(!is_ending(&lab)?, "still ending with a view mounted");
    expect_page(&file, MISSING, &wanted)?;
    expect_contents(&again.join("other"), b"small")?;
    ensure!(
        (lab.pid("root", "keeper_pid")?, lab.pid("root", "worker_pid")?) == (keeper, worker),
        "another daemon"
    );
    // Stopped again.
    stop()?;
    expect_refused(&file, 10 << 20)?;
    expect_page(&file, MISSING, &wanted)?;
    drop(file);
    drop(namespace);
    wait_for_the_end(keeper)?;
    let third = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&third.join("file"), &wanted)?;
    lab.umount("root", &third)?;
    lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    Ok(Outcome::Passed(
        "missing pages refused, local ones right; right again with a new mount; ended with the reader"
            .to_owned(),
    ))
}

/// The registry is away, a reader waits, and all of the image is being brought in: neither keeps the daemon.
fn stop_in_an_outage(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, _) = one_file(&lab)?;
    fs::create_dir_all(lab.path("root"))?;
    fs::write(lab.path("root").join("daemon.toml"), "fill_wait = \"10m\"\n")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let keeper = lab.pid("root", "keeper_pid")?;
    lab.registry.set_down(true);
    let whole = lab.mount("root", &names.tag, &["--require-lazy", "--complete=1m"])?;
    let file = File::open(mnt.join("file"))?;
    std::thread::scope(|scope| -> Result<()> {
        let reader = scope.spawn(|| read(&file, MISSING));
        wait_until(SOON, "a reader waits", || {
            Ok(lab.status("root")?.get("queue").and_then(Value::as_u64) >= Some(1))
        })?;
        lab.xebec("root", &["daemon", "stop", "--force"])?
            .expect(0, &["still read"])?;
        let read = reader.join().map_err(|_| anyhow::anyhow!("the reader died"))?;
        ensure!(is_eio(&read)?, "the reader is not refused");
        Ok(())
    })?;
    ensure!(fs::read_dir(&whole)?.next().is_none(), "a view is still mounted");
    drop(file);
    wait_for_the_end(keeper)?;
    Ok(Outcome::Passed(
        "a reader that waited is refused, and the daemon ends after it".to_owned(),
    ))
}

/// The keeper of a daemon that a command started is told to end by a signal: the same, but it takes no more images.
fn stop_by_signal(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, wanted) = one_file(&lab)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let file = File::open(mnt.join("file"))?;
    expect_page(&file, LOCAL, &wanted)?;
    let keeper = lab.pid("root", "keeper_pid")?;
    kill_process(keeper, Signal::TERM)?;
    wait_until(SOON, "the daemon is ending", || is_ending(&lab))?;
    expect_refused(&file, MISSING)?;
    expect_page(&file, LOCAL, &wanted)?;
    ensure!(fs::read_dir(&mnt)?.next().is_none(), "the view is still mounted");
    lab.try_mount("root", &names.tag, &[])?
        .expect(125, &["told to end"])?;
    // The next worker knows it, too.
    let worker = lab.pid("root", "worker_pid")?;
    kill_process(worker, Signal::KILL)?;
    wait_until(SOON, "another worker is ending", || {
        Ok(lab.pid("root", "worker_pid")? != worker && is_ending(&lab)?)
    })?;
    expect_refused(&file, MISSING)?;
    expect_page(&file, LOCAL, &wanted)?;
    lab.logged("root", &["told to stop, but", "still read"])?;
    drop(file);
    wait_for_the_end(keeper)?;
    let again = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&again.join("file"), &wanted)?;
    lab.umount("root", &again)?;
    Ok(Outcome::Passed(
        "missing pages refused, local ones right, over a worker's death; ended with the reader".to_owned(),
    ))
}

/// The worker is replaced while it carries a stop out, as when another program takes over just then: it is stopped all the
/// same, as its client is told.
fn stop_while_replaced(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, _) = one_file(&lab)?;
    for attempt in 1..=ATTEMPTS {
        let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
        let (keeper, worker) = (lab.pid("root", "keeper_pid")?, lab.pid("root", "worker_pid")?);
        let file = File::open(mnt.join("file"))?;
        let stopped = std::thread::scope(|scope| {
            let stop = scope.spawn(|| lab.xebec("root", &["daemon", "stop", "--force"]));
            // Refused by it: it waits for the reader to end, for a moment.
            wait_until(SOON, "the daemon is ending", || is_ending(&lab))?;
            // The signal of a keeper to a worker that another program is to replace (keeper/src, REPLACE).
            kill_process(worker, Signal::USR2)?;
            std::thread::sleep(Duration::from_millis(100));
            drop(file);
            stop.join().map_err(|_| anyhow::anyhow!("the client died"))?
        })?;
        if stopped.out.contains("still read") || stopped.err.contains("still read") {
            // The machine was too busy for the reader to end in that moment.
            wait_until(SOON, "the daemon goes on or ends", || {
                Ok(test_kill_process(worker).is_err())
            })?;
            lab.xebec("root", &["daemon", "stop", "--force"])?
                .expect(0, &[])?;
            continue;
        }
        stopped.expect(0, &[])?;
        wait_for_the_end(keeper)?;
        return Ok(Outcome::Passed(format!("at attempt {attempt}")));
    }
    anyhow::bail!("the reader was never ended in time")
}

/// The registry is silent while images are brought here, in each way: a stop without force ends the commands that wait, and the
/// daemon, and each of them says so. The same command goes on later.
fn stop_while_pulling(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, wanted) = one_file(&lab)?;
    lab.settle_patiently("root")?;
    let place = lab.mount_point("mnt")?.to_string_lossy().into_owned();
    let commands: [(&str, When, &[&str]); 4] = [
        ("pull", When::manifest(), &["pull", &names.tag]),
        ("mount", When::manifest(), &["mount", &names.tag, &place]),
        ("check", When::blob(), &["check", "--prove", "--all", &names.tag]),
        ("pull", When::blob(), &["pull", "--complete", &names.tag]),
    ];
    let mut took = Vec::new();
    for (name, when, words) in commands {
        lab.registry.inject(when, Fault::Hang);
        lab.registry.clear_log();
        let (stopped, ended) = std::thread::scope(|scope| -> Result<_> {
            let waiting = scope.spawn(|| lab.xebec("root", words));
            wait_until(SOON, "the registry is asked", || {
                Ok(!lab.registry.log().is_empty())
            })?;
            // Meanwhile it asks, or waits for the next try.
            std::thread::sleep(Duration::from_millis(500));
            let keeper = lab.pid("root", "keeper_pid")?;
            let began = Instant::now();
            lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
            let took = began.elapsed();
            wait_for_the_end(keeper)?;
            let ended = waiting.join().map_err(|_| anyhow::anyhow!("{name} died"))??;
            Ok((took, ended))
        })?;
        ended
            .expect(125, &["told to stop"])
            .with_context(|| words.join(" "))?;
        ensure!(stopped < SOON, "{name}: stopped after {stopped:?}");
        took.push(format!("{:.1} s", stopped.as_secs_f64()));
        lab.registry.clear_faults();
        let ended = lab.xebec("root", &["daemon", "status"])?;
        ended.expect(3, &["no daemon is running"])?;
    }
    lab.xebec("root", &["pull", "--complete", &names.tag])?
        .expect(0, &[])?;
    lab.registry.set_down(true);
    let mounted = lab.mount("root", &names.digest, &["--require-lazy"])?;
    expect_contents(&mounted.join("file"), &wanted)?;
    lab.umount("root", &mounted)?;
    Ok(Outcome::Passed(format!("stops took {}", took.join(", "))))
}

/// Somebody removes the root directory to start afresh, and the daemon runs on: commands say so, a stop by force ends it, and then
/// images are mounted again.
fn cache_removed(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, wanted) = one_file(&lab)?;
    let mounted = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let keeper = lab.pid("root", "keeper_pid")?;
    fs::remove_dir_all(lab.path("root"))?;
    lab.settle_patiently("root")?;
    let refused = lab.xebec("root", &["pull", &names.tag])?;
    refused.expect(125, &["was removed while the daemon runs", "daemon stop --force"])?;
    lab.xebec("root", &["daemon", "status"])?.expect(0, &[])?;
    lab.xebec("root", &["daemon", "stop", "--force"])?
        .expect(0, &[])?;
    wait_for_the_end(keeper)?;
    ensure!(fs::read_dir(&mounted)?.next().is_none(), "it is still mounted");
    let again = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&again.join("file"), &wanted)?;
    // The same when the daemon was killed instead: what it had mounted is in nobody's way.
    fs::remove_dir_all(lab.path("root"))?;
    lab.settle_patiently("root")?;
    let (keeper, worker) = (lab.pid("root", "keeper_pid")?, lab.pid("root", "worker_pid")?);
    kill_process(worker, Signal::STOP)?;
    kill_process(keeper, Signal::KILL)?;
    kill_process(worker, Signal::KILL)?;
    wait_for_the_end(worker)?;
    let last = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&last.join("file"), &wanted)?;
    lab.umount("root", &last)?;
    Ok(Outcome::Passed(refused.err.trim().to_owned()))
}
