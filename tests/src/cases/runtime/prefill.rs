//! Pages that are brought into a view's page cache before a service reads them.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use xebec_format::PAGE_SIZE;
use xebec_kernel::page_cache::cached;

use super::explain::{Choosing, explained, pages};
use super::support::number;
use crate::lab::wait_until;
use crate::runner::Outcome;
use crate::world::World;

/// Pages that are left out, about.
const SAMPLE: u64 = 64;

/// Pages of its recording that a start does not read are in the page cache all the same, but for a sample, which tells how many such
/// pages there are. Where a start learns, they are not.
pub(super) fn prefilled(world: &World) -> Result<Outcome> {
    // So many pages that fewer are left out than the kernel reads ahead at a time, and that they come in parts.
    let choosing = Choosing::of(world, [100_000, 20 << 20])?;
    let service = &choosing.service;
    let b = pages(service, "start/b")?;
    choosing.choose("/start/b")?;
    let recorded = number(&choosing.record("recorder")?, "/pages")?;

    choosing.choose("/start/a")?;
    let (report, in_memory) = look(&choosing, "root", &[], |in_memory| in_memory > b * 3 / 4)?;
    ensure!(in_memory < b, "nothing was left out of {in_memory} pages");
    let (sample, unused) = (
        number(&report, "/recorded/sample")?,
        number(&report, "/recorded/unused")?,
    );
    ensure!((1..=2 * SAMPLE).contains(&sample), "{report:#}");
    ensure!(
        number(&report, "/recorded/touched")? + unused == recorded
            && number(&report, "/recorded/unknown")? == 0,
        "{report:#}"
    );
    // Of 64 pages or so three standard deviations are a fifth of all.
    ensure!(unused.abs_diff(b) < recorded / 5, "{unused} for {b}: {report:#}");
    service
        .lab
        .xebec("root", &["explain", "--start"])?
        .expect(0, &["about ", "by a sample of"])?;

    let (exact, in_memory) = look(&choosing, "learner", &["--learn"], |_| true)?;
    ensure!(
        in_memory == 0,
        "{in_memory} pages were prefilled for a start that learns"
    );
    ensure!(exact["recorded"]["sample"].is_null(), "{exact:#}");
    super::explain::expect_about(&exact, "/recorded/unused", b)?;
    Ok(Outcome::Passed(format!(
        "by a sample of {sample} {unused} of {recorded} were not read, which {b} were"
    )))
}

/// The report of a start that goes on, and how many pages of `start/b` are in its view's page cache, once these are enough.
fn look(
    choosing: &Choosing<'_>,
    root: &str,
    options: &[&str],
    is_enough: impl Fn(u64) -> bool,
) -> Result<(Value, u64)> {
    let lab = &choosing.service.lab;
    let mut running = choosing.spawn_with(root, "running", "log:^ready$", options)?;
    let looked = (|| {
        wait_until(Duration::from_secs(60), "the container is ready", || {
            Ok(explained(&choosing.service, root, &["running"]).is_ok())
        })?;
        let status = lab.xebec(root, &["daemon", "status", "--json"])?;
        let status: Value = serde_json::from_str(&status.out).context("no status")?;
        let view = status.pointer("/views/0/path").and_then(Value::as_str);
        let file = PathBuf::from(view.context("no view")?).join("start/b");
        let file = File::open(&file).with_context(|| format!("open {}", file.display()))?;
        let size = pages(&choosing.service, "start/b")? * PAGE_SIZE;
        let mut in_memory = 0;
        wait_until(Duration::from_secs(60), "the pages to be in memory", || {
            in_memory = cached(&file, 0..size)?.pages;
            Ok(is_enough(in_memory))
        })?;
        Ok((explained(&choosing.service, root, &["running"])?, in_memory))
    })();
    kill_process(Pid::from_child(&running), Signal::TERM)
        .map_err(std::io::Error::from)
        .and_then(|()| running.wait())
        .context("end the container")?;
    looked
}
