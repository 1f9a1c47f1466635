//! How long readers wait across a death: a probe that asks all the time, and the sums.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::Advice;

use super::daemon::now;

/// Size of a page.
const PAGE: usize = 4096;
/// Pause between two questions of the probe, so that it is no load.
const PAUSE: Duration = Duration::from_millis(1);
/// A reading that ends within this time of a kill, in nanoseconds, may have been answered before it.
const DOUBTFUL: u64 = 2_000_000;

/// From when to when something lasted, in nanoseconds of `CLOCK_MONOTONIC`.
pub(super) type Span = (u64, u64);

/// Reads one page again and again, each time with an event, until told to stop. The file's layer must not be
/// complete.
pub(super) fn probe(file: &Path, wanted: &[u8], stop: &AtomicBool) -> Result<Vec<Span>> {
    let opened = File::open(file).with_context(|| format!("open {}", file.display()))?;
    let mut spans = Vec::new();
    let mut page = vec![0; PAGE];
    while !stop.load(Ordering::Relaxed) {
        rustix::fs::fadvise(&opened, 0, None, Advice::DontNeed)?;
        let begin = now();
        opened
            .read_exact_at(&mut page, 0)
            .with_context(|| format!("read a page of {}", file.display()))?;
        spans.push((begin, now()));
        ensure!(
            Some(page.as_slice()) == wanted.get(..PAGE),
            "the probe read wrong bytes"
        );
        std::thread::sleep(PAUSE);
    }
    Ok(spans)
}

/// Sums of waits across deaths.
#[derive(Debug)]
pub(super) struct Waits {
    /// From each death to the first answer after it, in milliseconds, ascending.
    first_answers: Vec<f64>,
    /// The longest reading of a page across a death.
    worst_page: f64,
    /// The longest reading of a whole file across a death.
    worst_file: f64,
}

impl Waits {
    /// Puts deaths (at a moment, or some time within a span), the probe's pages and the readings of files together.
    pub(super) fn of(deaths: &[Span], pages: &[Span], files: &[Span]) -> Self {
        let after = |death: Span| {
            let death = death.0;
            let from = pages.partition_point(|page| page.1 < death);
            let is_after = |page: &&Span| page.0 > death || page.1 > death + DOUBTFUL;
            let first = pages.get(from..)?.iter().find(is_after)?;
            Some(milliseconds(first.1 - death))
        };
        let mut first_answers: Vec<f64> = deaths.iter().filter_map(|death| after(*death)).collect();
        first_answers.sort_by(f64::total_cmp);
        let across = |span: &&Span| deaths.iter().any(|death| span.0 < death.1 && death.0 < span.1);
        let worst = |spans: &[Span]| {
            let lengths = spans.iter().filter(across).map(|span| span.1 - span.0);
            milliseconds(lengths.max().unwrap_or(0))
        };
        Self {
            first_answers,
            worst_page: worst(pages),
            worst_file: worst(files),
        }
    }
}

impl Waits {
    /// The longest waits alone, for what is no death at a moment.
    pub(super) fn worst(&self) -> String {
        format!(
            "worst wait across it: {:.0} ms for a page, {:.0} ms for a whole file",
            self.worst_page, self.worst_file
        )
    }
}

impl std::fmt::Display for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = |part: usize| {
            let last = self.first_answers.len().saturating_sub(1);
            self.first_answers.get(last * part / 100).copied().unwrap_or(0.0)
        };
        write!(
            f,
            "from a kill to the next answer: {:.0} ms in the median, {:.0} ms at the 99th percentile, {:.0} ms at \
             worst; worst wait across a restart: {:.0} ms for a page, {:.0} ms for a whole file",
            at(50),
            at(99),
            at(100),
            self.worst_page,
            self.worst_file
        )
    }
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}
