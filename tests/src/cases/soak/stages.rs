//! Workers end themselves at each named stage of an event, while readers walk an image: no wrong byte, no error,
//! nobody stuck.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xebec_testkit::large::Large;

use super::load::Load;
use super::support::{fresh_root, push_large, sized, tell_log};
use crate::lab::{Lab, Names, expect_contents};
use crate::runner::Outcome;
use crate::world::World;

/// How far apart the looks at the walkers are.
const LOOK: Duration = Duration::from_millis(20);

/// Stages that each event passes; see `crates/daemon/src/failpoints.rs`.
const OF_EVENTS: [&str; 6] = ["read", "recorded", "cleared", "answering", "answered", "freed"];
/// Stages that only a fill passes.
const OF_FILLS: [&str; 4] = ["fetched", "verified", "written", "claimed"];

pub(super) fn run(world: &World) -> Result<Outcome> {
    let large = Large {
        layers: sized(2, 8),
        files: sized(250, 5_000),
        bytes: sized(30_000_000, 500_000_000),
        seed: 2,
    };
    let walkers = sized(6, 32);
    // Each worker lives through so many passes at least: enough to bring something in.
    let (events, fills) = (sized(300, 1_000), sized(8, 40));
    let mut lab = Lab::new(world)?;
    let names = push_large(&lab, &large)?;
    let begin = Instant::now();
    let (mut figures, mut deaths, mut files) = (Vec::new(), 0, 0);
    let stages = OF_EVENTS
        .map(|stage| (stage, events))
        .into_iter()
        .chain(OF_FILLS.map(|stage| (stage, fills)));
    for (stage, passes) in stages {
        lab.environment = vec![("XEBEC_TEST_DIE_AT", format!("{stage}:{passes}"))];
        let (died, read) = walk(&lab, stage, &names, &large, walkers)
            .with_context(|| format!("workers that end at the stage {stage:?}"))
            .inspect_err(|_| tell_log(&lab, stage))?;
        figures.push(format!("{stage} {died}"));
        deaths += died;
        files += read;
    }
    Ok(Outcome::Passed(format!(
        "{walkers} readers compared {files} files in {:.0} s over {deaths} deaths: {}; 0 wrong, 0 errors, 0 stuck",
        begin.elapsed().as_secs_f64(),
        figures.join(", ")
    )))
}

/// Lets everyone walk the image once; gives how many workers died, and how many files were read.
fn walk(lab: &Lab<'_>, root: &str, names: &Names, large: &Large, walkers: usize) -> Result<(u64, u64)> {
    fresh_root(lab, root)?;
    let mnt = lab.mount(root, &names.tag, &["--require-lazy"])?;
    let mut load = Load::start(lab, root, &mnt, walkers)?;
    while !load.has_walked(1).inspect_err(|error| eprintln!("{error:#}"))? {
        std::thread::sleep(LOOK);
    }
    let seen = load.stop()?;
    seen.expect_no_fault("while they walked")?;
    for file in large.kept_back() {
        expect_contents(&mnt.join(&file.path), &file.contents())?;
    }
    let checked = lab.check(root, &names.tag)?;
    ensure!(
        checked.wrong == 0 && checked.present == checked.pages,
        "{checked:?}"
    );
    let status = lab.status(root)?;
    let died = status.get("restarts").and_then(Value::as_u64).unwrap_or(0);
    ensure!(died > 0, "no worker died: nothing was tried");
    lab.umount(root, &mnt)?;
    lab.stop(root)?;
    fs::remove_dir_all(lab.path(root))?;
    Ok((died, seen.files))
}
