//! First starts of one image at the same moment: one of them fetches what all of them need.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_testkit::registry::{Fault, When};

use super::overlap::{Running, SLOW, SOON, Slow};
use super::support::{STRAY, number, problem};
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::World;

/// How many start.
const STARTS: usize = 8;

/// Eight starts of an image that this host never saw: the zone is asked for once, and nothing else is fetched.
pub(super) fn together(world: &World) -> Result<Outcome> {
    let slow = Slow::new(world, SLOW)?;
    let service = &slow.service;
    let (files, running) = start(world, &slow, STARTS)?;
    let told = wait_for_all(&files)?;
    let asked = zone_requests(&slow);
    ensure!(asked.len() == 1, "{asked:#?}");
    ensure!(service.layer_requests(1)? == 0, "fetched in another way");
    let mut joined = 0;
    for stats in &told {
        let problem = problem(stats)?;
        ensure!(problem.is_none(), "{problem:?}");
        ensure!(number(stats, "/fills/spans")? <= STRAY, "{stats:#}");
        // The report of a view that several use is of the last start on it.
        joined += u64::from(number(stats, "/runtime_image/joined")? > 0);
    }
    ensure!(
        joined > 0,
        "nobody came while they were on their way, so this tests nothing"
    );
    running.into_iter().try_for_each(Running::end)?;
    slow.wait_for_its_end()?;
    service.expect_truth("root", &slow.names.tag)?;
    service.expect_sound("root", &slow.names.tag)?;
    Ok(Outcome::Passed(format!("{asked:?}")))
}

/// The start that brings the pages breaks off while others wait for them: they go on, and have all they need.
pub(super) fn first_fails(world: &World) -> Result<Outcome> {
    let slow = Slow::new(world, SLOW)?;
    let (service, lab) = (&slow.service, &slow.service.lab);
    let zone = lab.registry.blob("app", &slow.zone).context("no zone")?;
    // The first answer breaks off, and so does the one that would go on where it broke.
    lab.registry.clear_faults();
    let when = When::blob().path(&slow.zone.to_string()).times(1);
    let half = Fault::Truncate(zone.len() as u64 / 2);
    lab.registry.inject(when.clone(), half);
    let gone = Fault::Status {
        code: 404,
        retry_after: None,
    };
    lab.registry.inject(when, gone);
    let (files, running) = start(world, &slow, 3)?;
    let told = wait_for_all(&files)?;
    for stats in &told {
        ensure!(number(stats, "/fills/failures")? == 0, "{stats:#}");
    }
    let asked = zone_requests(&slow);
    ensure!(
        asked.len() >= 2,
        "nothing broke off, so this tests nothing: {asked:?}"
    );
    running.into_iter().try_for_each(Running::end)?;
    service.expect_truth("root", &slow.names.tag)?;
    service.expect_sound("root", &slow.names.tag)?;
    Ok(Outcome::Passed(format!("{asked:?}")))
}

/// So many containers, started at once by an installation whose daemon runs and knows nothing of the image.
fn start(world: &World, slow: &Slow<'_>, count: usize) -> Result<(Vec<PathBuf>, Vec<Running>)> {
    let lab = &slow.service.lab;
    slow.start_daemon()?;
    lab.registry.clear_log();
    let files = (0..count).map(|number| lab.path(&format!("stats-{number}")));
    let files: Vec<PathBuf> = files.collect();
    let running = files
        .iter()
        .map(|file| slow.spawn_at_once(world, &file.to_string_lossy()));
    let running = running.collect::<Result<Vec<Running>>>()?;
    Ok((files, running))
}

/// The statistics of all of them, once they are ready.
fn wait_for_all(files: &[PathBuf]) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for file in files {
        let mut found = None;
        wait_until(SOON, "a start is ready", || {
            // The file is made first and written then.
            found = fs::read(file)
                .ok()
                .and_then(|bytes| serde_json::from_slice(&bytes).ok());
            Ok(found.is_some())
        })?;
        all.extend(found);
    }
    Ok(all)
}

/// The parts of the zone that were asked for.
fn zone_requests(slow: &Slow<'_>) -> Vec<String> {
    let zone = slow.zone.to_string();
    let log = slow.service.lab.registry.log().into_iter();
    let asked = log.filter(|request| request.head.path.contains(&zone));
    asked
        .map(|request| request.head.range.unwrap_or_else(|| "all".to_owned()))
        .collect()
}
