//! Output of `import` and `mirror`: the progress on standard error, and the result on standard output.

use std::time::{Duration, Instant};

use anyhow::bail;
use serde::Serialize;
use xebec_kernel::size;
use xebec_transfer::{Moved, Tally};

use crate::progress::Progress;

/// How often a terminal shows how far it is, and what was skipped is named.
const TICK: Duration = Duration::from_millis(250);

/// Says how far the work is until it ends.
pub(crate) async fn watch<T>(tally: &Tally, work: impl Future<Output = T>) -> T {
    let (start, mut progress) = (Instant::now(), Progress::new());
    let mut named = usize::try_from(tally.read(usize::MAX).skipped_count).unwrap_or(usize::MAX);
    let mut ticks = tokio::time::interval(TICK);
    tokio::pin!(work);
    loop {
        let done = tokio::select! {
            done = &mut work => Some(done),
            _ = ticks.tick() => None,
        };
        let moved = tally.read(named);
        named += moved.skipped.len();
        if !moved.skipped.is_empty() {
            // The line goes before others are written.
            progress = Progress::new();
        }
        for skipped in &moved.skipped {
            let colon = if skipped.repository.is_empty() { "" } else { ": " };
            errln!(
                "skipped: {}{colon}{}: {}",
                skipped.repository,
                skipped.what,
                skipped.reason
            );
        }
        if let Some(done) = done {
            return done;
        }
        progress.say(format_args!("{}", line(&moved, start.elapsed())));
    }
}

/// How far it is, in one line.
fn line(moved: &Moved, elapsed: Duration) -> String {
    let manifests = moved.manifests + moved.manifests_here;
    let manifests = match moved.expected_manifests {
        0 => format!("{manifests} manifests"),
        all => format!("{manifests} of {all} manifests"),
    };
    let bytes = match moved.expected_bytes {
        all if all > moved.bytes => format!("{} of {}", size::for_people(moved.bytes), size::for_people(all)),
        _ => size::for_people(moved.bytes),
    };
    let rate = moved.bytes as f64 / elapsed.as_secs_f64().max(0.001);
    let left = moved.expected_bytes.saturating_sub(moved.bytes) as f64 / rate.max(1.0);
    let left = match moved.bytes {
        0 => String::new(),
        _ if left < 1.0 => String::new(),
        _ => format!(", {} left", time(left as u64)),
    };
    format!("{manifests}, {bytes}, {}/s{left}", size::for_people(rate as u64))
}

/// Seconds as people read them: `4:05`, `2:04:05`.
fn time(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// Prints what was done, or would be.
pub(crate) fn report(tally: &Tally, json: bool, dry_run: bool) {
    #[derive(Serialize)]
    struct Report {
        dry_run: bool,
        #[serde(flatten)]
        moved: Moved,
    }
    let moved = tally.read(0);
    if json {
        if let Ok(text) = serde_json::to_string(&Report { dry_run, moved }) {
            outln!("{text}");
        }
        return;
    }
    let would = if dry_run { "would come" } else { "came" };
    outln!("{:>10}  repositories", moved.repositories);
    outln!(
        "{:>10}  manifests {would}; {} were here",
        moved.manifests,
        moved.manifests_here
    );
    outln!(
        "{:>10}  blobs {would}: {}; {} were here",
        moved.blobs,
        size::for_people(moved.bytes),
        moved.blobs_here
    );
    outln!(
        "{:>10}  tags {}; {} were here",
        moved.tags,
        if dry_run { "would be set" } else { "set" },
        moved.tags_here
    );
    if moved.tags_removed > 0 {
        outln!(
            "{:>10}  tags removed, which the source has no longer",
            moved.tags_removed
        );
    }
    if moved.deleted > 0 {
        outln!("{:>10}  manifests had been deleted there", moved.deleted);
    }
    if moved.skipped_count > 0 {
        outln!("{:>10}  skipped", moved.skipped_count);
    }
}

/// Whether all of it came.
///
/// # Errors
/// If something was skipped.
pub(crate) fn verdict(tally: &Tally) -> anyhow::Result<()> {
    match tally.read(usize::MAX).skipped_count {
        0 => Ok(()),
        1 => bail!("one thing was skipped, and is named above; everything else is done"),
        n => bail!("{n} things were skipped, and are named above; everything else is done"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_a_rate_and_an_end() {
        let moved = Moved {
            manifests: 3,
            manifests_here: 1,
            bytes: 10_000_000,
            expected_manifests: 8,
            expected_bytes: 40_000_000,
            ..Moved::default()
        };
        assert_eq!(
            line(&moved, Duration::from_secs(2)),
            "4 of 8 manifests, 10.0 MB of 40.0 MB, 5.0 MB/s, 0:06 left"
        );
        assert_eq!(line(&Moved::default(), Duration::ZERO), "0 manifests, 0 B, 0 B/s");
        assert_eq!(time(7445), "2:04:05");
    }
}
