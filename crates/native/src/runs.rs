//! Runs of pages as a list of numbers: how many pages are missing before a run, how many it has, and so on.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The most runs that are read of one layer.
pub const MAX_RUNS: usize = 1 << 16;

/// Pages of a layer's data space, as runs that ascend and do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u64>", into = "Vec<u64>")]
pub struct PageRuns(Vec<Range<u64>>);

/// Why numbers are no runs of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunsError {
    /// A gap is named, and no run after it.
    #[error("the last run of pages has no length")]
    Odd,
    /// A run of no pages, or one that touches the run before.
    #[error("a run of pages is empty, or touches the one before")]
    Empty,
    /// A page beyond the last number.
    #[error("a run of pages ends beyond the last page that there can be")]
    TooFar,
    /// More than [`MAX_RUNS`].
    #[error("there are more than {MAX_RUNS} runs of pages")]
    TooMany,
}

impl PageRuns {
    /// The pages of these runs, which may touch and be in any order. If there are too many runs, the shortest are left out.
    pub fn new(mut runs: Vec<Range<u64>>) -> Self {
        runs.retain(|run| run.start < run.end);
        runs.sort_unstable_by_key(|run| run.start);
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(runs.len());
        for run in runs {
            match joined.last_mut().filter(|last| run.start <= last.end) {
                Some(last) => last.end = last.end.max(run.end),
                None => joined.push(run),
            }
        }
        if joined.len() > MAX_RUNS {
            joined.sort_unstable_by_key(|run| std::cmp::Reverse(run.end - run.start));
            joined.truncate(MAX_RUNS);
            joined.sort_unstable_by_key(|run| run.start);
        }
        Self(joined)
    }

    /// The runs.
    pub fn runs(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Whether all of these pages are in the runs.
    pub fn contain(&self, pages: &Range<u64>) -> bool {
        let after = self.0.partition_point(|run| run.start <= pages.start);
        let run = after.checked_sub(1).and_then(|place| self.0.get(place));
        pages.is_empty() || run.is_some_and(|run| pages.end <= run.end)
    }
}

impl From<PageRuns> for Vec<u64> {
    fn from(runs: PageRuns) -> Self {
        let mut end = 0;
        let numbers = runs.0.into_iter().flat_map(|run| {
            let gap = run.start - end;
            end = run.end;
            [gap, run.end - run.start]
        });
        numbers.collect()
    }
}

impl TryFrom<Vec<u64>> for PageRuns {
    type Error = RunsError;

    fn try_from(numbers: Vec<u64>) -> Result<Self, RunsError> {
        if numbers.len() / 2 > MAX_RUNS {
            return Err(RunsError::TooMany);
        }
        let mut runs: Vec<Range<u64>> = Vec::with_capacity(numbers.len() / 2);
        let mut end = 0_u64;
        for pair in numbers.chunks(2) {
            let [gap, pages] = *pair else {
                return Err(RunsError::Odd);
            };
            if pages == 0 || (gap == 0 && !runs.is_empty()) {
                return Err(RunsError::Empty);
            }
            let start = end.checked_add(gap).ok_or(RunsError::TooFar)?;
            end = start.checked_add(pages).ok_or(RunsError::TooFar)?;
            runs.push(start..end);
        }
        Ok(Self(runs))
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::single_range_in_vec_init,
    reason = "a test that cannot go on should stop"
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_that_are_no_runs() {
        let read = |numbers: &[u64]| PageRuns::try_from(numbers.to_vec());
        assert_eq!(read(&[0, 1, 1]), Err(RunsError::Odd));
        assert_eq!(read(&[0, 0]), Err(RunsError::Empty));
        assert_eq!(read(&[3, 1, 0, 1]), Err(RunsError::Empty));
        assert_eq!(read(&[u64::MAX, 1]), Err(RunsError::TooFar));
        assert_eq!(read(&vec![1; 2 * MAX_RUNS + 2]), Err(RunsError::TooMany));
        assert_eq!(read(&[0, 2, 3, 1]).unwrap().runs(), [0..2, 5..6]);
    }

    #[test]
    fn too_many_runs_lose_the_shortest() {
        let runs = (0..MAX_RUNS as u64 + 10).map(|place| place * 10..place * 10 + 1 + u64::from(place >= 10));
        let kept = PageRuns::new(runs.collect());
        assert_eq!(kept.runs().len(), MAX_RUNS);
        assert!(kept.contain(&(100..102)) && !kept.contain(&(0..1)));
    }

    proptest! {
        /// Against a set of pages.
        #[test]
        fn runs_are_the_pages_that_they_were_made_of(
            runs in prop::collection::vec((0_u64..200, 0_u64..20), 0..30),
            (first, length) in (0_u64..220, 0_u64..6),
        ) {
            let runs: Vec<Range<u64>> = runs.into_iter().map(|(first, pages)| first..first + pages).collect();
            let pages: std::collections::BTreeSet<u64> = runs.iter().cloned().flatten().collect();
            let made = PageRuns::new(runs);
            prop_assert!(made.runs().iter().cloned().flatten().eq(pages.iter().copied()));
            let read = PageRuns::try_from(Vec::from(made.clone())).unwrap();
            prop_assert_eq!(&read, &made);
            let asked = first..first + length;
            prop_assert_eq!(read.contain(&asked), asked.clone().all(|page| pages.contains(&page)));
        }

        #[test]
        fn any_numbers_are_runs_or_refused(numbers in prop::collection::vec(prop_oneof![0_u64..4, any::<u64>()], 0..20)) {
            if let Ok(runs) = PageRuns::try_from(numbers.clone()) {
                prop_assert_eq!(Vec::from(runs), numbers);
            }
        }
    }
}
