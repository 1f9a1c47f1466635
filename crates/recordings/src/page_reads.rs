//! Brings pages of an image in that is mounted for a recording: they are read as any reader reads them, so the fill
//! service fetches, compares and writes them first.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use xebec_cache::store::LayerKey;
use xebec_fill::page_set::normal;
use xebec_format::PAGE_SIZE as PAGE;
use xebec_format::runtime_image::PageRun;
use xebec_images::images::{Images, Report};
use xebec_protocol::failure::{Failure, FailureKind};
use xebec_protocol::wire::{Mounted, Reply};

use crate::publish::numbered;

/// Reads at a time. Most wait for a span each; more would take the connections that readers in containers need.
const READERS: usize = 4;
/// Most pages of one read: a megabyte, about a span.
const AT_ONCE: u64 = (1 << 20) / PAGE;

/// Pages of a layer that are to be read.
struct Task {
    file: PathBuf,
    key: LayerKey,
    pages: Range<u64>,
}

/// Reads those of the pages `wanted` that are missing, named by the places of the image's different layers, and gives
/// how many bytes these are.
///
/// # Errors
/// When one cannot be brought in.
pub(super) fn pages(
    images: &Images,
    mounted: &Mounted,
    wanted: &[PageRun],
    report: &Report,
) -> Result<u64, Failure> {
    let Some(mount) = &mounted.recording else {
        return Err(Failure::new(
            FailureKind::Host,
            "the daemon cannot record; is it of an older version? `xebec daemon upgrade` replaces it",
        ));
    };
    let mut by_layer: BTreeMap<u16, Vec<Range<u64>>> = BTreeMap::new();
    for run in wanted {
        by_layer.entry(run.layer).or_default().push(run.first..run.end());
    }
    let keys = numbered(&mounted.layers);
    let mut tasks = Vec::new();
    for (number, runs) in by_layer {
        let Some(key) = keys.get(usize::from(number)).copied() else {
            continue;
        };
        let layer = images.store().look(key)?;
        let missing = runs.into_iter().flat_map(|run| layer.presence().missing(run));
        tasks.extend(joined(missing.collect()).into_iter().map(|pages| Task {
            file: key.data_path(mount),
            key,
            pages,
        }));
    }
    let total: u64 = tasks
        .iter()
        .map(|task| (task.pages.end - task.pages.start) * PAGE)
        .sum();
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let tell = |done| {
        report(Reply::bytes("bring in pages", done, total));
    };
    let work = || -> Result<(), Failure> {
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            // The others need not go on.
            let read = read(task).inspect_err(|_| next.store(tasks.len(), Ordering::Relaxed))?;
            tell(done.fetch_add(read, Ordering::Relaxed) + read);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS.min(tasks.len())).map(|_| scope.spawn(work)).collect();
        let ended = readers.into_iter().map(|reader| match reader.join() {
            Ok(ended) => ended,
            Err(_) => Err(Failure::new(FailureKind::Host, "a thread that read pages died")),
        });
        ended.collect::<Vec<_>>().into_iter().collect::<Result<(), _>>()
    })?;
    Ok(total)
}

/// Reads a task's pages; how many bytes.
fn read(task: &Task) -> Result<u64, Failure> {
    let doing = || {
        format!(
            "bring in pages {}..{} of {} (`xebec explain` says what they waited for)",
            task.pages.start, task.pages.end, task.key
        )
    };
    let length = (task.pages.end - task.pages.start) * PAGE;
    let mut bytes = vec![0; usize::try_from(length).map_err(|error| Failure::host(doing(), error))?];
    File::open(&task.file)
        .and_then(|file| file.read_exact_at(&mut bytes, task.pages.start * PAGE))
        .map_err(|error| Failure::host(doing(), error))?;
    Ok(length)
}

/// Neighbours become one run. Long runs are cut into pieces that are read at once.
fn joined(runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let pieces = normal(runs).into_iter().flat_map(|run| {
        let starts = (run.start..run.end).step_by(AT_ONCE as usize);
        starts.map(move |start| start..run.end.min(start + AT_ONCE))
    });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_at_once() {
        let joined = joined(vec![900..901, 5..7, 7..9, 6..8, 100..700]);
        assert_eq!(joined, [5..9, 100..356, 356..612, 612..700, 900..901]);
    }
}
