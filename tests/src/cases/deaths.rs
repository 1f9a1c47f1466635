//! Killed processes: workers under many readers, commands at any moment, and the whole daemon once an image is
//! complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xebec_testkit::compression::Compression;
use xebec_testkit::image::Image;
use xebec_testkit::registry::{Fault, When};

use crate::lab::{self, Lab, contents, expect_contents, read_cold, wait_until};
use crate::runner::{Case, Outcome};
use crate::world::World;

/// Longest that one case may take, on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
/// Processes that read at once.
const READERS: usize = 16;
/// Layers, and files in each, of the image that they read: so many fills that workers die in the midst of some.
const LAYERS: usize = 4;
const FILES: usize = 24;
/// Size of a file: an odd one, so that its last page is not full.
const FILE: usize = 700_001;
/// Time between two kills. A worker needs a part of it to start; what kills three workers is denied, and readers
/// whose events are owed for three kills in a row would be taken for such.
const BETWEEN_KILLS: Duration = Duration::from_millis(700);
/// Commands that are killed.
const COMMANDS: usize = 50;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, run: fn(&World) -> Result<Outcome>| Case {
        name: format!("deaths/{name}"),
        limit: LIMIT,
        run: Box::new(run),
    };
    vec![
        case("workers-under-readers", workers_under_readers),
        case("commands", commands),
        case("daemon-of-a-complete-image", daemon_of_a_complete_image),
    ]
}

fn path(layer: usize, file: usize) -> String {
    format!("layer{layer}/file{file}")
}

fn file(layer: usize, file: usize) -> Vec<u8> {
    contents((layer * FILES + file) as u64, FILE)
}

fn many_files() -> Result<Image> {
    let files = |layer| (0..FILES).map(move |number| (path(layer, number), file(layer, number)));
    let layers: Vec<Vec<(String, Vec<u8>)>> = (0..LAYERS).map(|layer| files(layer).collect()).collect();
    let borrowed: Vec<Vec<(&str, &[u8])>> = layers
        .iter()
        .map(|files| {
            files
                .iter()
                .map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
                .collect()
        })
        .collect();
    let slices: Vec<&[(&str, &[u8])]> = borrowed.iter().map(Vec::as_slice).collect();
    lab::image(&slices, Compression::Gzip(4))
}

fn process(status: &Value, name: &str) -> Result<Pid> {
    let pid = status.get(name).and_then(Value::as_i64);
    let pid = pid
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw);
    pid.with_context(|| format!("no {name} in {status}"))
}

/// Sixteen readers of a slow registry, while worker after worker is killed: not one error, not one wrong byte.
fn workers_under_readers(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let names = lab.push_indexed(&many_files()?, "app")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy"])?;
    // So slow that there are always fills under way, yet no fill outlives two workers.
    lab.registry
        .inject(When::blob().range(true), Fault::Delay(Duration::from_millis(120)));
    let (ended, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut kills = 0;
    let results: Vec<Result<()>> = std::thread::scope(|scope| -> Result<_> {
        let readers: Vec<_> = (0..READERS)
            .map(|number| {
                let (mnt, reads) = (&mnt, &reads);
                scope.spawn(move || read_all(mnt, number as u64, reads))
            })
            .collect();
        let killer = scope.spawn(|| -> Result<u32> {
            let mut kills = 0;
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(BETWEEN_KILLS);
                kill_process(process(&lab.status("root")?, "worker_pid")?, Signal::KILL)?;
                kills += 1;
            }
            Ok(kills)
        });
        let results = readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|_| Ok(())))
            .collect();
        ended.store(true, Ordering::Relaxed);
        kills = killer.join().map_err(|_| anyhow::anyhow!("the killer died"))??;
        Ok(results)
    })?;
    let wrong: Vec<String> = results
        .into_iter()
        .filter_map(Result::err)
        .map(|error| format!("{error:#}"))
        .collect();
    ensure!(wrong.is_empty(), "after {kills} kills: {}", wrong.join("\n"));
    let restarts = lab
        .status("root")?
        .get("restarts")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    ensure!(
        kills >= 3 && restarts >= u64::from(kills),
        "{kills} kills, {restarts} restarts"
    );
    let checked = lab.check("root", &names.tag)?;
    ensure!(checked.wrong == 0, "{checked:?}");
    let reads = reads.load(Ordering::Relaxed);
    Ok(Outcome::Passed(format!(
        "{reads} files right in {READERS} readers over {kills} kills"
    )))
}

/// Reads every file once, in an order of this reader's own.
fn read_all(mnt: &Path, seed: u64, reads: &AtomicU64) -> Result<()> {
    let mut order: Vec<usize> = (0..LAYERS * FILES).collect();
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    for number in order {
        let (layer, number) = (number / FILES, number % FILES);
        let name = path(layer, number);
        let bytes = fs::read(mnt.join(&name)).with_context(|| format!("read {name}"))?;
        ensure!(bytes == file(layer, number), "{name} has wrong bytes");
        reads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Commands of every kind are killed at any moment; the daemon and the cache stay whole, and all later commands work.
fn commands(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (one, two) = (contents(31, 2 << 20), contents(32, 2 << 20));
    let first = lab.push_indexed(&lab::image(&[&[("file", &one)]], Compression::Gzip(6))?, "first")?;
    let second = lab.push(&lab::image(&[&[("file", &two)]], Compression::Gzip(6))?, "second");
    let directories: Vec<PathBuf> = (0..4)
        .map(|number| lab.mount_point(&format!("mnt{number}")))
        .collect::<Result<_>>()?;
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..COMMANDS {
        let place = directories[random.usize(..directories.len())]
            .to_string_lossy()
            .into_owned();
        let image = if random.bool() { &first.tag } else { &second.tag };
        let arguments = match random.u8(..7) {
            0..=2 => vec!["mount", image, &place],
            3 => vec!["umount", &place],
            4 => vec!["index", "--push", image],
            5 => vec!["pull", "--complete", image],
            _ => vec!["check", "--prove", image],
        };
        let mut child = lab.spawn("root", &arguments)?;
        std::thread::sleep(Duration::from_millis(random.u64(..250)));
        child.kill()?;
        child.wait()?;
    }
    for directory in &directories {
        let place = directory.to_string_lossy().into_owned();
        // What a killed command asked for goes on; it may be mounting still.
        wait_until(Duration::from_secs(20), "unmounted", || {
            let ended = lab.xebec("root", &["umount", &place])?;
            Ok(ended.code != 0 && fs::read_dir(directory)?.next().is_none())
        })?;
    }
    for (names, wanted) in [(&first, &one), (&second, &two)] {
        let mnt = lab.mount("root", &names.tag, &[])?;
        expect_contents(&mnt.join("file"), wanted)?;
        lab.umount("root", &mnt)?;
        let checked = lab.check("root", &names.tag)?;
        ensure!(checked.wrong == 0, "{checked:?}");
        lab.xebec("root", &["index", "--push", &names.tag])?
            .expect(0, &[])?;
    }
    wait_until(Duration::from_secs(20), "no view is left", || {
        let status = lab.status("root")?;
        Ok(status
            .get("views")
            .and_then(Value::as_array)
            .is_some_and(Vec::is_empty))
    })?;
    lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let left = mounts
        .lines()
        .filter(|line| line.contains(&*lab.path("root-run").to_string_lossy()))
        .count();
    ensure!(left == 0, "{left} mounts left:\n{mounts}");
    Ok(Outcome::Passed(format!(
        "{COMMANDS} commands killed, then everything works and nothing is left"
    )))
}

/// Once an image is complete its readers need no daemon; and a new one takes over what the dead one left mounted.
fn daemon_of_a_complete_image(world: &World) -> Result<Outcome> {
    let lab = Lab::new(world)?;
    let (one, two) = (contents(33, 3 << 20), contents(34, 3 << 20));
    let image = lab::image(&[&[("one", &one)], &[("two", &two)]], Compression::Gzip(6))?;
    let names = lab.push_indexed(&image, "app")?;
    let mnt = lab.mount("root", &names.tag, &["--require-lazy", "--complete"])?;
    // Held open by a reader that has read a part of it.
    let held = fs::File::open(mnt.join("one")).context("open a file of a fresh mount")?;
    wait_until(Duration::from_secs(30), "complete", || {
        let status = lab.status("root")?;
        let view = status.pointer("/views/0").context("no view")?;
        let is_complete = view.get("layers") == view.get("complete_layers");
        // Proven too, so that it can be mounted by digest without the registry.
        Ok(is_complete && lab.daemon_log("root")?.matches("is proven").count() == 2)
    })?;
    let status = lab.status("root")?;
    let (keeper, worker) = (process(&status, "keeper_pid")?, process(&status, "worker_pid")?);
    kill_process(keeper, Signal::KILL)?;
    let _ = kill_process(worker, Signal::KILL);
    wait_until(Duration::from_secs(10), "the daemon is gone", || {
        Ok(rustix::process::test_kill_process(keeper).is_err()
            && rustix::process::test_kill_process(worker).is_err())
    })?;
    lab.registry.set_down(true);
    let begin = Instant::now();
    expect_contents(&mnt.join("one"), &one)?;
    expect_contents(&mnt.join("two"), &two)?;
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(&held, &mut byte, 12345)?;
    ensure!(byte[0] == one[12345], "a file that was open reads wrong");
    let took = begin.elapsed();
    // The next daemon cannot know what readers of the dead one saw: it takes old mounts away, and says so.
    let again = lab.mount("root", &names.digest, &["--require-lazy"])?;
    expect_contents(&again.join("two"), &two)?;
    lab.logged("root", &["left from a daemon that was killed"])?;
    if let Ok(bytes) = read_cold(&mnt.join("one")) {
        ensure!(bytes == one, "the old mount shows something else");
    }
    lab.umount("root", &again)?;
    lab.xebec("root", &["daemon", "stop"])?.expect(0, &[])?;
    Ok(Outcome::Passed(format!(
        "right without keeper, worker and registry ({took:?}), and after a new daemon"
    )))
}
