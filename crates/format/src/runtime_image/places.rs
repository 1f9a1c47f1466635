//! Where the pages of a recording are held: an order by page of what segments and zeros list.

use super::{PageRun, Recording};

/// The part of a recording that holds a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The segment with this place in [`Recording::segments`].
    Segment(usize),
    /// [`Recording::zeros`].
    Zeros,
}

/// A run of a segment or of the zeros.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) run: PageRun,
    pub(super) holder: Holder,
    /// How many pages segments (or zeros) list before it.
    pub(super) place: u64,
}

/// All that is held, ascending by layer and page.
pub(super) struct Places(Vec<Held>);

/// All runs in the order in which the recording lists them: those of the segments, then the zeros.
pub(super) fn listed(recording: &Recording) -> impl Iterator<Item = (Holder, PageRun)> + '_ {
    let segments = recording.segments.iter().enumerate();
    let in_segments = segments.flat_map(|(number, segment)| {
        segment
            .runs
            .iter()
            .map(move |run| (Holder::Segment(number), *run))
    });
    in_segments.chain(recording.zeros.iter().map(|run| (Holder::Zeros, *run)))
}

impl Places {
    pub(super) fn of(recording: &Recording) -> Self {
        let (mut in_segments, mut in_zeros) = (0u64, 0u64);
        let mut all: Vec<Held> = listed(recording)
            .map(|(holder, run)| {
                let next = match holder {
                    Holder::Segment(_) => &mut in_segments,
                    Holder::Zeros => &mut in_zeros,
                };
                let place = *next;
                *next = next.saturating_add(u64::from(run.pages));
                Held { run, holder, place }
            })
            .collect();
        all.sort_unstable_by_key(|held| (held.run.layer, held.run.first));
        Self(all)
    }

    /// Whether some page is held twice.
    pub(super) fn overlap(&self) -> bool {
        overlap(self.0.iter().map(|held| held.run))
    }

    /// The parts of `run` that are held, in the order of their pages, each with its holder.
    pub(super) fn parts(&self, run: PageRun) -> impl Iterator<Item = (PageRun, &Held)> + '_ {
        let from = self
            .0
            .partition_point(|held| (held.run.layer, held.run.end()) <= (run.layer, run.first));
        let near = self.0.get(from..).unwrap_or_default().iter();
        near.take_while(move |held| held.run.layer == run.layer && held.run.first < run.end())
            .filter_map(move |held| {
                let first = held.run.first.max(run.first);
                let pages = held.run.end().min(run.end()).checked_sub(first)?;
                let (layer, pages) = (run.layer, u32::try_from(pages).ok()?);
                Some((PageRun { layer, first, pages }, held))
            })
    }
}

/// Whether a page is in two of `runs`, which ascend by layer and first page.
pub(super) fn overlap(runs: impl Iterator<Item = PageRun>) -> bool {
    let mut last: Option<PageRun> = None;
    for run in runs {
        if last.is_some_and(|last| last.layer == run.layer && run.first < last.end()) {
            return true;
        }
        last = Some(run);
    }
    false
}
