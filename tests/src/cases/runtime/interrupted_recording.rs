//! Somebody dies while a service is recorded.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Signal, kill_process};

use super::support::{START, Service, expect_recorded, number};
use crate::lab::{Ended, wait_until};
use crate::runner::Outcome;
use crate::world::World;

/// How often the worker is killed.
const KILLS: usize = 4;

/// Workers are killed one after the other: the recording is whole, or there is none and it is said why.
pub(super) fn of_the_worker(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let words = [&["--repeat", "3", &names.tag[..], "2s"][..], &START[..]].concat();
    let child = service.spawn_record(world, "root", &words)?;
    let mut killed = 0;
    for _ in 0..KILLS {
        std::thread::sleep(Duration::from_millis(fastrand::u64(200..1500)));
        if let Ok(worker) = lab.pid("root", "worker_pid") {
            killed += usize::from(kill_process(worker, Signal::KILL).is_ok());
        }
    }
    ensure!(killed > 0, "nobody was killed");
    let ended: Ended = child.wait_with_output()?.into();
    let start = [&[&names.tag[..], "2s"][..], &START[..]].concat();
    let outcome = if ended.code == 0 {
        let stats = service.start("other", &start)?;
        expect_recorded(&stats)?;
        "recorded all the same".to_owned()
    } else {
        ensure!(!ended.err.trim().is_empty() && ended.code > 0, "{ended:?}");
        format!("code {}: {}", ended.code, ended.err.trim())
    };
    for root in ["root", "other"] {
        service.start(root, &start)?;
        service.expect_truth(root, &names.tag)?;
        service.expect_sound(root, &names.tag)?;
    }
    service.record("root", &start)?;
    nothing_left(&service, "root")?;
    Ok(Outcome::Passed(format!("{killed} workers killed; {outcome}")))
}

/// A recorder that is killed leaves nothing, and the next one works.
pub(super) fn of_the_recorder(world: &World) -> Result<Outcome> {
    let service = Service::new(world)?;
    let lab = &service.lab;
    let names = lab.push_indexed(&service.image, "app")?;
    let words = [&[&names.tag[..], "100s"][..], &START[..]].concat();
    let containers = lab.path("root/containers");
    for round in 0..3u64 {
        let mut child = service.spawn_record(world, "root", &words)?;
        wait_until(Duration::from_secs(60), "a container", || {
            Ok(!entries(&containers).is_empty())
        })?;
        // Before it runs, while it reads, and long after.
        std::thread::sleep(Duration::from_millis(round * 400));
        child.kill()?;
        child.wait()?;
        wait_until(Duration::from_secs(30), "the recording's mount is gone", || {
            Ok(recording_mounts(&lab.path("root-run"))?.is_empty()
                && entries(&lab.path("root-run/recordings")).is_empty())
        })
        .with_context(|| format!("round {round}: {:?}", recording_mounts(&lab.path("root-run"))))?;
        let stats = service.start("root", &[&names.tag])?;
        ensure!(number(&stats, "/fills/failures")? == 0, "{stats:#}");
        let left = entries(&containers);
        ensure!(left.is_empty(), "containers are left: {left:?}");
    }
    service.record("root", &[&names.tag])?;
    let stats = service.start("other", &[&names.tag])?;
    expect_recorded(&stats)?;
    service.expect_truth("root", &names.tag)?;
    service.expect_truth("other", &names.tag)?;
    nothing_left(&service, "root")?;
    Ok(Outcome::Passed("three recorders killed; nothing left".to_owned()))
}

/// No recording's mount and no container is left in a root.
fn nothing_left(service: &Service<'_>, root: &str) -> Result<()> {
    let run = service.lab.path(&format!("{root}-run"));
    wait_until(Duration::from_secs(30), "no recording is mounted", || {
        Ok(recording_mounts(&run)?.is_empty())
    })?;
    let containers = entries(&service.lab.path(root).join("containers"));
    ensure!(containers.is_empty(), "containers are left: {containers:?}");
    Ok(())
}

fn recording_mounts(run: &Path) -> Result<Vec<String>> {
    mounted_below(&run.join("recordings"))
}

/// The mounts below a directory.
pub(super) fn mounted_below(directory: &Path) -> Result<Vec<String>> {
    let below = directory.to_string_lossy().into_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let lines = mounts.lines().filter(|line| line.contains(&below));
    Ok(lines.map(str::to_owned).collect())
}

pub(super) fn entries(directory: &Path) -> Vec<String> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
