//! Keepers that are killed or replaced, and the one case in which readers may have seen zeros: it is found, and said.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process, test_kill_process};
use serde_json::Value;
use xebec_testkit::compression::Compression;

use crate::lab::{self, Lab, Names, contents, expect_contents, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(240);
/// How long a successor may take on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// Size of the file that is read: many spans.
const FILE: usize = 24 << 20;
/// Upgrades while processes read.
const UPGRADES: usize = 10;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("succession/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("keeper-killed", keeper_killed),
        case("upgrade", upgrade),
        case("upgrade-during-an-outage", upgrade_during_an_outage),
        case("read-by-nobody-known", read_by_nobody_known),
        case("both-killed", both_killed),
    ]
}

pub(super) fn one_file(lab: &Lab<'_>) -> Result<(Names, Vec<u8>)> {
    let bytes = contents(77, FILE);
    let image = lab::image(&[&[("file", &bytes), ("other", b"small")]], Compression::Gzip(4))?;
    Ok((lab.push_indexed(&image, "app")?, bytes))
}

pub(super) fn page(file: &File, offset: usize) -> Result<[u8; 4096]> {
    let mut bytes = [0; 4096];
    file.read_exact_at(&mut bytes, offset as u64)
        .with_context(|| format!("read at {offset}"))?;
    Ok(bytes)
}

/// The keeper alone is killed: the worker starts another, which replaces workers as the first did.
fn keeper_killed(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, wanted) = one_file(&lab)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let file = File::open(mnt.join("file"))?;
    let worker = lab.pid("root", "worker_pid")?;
    let mut waits = Vec::new();
    for round in 0..4 {
        let keeper = lab.pid("root", "keeper_pid")?;
        let killed = Instant::now();
        kill_process(keeper, Signal::KILL)?;
        let offset = (round * 5 + 1) << 20;
        ensure!(
            page(&file, offset)? == wanted[offset..][..4096],
            "wrong bytes in round {round}"
        );
        wait_until(SOON, "another keeper", || {
            Ok(lab.pid("root", "keeper_pid")? != keeper)
        })?;
        waits.push(killed.elapsed());
    }
    ensure!(
        lab.pid("root", "worker_pid")? == worker,
        "the worker was replaced without need"
    );
    kill_process(worker, Signal::KILL)?;
    ensure!(
        page(&file, 22 << 20)? == wanted[22 << 20..][..4096],
        "wrong bytes after the worker"
    );
    ensure!(lab.pid("root", "worker_pid")? != worker, "no new worker");
    drop(file);
    expect_contents(&mnt.join("file"), &wanted)?;
    lab.umount("root", &mnt)?;
    let keeper = lab.pid("root", "keeper_pid")?;
    lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    wait_until(SOON, "the keeper ends", || Ok(test_kill_process(keeper).is_err()))?;
    let worst = waits.iter().max().copied().unwrap_or_default();
    Ok(Outcome::Passed(format!(
        "4 keepers killed, another one after {worst:?} at most; then the worker"
    )))
}

/// Another program takes over while processes read, again and again; one that cannot keep changes nothing.
fn upgrade(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, wanted) = one_file(&lab)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let next = lab.path("next-xebec");
    fs::copy("/proc/self/exe", lab.path("no-xebec"))?;
    let keeper = lab.pid("root", "keeper_pid")?;
    fs::copy(format!("/proc/{}/exe", keeper.as_raw_nonzero()), &next)?;
    let (ended, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let longest = std::thread::scope(|scope| -> Result<Duration> {
        let readers: Vec<_> = (0..4)
            .map(|seed| {
                scope.spawn({
                    let (mnt, wanted, ended, reads) = (&mnt, &wanted, &ended, &reads);
                    move || read_at_random(mnt, wanted, seed, ended, reads)
                })
            })
            .collect();
        let upgraded = (0..UPGRADES).try_for_each(|_| {
            let before = lab.pid("root", "worker_pid")?;
            let program = next.to_string_lossy().into_owned();
            lab.xebec("root", &["daemon", "upgrade", "--program", &program])?
                .expect(0, &["worker"])?;
            ensure!(
                lab.pid("root", "keeper_pid")? == keeper,
                "the keeper is another process"
            );
            ensure!(lab.pid("root", "worker_pid")? != before, "the worker is the same");
            Ok(())
        });
        ended.store(true, Ordering::Relaxed);
        let mut longest = Duration::ZERO;
        for reader in readers {
            longest = longest.max(reader.join().map_err(|_| anyhow::anyhow!("a reader died"))??);
        }
        upgraded.map(|()| longest)
    })?;
    let program = fs::read_link(format!("/proc/{}/exe", keeper.as_raw_nonzero()))?;
    ensure!(program == next.canonicalize()?, "{} runs", program.display());
    let status = lab.status("root")?;
    ensure!(
        status.get("restarts").and_then(Value::as_u64) == Some(0),
        "{status}"
    );
    // A program that is none, and one that is another.
    for (program, code) in [("/nowhere/xebec", 125), ("no-xebec", 2)] {
        let program = lab.path(program).to_string_lossy().into_owned();
        lab.xebec("root", &["daemon", "upgrade", "--program", &program])?
            .expect(code, &[])?;
    }
    expect_contents(&mnt.join("file"), &wanted)?;
    lab.umount("root", &mnt)?;
    lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    let reads = reads.load(Ordering::Relaxed);
    Ok(Outcome::Passed(format!(
        "{UPGRADES} upgrades, {reads} reads right, the longest took {longest:?}"
    )))
}

fn read_at_random(
    mnt: &Path,
    wanted: &[u8],
    seed: u64,
    ended: &AtomicBool,
    reads: &AtomicU64,
) -> Result<Duration> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut longest = Duration::ZERO;
    while !ended.load(Ordering::Relaxed) {
        let file = File::open(mnt.join("file"))?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        let offset = random.usize(..FILE - 4096);
        let begin = Instant::now();
        ensure!(
            page(&file, offset)? == wanted[offset..][..4096],
            "wrong bytes at {offset}"
        );
        longest = longest.max(begin.elapsed());
        reads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(longest)
}

/// The registry is away, readers wait, and the program is replaced: they go on waiting, and get their bytes.
fn upgrade_during_an_outage(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, wanted) = one_file(&lab)?;
    fs::create_dir_all(lab.path("root"))?;
    fs::write(lab.path("root").join("daemon.toml"), "fill_wait = \"2m\"\n")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    lab.registry.set_down(true);
    let begin = Instant::now();
    let offsets: Vec<usize> = (1..6).map(|part| part * (4 << 20)).collect();
    std::thread::scope(|scope| -> Result<()> {
        let readers: Vec<_> = offsets
            .iter()
            .map(|&offset| {
                let file = File::open(mnt.join("file"));
                scope.spawn(move || page(&file?, offset))
            })
            .collect();
        wait_until(SOON, "readers wait", || {
            Ok(lab.status("root")?.get("queue").and_then(Value::as_u64) >= Some(offsets.len() as u64))
        })?;
        for _ in 0..3 {
            lab.xebec("root", &["daemon", "upgrade"])?.expect(0, &[])?;
            std::thread::sleep(Duration::from_millis(300));
        }
        ensure!(
            readers.iter().all(|reader| !reader.is_finished()),
            "a reader did not wait"
        );
        lab.registry.set_down(false);
        for (reader, &offset) in readers.into_iter().zip(&offsets) {
            let got = reader.join().map_err(|_| anyhow::anyhow!("a reader died"))?;
            ensure!(got? == wanted[offset..][..4096], "wrong bytes at {offset}");
        }
        Ok(())
    })?;
    let waited = begin.elapsed();
    lab.umount("root", &mnt)?;
    Ok(Outcome::Passed(format!(
        "{} readers waited {waited:.1?} over 3 upgrades, then had their bytes",
        offsets.len()
    )))
}

/// A container's supervisor is killed: the container reads on, so the daemon stays, though no view is mounted.
fn read_by_nobody_known(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, wanted) = one_file(&lab)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let file = File::open(mnt.join("file"))?;
    lab.umount("root", &mnt)?;
    ensure!(
        page(&file, 3 << 20)? == wanted[3 << 20..][..4096],
        "wrong bytes after the unmount"
    );
    lab.xebec("root", &["daemon", "stop"])?
        .expect(2, &["still read"])?;
    kill_process(lab.pid("root", "worker_pid")?, Signal::KILL)?;
    ensure!(
        page(&file, 9 << 20)? == wanted[9 << 20..][..4096],
        "wrong bytes by another worker"
    );
    drop(file);
    lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    Ok(Outcome::Passed(
        "read on after the unmount, and the daemon stayed for it".to_owned(),
    ))
}

/// A process that has a file open, and reads a page of it each time that it is told to.
struct Holder(Child);

impl Holder {
    fn new(file: &Path) -> Result<Holder> {
        let child = Command::new("sleep")
            .arg("1000")
            .stdin(File::open(file)?)
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Holder(child))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills keeper and worker at the same moment.
pub(super) fn kill_both(lab: &Lab<'_>, root: &str) -> Result<()> {
    let (keeper, worker) = (lab.pid(root, "keeper_pid")?, lab.pid(root, "worker_pid")?);
    // The worker must not have the time to start a keeper.
    kill_process(worker, Signal::STOP)?;
    kill_process(keeper, Signal::KILL)?;
    kill_process(worker, Signal::KILL)?;
    wait_until(SOON, "both are gone", || {
        Ok(test_kill_process(keeper).is_err() && test_kill_process(worker).is_err())
    })
}

/// Keeper and worker die at the same moment: what is read then is zeros, and nothing on this side of the kernel can
/// change that. The next start guards again at once, takes the view away, names who is on it, and mounts a new one.
fn both_killed(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (names, wanted) = one_file(&lab)?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    let file = File::open(mnt.join("file"))?;
    let holder = Holder::new(&mnt.join("other"))?;
    ensure!(page(&file, 1 << 20)? == wanted[1 << 20..][..4096], "wrong bytes");
    kill_both(&lab, "root")?;
    ensure!(
        page(&file, 20 << 20)? == [0; 4096],
        "this kernel guards without a group"
    );
    let again = lab.mount("root", &names.tag, &["--require-lazy"])?;
    expect_contents(&again.join("file"), &wanted)?;
    ensure!(
        fs::read_dir(&mnt)?.next().is_none(),
        "the old view can still be found"
    );
    // Pages that the old view had not read yet are right now; where it had read zeros, it still does.
    ensure!(
        page(&file, 10 << 20)? == wanted[10 << 20..][..4096],
        "the old view is not guarded again"
    );
    let name = holder.0.id().to_string();
    lab.logged("root", &["may have given zeros", &names.tag, &name])?;
    let status = lab.status("root")?;
    let processes = status.pointer("/suspects/0/processes").and_then(Value::as_array);
    let processes = processes.with_context(|| format!("no suspects: {status}"))?;
    let is_named = |wanted: u32| {
        processes
            .iter()
            .any(|process| process.get("pid").and_then(Value::as_u64) == Some(wanted.into()))
    };
    ensure!(
        is_named(holder.0.id()) && is_named(std::process::id()),
        "{status}"
    );
    drop((file, holder));
    wait_until(SOON, "no suspects are left", || {
        let status = lab.status("root")?;
        Ok(status
            .get("suspects")
            .and_then(Value::as_array)
            .is_some_and(Vec::is_empty))
    })?;
    lab.umount("root", &again)?;
    lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    Ok(Outcome::Passed(
        "zeros while nobody guarded; then guarded again, taken away, and both readers named".to_owned(),
    ))
}
