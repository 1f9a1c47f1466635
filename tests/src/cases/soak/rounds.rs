//! A round of load: a root with nothing in it, walkers over an image, a probe, and faults that are inflicted on the daemon meanwhile.
//! Afterwards everything is right and complete, or the round has failed.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use xebec_testkit::large::Large;

use super::load::{Load, Seen};
use super::support::{fresh_root, tell_log};
use super::waits::{self, Span};
use crate::lab::{Lab, Names, expect_contents};

/// The observations of rounds.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The observations of the walkers.
    pub(super) seen: Seen,
    /// When a process was ended, or from when to when one was replaced.
    pub(super) deaths: Vec<Span>,
    /// The probe's readings.
    pub(super) pages: Vec<Span>,
}

impl Round {
    /// Adds a later round.
    pub(super) fn add(&mut self, other: Round) {
        self.seen.add(other.seen);
        self.deaths.extend(other.deaths);
        self.pages.extend(other.pages);
    }
}

/// Runs one. `inflict` does its work while the walkers walk, and tells when it ended a process; the round ends with it.
pub(super) fn run(
    lab: &Lab<'_>,
    root: &str,
    names: &Names,
    large: &Large,
    walkers: usize,
    inflict: impl FnOnce(&mut Load) -> Result<Vec<Span>>,
) -> Result<Round> {
    let round = under_load(lab, root, names, large, walkers, inflict).inspect_err(|_| tell_log(lab, root))?;
    fs::remove_dir_all(lab.path(root)).with_context(|| format!("remove {root}"))?;
    Ok(round)
}

fn under_load(
    lab: &Lab<'_>,
    root: &str,
    names: &Names,
    large: &Large,
    walkers: usize,
    inflict: impl FnOnce(&mut Load) -> Result<Vec<Span>>,
) -> Result<Round> {
    fresh_root(lab, root)?;
    let mnt = lab.mount(root, &names.tag, &["--require-lazy"])?;
    let kept_back = large.kept_back();
    let asked = kept_back.first().context("no layer")?;
    let (wanted, place) = (asked.contents(), mnt.join(&asked.path));
    let mut load = Load::start(lab, root, &mnt, walkers)?;
    let stop = AtomicBool::new(false);
    let round = std::thread::scope(|scope| -> Result<Round> {
        let probe = scope.spawn(|| waits::probe(&place, &wanted, &stop));
        // Told at once: a reader that is stuck keeps this case from ending before the watchdog ends it.
        let deaths = inflict(&mut load).inspect_err(|error| eprintln!("{error:#}"));
        let seen = load.stop();
        stop.store(true, Ordering::Relaxed);
        let pages = probe.join().map_err(|_| anyhow!("the probe died"))??;
        Ok(Round {
            seen: seen?,
            deaths: deaths?,
            pages,
        })
    })?;
    round.seen.expect_no_fault("while they walked")?;
    for file in kept_back {
        expect_contents(&mnt.join(&file.path), &file.contents())?;
    }
    if round.seen.walks >= walkers as u64 {
        let checked = lab.check(root, &names.tag)?;
        ensure!(
            checked.wrong == 0 && checked.present == checked.pages,
            "{checked:?}"
        );
    }
    ensure!(lab.counter(root, "failures")? == 0, "fills failed");
    lab.umount(root, &mnt)?;
    lab.stop(root)?;
    Ok(round)
}
