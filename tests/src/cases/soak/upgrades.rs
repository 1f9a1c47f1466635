//! Keepers are replaced under load, by another program and after `SIGKILL`: no wrong byte, no error, nobody stuck.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xebec_testkit::large::Large;
use xebec_testkit::registry::{Fault, When};

use super::daemon;
use super::load::Load;
use super::rounds::{self, Round};
use super::support::{push_large, sized};
use super::waits::{Span, Waits};
use crate::lab::{Lab, wait_until};
use crate::runner::Outcome;
use crate::world::World;

/// How long the registry takes for each answer, so that fills are under way.
const DELAY: Duration = Duration::from_millis(50);
/// Time between two replacements, in milliseconds.
const BETWEEN: std::ops::Range<u64> = 100..1_500;
/// How long a worker may take to set another keeper in the place of a dead one.
const SUCCESSION: Duration = Duration::from_secs(20);

pub(super) fn run(world: &World) -> Result<Outcome> {
    let large = Large {
        layers: sized(4, 8),
        files: sized(1_000, 20_000),
        bytes: sized(100_000_000, 2_000_000_000),
        seed: 4,
    };
    let (walkers, times) = (sized(12, 32), sized(2, 50));
    let lab = Lab::new(world)?;
    let names = push_large(&lab, &large)?;
    lab.registry.inject(When::blob().range(true), Fault::Delay(DELAY));
    let begin = Instant::now();
    let programs = programs(world)?;
    let upgraded = rounds::run(&lab, "upgraded", &names, &large, walkers, |load| {
        upgrade(&lab, "upgraded", &programs, load, times)
    })
    .context("upgrades")?;
    let killed = rounds::run(&lab, "killed", &names, &large, walkers, |load| {
        kill_keepers(&lab, "killed", load, times)
    })
    .context("keepers that are killed")?;
    let line = |what: &str, round: &Round| {
        let lengths = round.deaths.iter().map(|moment| moment.1 - moment.0);
        let longest = lengths.max().unwrap_or(0) as f64 / 1e6;
        format!(
            "{} {what}, each done within {longest:.0} ms: {walkers} readers compared {} files ({:.1} GB); 0 wrong, 0 errors, 0 stuck; {}",
            round.deaths.len(),
            round.seen.files,
            round.seen.bytes as f64 / 1e9,
            Waits::of(&round.deaths, &round.pages, &round.seen.waits).worst()
        )
    };
    Ok(Outcome::Passed(format!(
        "{} files of {:.0} MB, {:.0} s\n{}\n{}",
        large.files,
        large.bytes as f64 / 1e6,
        begin.elapsed().as_secs_f64(),
        line("upgrades", &upgraded),
        line("keepers killed", &killed)
    )))
}

/// Two copies of the program, each of which is the other's successor.
fn programs(world: &World) -> Result<[PathBuf; 2]> {
    let program = PathBuf::from(world.xebec(&[]).get_program());
    let copies = ["program-1", "program-2"].map(|name| world.path(name));
    for copy in &copies {
        std::fs::copy(&program, copy).context("copy the program")?;
    }
    Ok(copies)
}

/// Replaces keeper and worker by another program; gives from when to when.
fn upgrade(
    lab: &Lab<'_>,
    root: &str,
    programs: &[PathBuf; 2],
    load: &mut Load,
    times: usize,
) -> Result<Vec<Span>> {
    let mut moments = Vec::new();
    for number in 0..times {
        pause(load)?;
        let program = programs[number % 2].to_string_lossy().into_owned();
        let asked = daemon::now();
        lab.xebec(root, &["daemon", "upgrade", "--program", &program])?
            .expect(0, &[])
            .with_context(|| format!("upgrade {number}"))?;
        moments.push((asked, daemon::now()));
    }
    finish(load)?;
    Ok(moments)
}

/// Kills keepers whose worker lives; gives from when to when there was none.
fn kill_keepers(lab: &Lab<'_>, root: &str, load: &mut Load, times: usize) -> Result<Vec<Span>> {
    let mut moments = Vec::new();
    for number in 0..times {
        pause(load)?;
        let (keeper, worker) = (daemon::keeper(lab, root)?, daemon::worker(lab, root)?);
        ensure!(daemon::kill(keeper)?, "keeper {number} had ended by itself");
        let killed = daemon::now();
        wait_until(SUCCESSION, "another keeper", || {
            Ok(daemon::keeper(lab, root).is_ok_and(|other| other != keeper && daemon::lives(other)))
        })?;
        moments.push((killed, daemon::now()));
        ensure!(
            worker == daemon::worker(lab, root)?,
            "the worker did not survive its keeper"
        );
    }
    finish(load)?;
    Ok(moments)
}

/// Lets the walkers walk for a while.
fn pause(load: &mut Load) -> Result<()> {
    std::thread::sleep(Duration::from_millis(fastrand::u64(BETWEEN)));
    load.has_walked(0).map(|_| ())
}

/// Lets each walker walk the image once at least.
fn finish(load: &mut Load) -> Result<()> {
    while !load.has_walked(1)? {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
