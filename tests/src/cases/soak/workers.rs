//! Workers are killed at random while many readers walk a large image: no wrong byte, no error, nobody stuck.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use xebec_testkit::large::Large;
use xebec_testkit::registry::{Fault, When};

use super::daemon;
use super::load::Load;
use super::rounds::{self, Round};
use super::support::{push_large, sized};
use super::waits::{Span, Waits};
use crate::lab::Lab;
use crate::runner::Outcome;
use crate::world::World;

/// How long the registry takes for each answer, so that fills are under way when a worker dies.
const DELAY: Duration = Duration::from_millis(20);
/// Mean time from a worker's start until it is killed. Some die while they start, and one in thirty lives a second.
const LIFE: Duration = Duration::from_millis(300);

pub(super) fn run(world: &World) -> Result<Outcome> {
    let large = Large {
        layers: sized(4, 8),
        files: sized(1_000, 20_000),
        bytes: sized(100_000_000, 2_000_000_000),
        seed: 1,
    };
    let (walkers, kills) = (sized(12, 32), sized(12, 1_000));
    // So often does each walk the image in a round.
    let walks = sized(2, 1);
    let lab = Lab::new(world)?;
    let names = push_large(&lab, &large)?;
    lab.registry.inject(When::blob().range(true), Fault::Delay(DELAY));
    let begin = Instant::now();
    let (mut sum, mut rounds) = (Round::default(), 0);
    // Each in a root of its own, so that each begins with nothing.
    while sum.deaths.len() < kills {
        rounds += 1;
        let root = format!("root{rounds}");
        let left = kills - sum.deaths.len();
        let round = rounds::run(&lab, &root, &names, &large, walkers, |load| {
            kill_workers(&lab, &root, load, walks, left)
        });
        sum.add(round.with_context(|| format!("round {rounds}, after {} kills", sum.deaths.len()))?);
    }
    let Round { seen, deaths, pages } = &sum;
    Ok(Outcome::Passed(format!(
        "{} files of {:.0} MB: {walkers} readers compared {} files ({:.1} GB) in {} whole walks over {rounds} rounds \
         and {:.0} s; {} workers killed; 0 wrong, 0 errors, 0 stuck\n{}",
        large.files,
        large.bytes as f64 / 1e6,
        seen.files,
        seen.bytes as f64 / 1e9,
        seen.walks,
        begin.elapsed().as_secs_f64(),
        deaths.len(),
        Waits::of(deaths, pages, &seen.waits)
    )))
}

/// Kills workers until all have walked so often; gives when.
fn kill_workers(lab: &Lab<'_>, root: &str, load: &mut Load, walks: u64, kills: usize) -> Result<Vec<Span>> {
    let mut deaths = Vec::new();
    while !load.has_walked(walks)? {
        let Some(worker) = daemon::worker(lab, root)? else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        // At any moment as likely as at any other, so that lives have no longest length.
        std::thread::sleep(LIFE.mul_f64(-(1.0 - fastrand::f64()).ln()));
        if deaths.len() < kills && daemon::kill(worker)? {
            let now = daemon::now();
            deaths.push((now, now));
        }
    }
    Ok(deaths)
}
