//! Turns the measured facts about a start into its report.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use xebec_cache::store::LayerKey;
use xebec_fill::access_log::AllAsked;
use xebec_fill::page_set::PageSet;
use xebec_fill::waits::WaitRecord;
use xebec_format::PAGE_SIZE;
use xebec_format::digest::Digest;
use xebec_format::image::InodeId;
use xebec_format::runtime_image::{PageRun, RecordedLayer, ServiceKey};
use xebec_kernel::clock::{milliseconds_since_1970, rfc3339_milliseconds};
use xebec_protocol::start_report::{MissedFile, RecordedPages, StartEnd, StartReport};
use xebec_protocol::wire::Loaded;
use xebec_views::page_cache_residency::Touched;
use xebec_views::view_tree::{FilePart, ViewTree};
use xebec_views::views::Prefilled;

use xebec_recordings::earlier::EarlierVersion;
use xebec_recordings::find::FoundRecording;

/// Files that a report names.
const MAX_FILES: usize = 20;
/// Missed pages that are worth doing something about: so many, or this part of the pages that were read.
const MANY_MISSED: u64 = 16;
const MISSED_PART: u64 = 50;
/// Unused pages that are: so many, and this part of the recording.
const MANY_UNUSED: u64 = 64;
const UNUSED_PART: u64 = 4;

/// The facts about a start, apart from its measurements.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The image as it was named, in full.
    pub(super) reference: String,
    /// Its manifest.
    pub(super) manifest: Digest,
    /// The service's command line.
    pub(super) argv: Vec<String>,
    /// The image's layers, each once.
    pub(super) layers: Vec<RecordedLayer>,
    /// Pages of them that were there.
    pub(super) present: PageSet,
    /// Whether its view reads files elsewhere whose contents are known in other images' layers.
    pub(super) borrows: bool,
    /// The recording by which it is started.
    pub(super) recorded: Option<Recorded>,
    /// The result of loading it.
    pub(super) loaded: Option<Loaded>,
    /// When, in milliseconds since 1970.
    pub(super) began_ms: u64,
}

/// The recording by which a service is started.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) key: ServiceKey,
    /// The pages that it names.
    pub(super) pages: PageSet,
    /// Those that were there before it was loaded.
    pub(super) before: PageSet,
    /// Those that were there afterwards.
    pub(super) after: PageSet,
}

impl Recorded {
    /// Of a recording, with those of its pages that were present before and after it was loaded.
    pub(super) fn new(found: &FoundRecording, before: &PageSet, after: &PageSet) -> Self {
        let mut pages = PageSet::default();
        for (number, layer) in (0u16..).zip(&found.recording.layers) {
            let key = LayerKey {
                layer: layer.layer,
                index: layer.index,
            };
            let runs = found.service.touched.iter().map(|seen| seen.run);
            let runs = runs.filter(|run| run.layer == number);
            pages.insert(key, runs.map(|run| run.first..run.end()).collect());
        }
        Self {
            key: found.service.key.clone(),
            pages,
            before: before.clone(),
            after: after.clone(),
        }
    }
}

/// That a start is over.
#[derive(Clone, Debug)]
pub(super) struct Over {
    pub(super) end: StartEnd,
    pub(super) container: Option<String>,
    /// When, in milliseconds since 1970.
    pub(super) at_ms: u64,
}

impl Over {
    /// The end that the command reports: its service was ready at that time, or its container ended now.
    pub(super) fn told(container: Option<String>, ready_ms: Option<u64>) -> Self {
        let end = match ready_ms {
            Some(_) => StartEnd::Ready,
            None => StartEnd::Ended,
        };
        Self {
            end,
            container,
            at_ms: ready_ms.unwrap_or_else(milliseconds_since_1970),
        }
    }
}

/// The facts that were seen of a start.
pub(super) struct Seen {
    /// The random part of the name of its container's control group, which tells it from others of its name.
    pub(super) container_run: Option<String>,
    /// The pages of its recording that it read.
    pub(super) touched: Touched,
    /// The pages that were prefilled into its page cache, so that it is unknown which of them it read.
    pub(super) prefilled: Prefilled,
    /// The pages outside of its recording that it read of complete layers, whose reads raise no events: of layers that were not complete
    /// when it began, and of all if it learns. `None` if they have too many files to look at, or if an earlier worker prefilled the view.
    pub(super) unnoticed: Option<Touched>,
    /// The pages that it asked for, until it was ready.
    pub(super) asked: AllAsked,
    /// Its waits.
    pub(super) waits: Vec<WaitRecord>,
    /// Whether nothing was read ahead.
    pub(super) is_exact: bool,
    /// Whether others used the view.
    pub(super) is_shared: bool,
}

/// The pages that were asked for, sorted by the recording.
pub(super) struct Sorted {
    /// Outside of the recording, in the order of first access.
    pub(super) outside: Vec<(u16, u64)>,
    /// Of them, those that were not there when it began.
    pub(super) missed: PageSet,
    /// In the recording, and asked for all the same.
    pub(super) inside: PageSet,
}

impl Sorted {
    pub(super) fn new(start: &Facts, seen: &Seen) -> Self {
        let keys = keys(start);
        let nothing = PageSet::default();
        let recorded = start
            .recorded
            .as_ref()
            .map_or(&nothing, |recorded| &recorded.pages);
        let mut known: HashSet<(u16, u64)> = HashSet::new();
        let mut outside = Vec::new();
        let (mut missed, mut inside) = (Lists::default(), Lists::default());
        let asked = seen.asked.entries.iter();
        let asked = asked.map(|entry| (entry.layer, entry.pages.clone()));
        let unnoticed = seen.unnoticed.iter().flat_map(|read| runs_of(start, &read.pages));
        let unnoticed = unnoticed.map(|run| (run.layer, run.first..run.end()));
        for (layer, pages) in asked.chain(unnoticed) {
            let Some(&key) = keys.get(usize::from(layer)) else {
                continue;
            };
            let runs = recorded.runs(key);
            for page in pages {
                if !known.insert((layer, page)) {
                    continue;
                }
                if has(runs, page) {
                    inside.push(key, page);
                    continue;
                }
                outside.push((layer, page));
                if !has(start.present.runs(key), page) {
                    missed.push(key, page);
                }
            }
        }
        Self {
            outside,
            missed: missed.into(),
            inside: inside.into(),
        }
    }
}

/// Whether ascending runs have a page.
fn has(runs: &[Range<u64>], page: u64) -> bool {
    let after = runs.partition_point(|run| run.end <= page);
    runs.get(after).is_some_and(|run| run.contains(&page))
}

/// Pages of layers, as they come.
#[derive(Default)]
struct Lists(HashMap<LayerKey, Vec<Range<u64>>>);

impl Lists {
    fn push(&mut self, key: LayerKey, page: u64) {
        let runs = self.0.entry(key).or_default();
        match runs.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
}

impl From<Lists> for PageSet {
    fn from(lists: Lists) -> Self {
        let mut set = PageSet::default();
        lists.0.into_iter().for_each(|(key, runs)| set.insert(key, runs));
        set
    }
}

fn keys(start: &Facts) -> Vec<LayerKey> {
    let layers = start.layers.iter();
    layers
        .map(|layer| LayerKey {
            layer: layer.layer,
            index: layer.index,
        })
        .collect()
}

/// The report of a start.
pub(super) fn report(start: &Facts, over: &Over, seen: &Seen, tree: Option<&ViewTree>) -> StartReport {
    let sorted = Sorted::new(start, seen);
    let (missed_files, more_files) =
        tree.map_or_else(Default::default, |tree| files(tree, &sorted.missed, &seen.waits));
    let waited: Duration = seen.waits.iter().map(|wait| wait.waited).sum();
    let missed_pages = sorted.missed.count();
    let mut report = StartReport {
        reference: start.reference.clone(),
        manifest: start.manifest,
        command: start.argv.clone(),
        container: over.container.clone(),
        container_run: seen.container_run.clone(),
        began: rfc3339_milliseconds(start.began_ms),
        began_ms: start.began_ms,
        watched_ms: over.at_ms.saturating_sub(start.began_ms),
        end: over.end,
        loaded: start.loaded.clone(),
        recorded: recorded(start, seen, &sorted),
        missed_pages,
        local_pages: sorted.outside.len() as u64 - missed_pages,
        waits: seen.waits.len() as u64,
        waited_ms: milliseconds(waited),
        missed_files,
        more_files,
        with_read_ahead: !seen.is_exact,
        shared: seen.is_shared,
        truncated: seen.asked.is_full || seen.unnoticed.is_none(),
        learned: None,
        advice: None,
        earlier: 0,
    };
    report.advice = advice(&report);
    report
}

fn recorded(start: &Facts, seen: &Seen, sorted: &Sorted) -> Option<RecordedPages> {
    let recorded = start.recorded.as_ref()?;
    let fetched = recorded.after.without(&recorded.before);
    // A process that raised an event for a page read it, too.
    let looked_at = seen.touched.looked_for.without(&sorted.inside);
    let unused = looked_at.without(&seen.touched.pages);
    // The prefilled pages are read as often as the sample of them that was left out.
    let hidden = seen.prefilled.brought.and(&recorded.pages);
    let hidden = hidden.without(&sorted.inside).count();
    let sample = looked_at.and(&seen.prefilled.left_out);
    let hidden = if sample.is_empty() { 0 } else { hidden };
    let estimate = |all: &PageSet| {
        let of_sample = all.and(&sample).count();
        let hidden = (hidden * of_sample + sample.count() / 2)
            .checked_div(sample.count())
            .unwrap_or(0);
        all.count() + hidden
    };
    let pages = recorded.pages.count();
    let known = looked_at.count() + sorted.inside.count() + hidden;
    Some(RecordedPages {
        pages,
        present: recorded.before.count(),
        fetched: fetched.count(),
        // Those that were asked for while they were arriving came by the recording all the same.
        late: sorted.inside.without(&recorded.after).count(),
        sample: (hidden > 0).then(|| sample.count()),
        touched: known - estimate(&unused),
        unused: estimate(&unused),
        fetched_unused: estimate(&unused.and(&fetched)),
        unknown: pages.saturating_sub(known),
    })
}

/// The files that have missed pages, those with the most first, and how many more there are.
fn files(tree: &ViewTree, missed: &PageSet, waits: &[WaitRecord]) -> (Vec<MissedFile>, u64) {
    let mut parts = tree.parts(missed);
    parts.sort_by_key(|part| (part.key, part.pages.start));
    let mut pages: HashMap<InodeId, u64> = HashMap::new();
    for part in &parts {
        *pages.entry(part.inode).or_default() += part.pages.end - part.pages.start;
    }
    let mut waited: HashMap<InodeId, Duration> = HashMap::new();
    for wait in waits {
        if let Some(inode) = file_of(&parts, wait) {
            *waited.entry(inode).or_default() += wait.waited;
        }
    }
    let mut most: Vec<(InodeId, u64)> = pages.into_iter().collect();
    most.sort_by_key(|(inode, pages)| (std::cmp::Reverse(*pages), *inode));
    let more = most.len().saturating_sub(MAX_FILES);
    most.truncate(MAX_FILES);
    let paths = tree.paths(most.iter().map(|(inode, _)| *inode));
    let named = most.into_iter().map(|(inode, pages)| MissedFile {
        path: paths
            .get(&inode)
            .map_or_else(String::new, |path| format!("/{}", String::from_utf8_lossy(path))),
        pages,
        waited_ms: waited.get(&inode).map_or(0.0, |time| milliseconds(*time)),
    });
    (named.collect(), more as u64)
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// The file of a wait, among sorted parts.
fn file_of(parts: &[FilePart], wait: &WaitRecord) -> Option<InodeId> {
    let key = wait.key?;
    let (first, end) = (wait.range.start / PAGE_SIZE, wait.range.end.div_ceil(PAGE_SIZE));
    let place = parts.partition_point(|part| (part.key, part.pages.end) <= (key, first));
    let part = parts.get(place)?;
    (part.key == key && part.pages.start < end).then_some(part.inode)
}

/// Whether the advice is to record the service.
pub(super) fn is_to_be_recorded(report: &StartReport) -> bool {
    report.loaded.is_none() && report.advice.is_some()
}

/// The advice to record a service again, which was recorded for another version of its image.
pub(super) fn advice_to_record_again(report: &StartReport, earlier: &EarlierVersion) -> String {
    let tag = earlier
        .tag
        .as_ref()
        .map_or_else(String::new, |tag| format!(", tag {tag}"));
    format!(
        "this command line was recorded for an earlier version of the image ({}{tag}), and not for this one: `xebec record \
         [--probe …] {} [CMD…]` lets starts bring these pages by one request",
        earlier.manifest, report.reference
    )
}

/// The advice about a possible gain, in one sentence.
fn advice(report: &StartReport) -> Option<String> {
    let image = &report.reference;
    let read = report.missed_pages + report.local_pages + report.recorded.map_or(0, |pages| pages.touched);
    let misses_many = report.missed_pages >= MANY_MISSED.max(read / MISSED_PART);
    let Some(loaded) = &report.loaded else {
        let is_worth_it = misses_many && report.end != StartEnd::Limit;
        return is_worth_it.then(|| {
            format!(
                "nobody recorded this command line: `xebec record [--probe …] {image} [CMD…]` lets starts bring these pages by one request"
            )
        });
    };
    if let Some(problem) = &loaded.problem {
        return Some(format!("the recording could not be used as it should: {problem}"));
    }
    let pages = report.recorded?;
    if misses_many {
        return Some(format!(
            "the recording lacks what this start read: `xebec record --repeat 3` makes one of several starts, and `xebec run \
             --learn` keeps what starts like this one read, which `xebec record --merge {image}` adds"
        ));
    }
    let has_many_unused = pages.unused >= MANY_UNUSED.max(pages.pages / UNUSED_PART);
    (has_many_unused && !report.shared).then(|| {
        format!(
            "a good part of the recording was not read: `xebec record {image}` again, if starts changed since it was made"
        )
    })
}

/// The pages of a set, by the layers' places in a start.
pub(super) fn runs_of(start: &Facts, pages: &PageSet) -> Vec<PageRun> {
    let mut all = Vec::new();
    for (number, key) in (0u16..).zip(keys(start)) {
        let runs = pages.runs(key).iter();
        all.extend(runs.map(|run| PageRun {
            layer: number,
            first: run.start,
            pages: u32::try_from(run.end - run.start).unwrap_or(u32::MAX),
        }));
    }
    all
}

#[cfg(test)]
mod tests;
