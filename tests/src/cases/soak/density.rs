//! Many containers of several images on one daemon: what each process of Xebec takes, counted by container.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use xebec_testkit::compression::Compression;

use super::daemon;
use super::support::{container_image, containers, no_view_is_left, sized, tell_log};
use crate::lab::{Lab, Names, contents, wait_until};
use crate::runner::Outcome;
use crate::world::World;

/// The root that all share.
const ROOT: &str = "root";
/// Containers that are started at a time.
const AT_ONCE: usize = 8;
/// How long all of them may take to run, or to end, for each container.
const PATIENCE: Duration = Duration::from_secs(3);
/// Pause until containers that were told to end are told again.
const AGAIN: Duration = Duration::from_millis(500);
/// Size of the file that is an image's own.
const FILE: usize = 1 << 20;

/// Most bytes of the keeper, its locked memory included: it grows with nothing.
const KEEPER_BYTES: u64 = 32 << 20;
/// Bytes that the worker needs once it has something to do, for all images together: stacks of its threads (at most 16
/// that block, 2 MiB each, locked like all of its memory) and what its allocator keeps for them.
const WORKER_BYTES_AT_WORK: u64 = 64 << 20;
/// Most bytes by which the worker grows with each view (its layers' indexes) and with each container (a holder).
const WORKER_BYTES_PER_VIEW: u64 = 1 << 20;
const WORKER_BYTES_PER_CONTAINER: u64 = 64 << 10;
/// Most descriptors by which the worker grows with each layer: its data and its bitmap.
const DESCRIPTORS_PER_LAYER: u64 = 2;
/// Descriptors for connections, to the registry and to the command line, that may be open at the moment.
const DESCRIPTORS_OF_CONNECTIONS: u64 = 32;
/// Most bytes of its own that a container's supervisor takes.
const SUPERVISOR_BYTES: u64 = 16 << 20;

/// The memory in bytes, and the open descriptors, of a process.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Its share of memory: shared pages are counted in parts (`Pss`).
    share: u64,
    /// All of its memory that is resident (`Rss`).
    resident: u64,
    /// Open descriptors.
    descriptors: u64,
}

pub(super) fn run(world: &World) -> Result<Outcome> {
    let (containers, images) = (sized(20, 200), sized(5, 20));
    let lab = Lab::new(world)?;
    let program = fs::read(World::go_tool("linger")?).context("read the program of the containers")?;
    let names: Vec<Names> = (0..images)
        .map(|number| {
            let image = container_image(
                &program,
                &contents(100 + number as u64, FILE),
                Compression::Gzip(1),
            )?;
            lab.push_indexed(&image, &format!("image{number}"))
        })
        .collect::<Result<_>>()?;
    // A daemon with nothing to do yet.
    lab.xebec(ROOT, &["pull", &names[0].tag])?.expect(0, &[])?;
    let before = processes(&lab)?;
    let begin = Instant::now();
    let mut running = Vec::new();
    let outcome = start(&lab, &names, containers, &mut running)
        .and_then(|()| {
            let started = begin.elapsed();
            figures(&lab, before, &running, images)
                .map(|text| format!("{text}\nstarted in {:.1} s", started.as_secs_f64()))
        })
        .inspect_err(|_| tell_log(&lab, ROOT));
    let ended = end(&mut running);
    let text = outcome?;
    ended?;
    no_view_is_left(&lab, ROOT, PATIENCE * 10)?;
    Ok(Outcome::Passed(text))
}

/// Starts containers, so many of each image, and waits until all of them run.
fn start(lab: &Lab<'_>, names: &[Names], containers: usize, running: &mut Vec<Child>) -> Result<()> {
    for number in 0..containers {
        let name = format!("c{number}");
        let image = &names[number % names.len()].tag;
        running.push(lab.spawn(ROOT, &["run", "--rm", "--name", &name, image, "1h", "/file"])?);
        wait_for(lab, (number + 1).saturating_sub(AT_ONCE), running)?;
    }
    wait_for(lab, containers, running)
}

fn wait_for(lab: &Lab<'_>, wanted: usize, running: &mut [Child]) -> Result<()> {
    wait_until(PATIENCE * u32::try_from(AT_ONCE)?, "containers run", || {
        for child in running.iter_mut() {
            let ended = child.try_wait()?;
            ensure!(ended.is_none(), "a container ended by itself: {ended:?}");
        }
        Ok(wanted == 0 || containers(lab, ROOT)?.len() >= wanted)
    })
}

/// Keeper and worker.
fn processes(lab: &Lab<'_>) -> Result<(Taken, Taken)> {
    let keeper = daemon::keeper(lab, ROOT)?;
    let worker = daemon::worker(lab, ROOT)?.context("no worker")?;
    Ok((taken(keeper)?, taken(worker)?))
}

fn taken(pid: Pid) -> Result<Taken> {
    let directory = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
    let text = fs::read_to_string(directory.join("smaps_rollup")).context("read a process's memory")?;
    let bytes = |name: &str| -> Result<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
        Ok(kibibytes.with_context(|| format!("no {name} in smaps_rollup"))? << 10)
    };
    Ok(Taken {
        share: bytes("Pss:")?,
        resident: bytes("Rss:")?,
        descriptors: fs::read_dir(directory.join("fd"))?.count() as u64,
    })
}

fn figures(lab: &Lab<'_>, before: (Taken, Taken), running: &[Child], images: usize) -> Result<String> {
    let containers = running.len() as u64;
    let (keeper, worker) = processes(lab)?;
    let supervisors: Vec<Taken> = running
        .iter()
        .map(|child| taken(Pid::from_child(child)))
        .collect::<Result<_>>()?;
    let keepers: BTreeSet<PathBuf> = fs::read_dir(lab.path(""))?
        .flatten()
        .map(|entry| entry.path().join("keeper.pid"))
        .filter(|path| path.exists())
        .collect();
    let mean = |of: fn(&Taken) -> u64| supervisors.iter().map(of).sum::<u64>() / containers.max(1);
    let most = supervisors.iter().map(|one| one.descriptors).max().unwrap_or(0);
    let line = |name: &str, before: Taken, after: Taken| {
        format!(
            "{name}: {} -> {} PSS, {} RSS, {} -> {} descriptors; a container: {:.1} KiB PSS, {:.2} descriptors",
            mebibytes(before.share),
            mebibytes(after.share),
            mebibytes(after.resident),
            before.descriptors,
            after.descriptors,
            (after.share as f64 - before.share as f64) / 1024.0 / containers as f64,
            (after.descriptors as f64 - before.descriptors as f64) / containers as f64
        )
    };
    let text = format!(
        "{containers} containers of {images} images, {} daemon\n{}\n{}\na supervisor, one for each container: {} PSS, \
         {} RSS on average, {most} descriptors at most",
        keepers.len(),
        line("keeper", before.0, keeper),
        line("worker", before.1, worker),
        mebibytes(mean(|one| one.share)),
        mebibytes(mean(|one| one.resident)),
    );
    // The program's layer is one for all.
    let layers = images as u64 + 1;
    let worker_bytes = before.1.share
        + WORKER_BYTES_AT_WORK
        + images as u64 * WORKER_BYTES_PER_VIEW
        + containers * WORKER_BYTES_PER_CONTAINER;
    let worker_descriptors =
        before.1.descriptors + layers * DESCRIPTORS_PER_LAYER + DESCRIPTORS_OF_CONNECTIONS;
    for (is_bounded, what) in [
        (keepers.len() == 1, "daemons"),
        (keeper.share <= KEEPER_BYTES, "the keeper's memory"),
        (
            keeper.descriptors <= before.0.descriptors,
            "the keeper's descriptors",
        ),
        (worker.share <= worker_bytes, "the worker's memory"),
        (
            worker.descriptors <= worker_descriptors,
            "the worker's descriptors",
        ),
        (
            mean(|one| one.share) <= SUPERVISOR_BYTES,
            "the supervisors' memory",
        ),
    ] {
        ensure!(is_bounded, "{what} grew beyond its bound\n{text}");
    }
    Ok(text)
}

/// Ends containers as a service manager would. A program that is only just starting has no handler yet, and the first
/// process of a namespace does not get what it does not handle; so each is told again.
fn end(running: &mut Vec<Child>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE * u32::try_from(running.len())?;
    while !running.is_empty() {
        ensure!(
            Instant::now() < deadline,
            "{} containers do not end",
            running.len()
        );
        for child in running.iter() {
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        std::thread::sleep(AGAIN);
        let mut left = Vec::new();
        for mut child in running.drain(..) {
            if child.try_wait()?.is_none() {
                left.push(child);
            }
        }
        *running = left;
    }
    Ok(())
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
