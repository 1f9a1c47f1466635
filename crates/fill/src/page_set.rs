//! Pages of layers' data spaces, as sets: those that a recording names, that were there, or that were touched.

use std::collections::BTreeMap;
use std::ops::Range;

use xebec_cache::store::LayerKey;

/// Which pages of which layers: runs of page numbers of the data space, ascending and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSet(BTreeMap<LayerKey, Vec<Range<u64>>>);

impl PageSet {
    /// The pages of one layer, as runs in any order that may touch or overlap, in place of those that it had.
    pub fn insert(&mut self, key: LayerKey, runs: Vec<Range<u64>>) {
        let joined = normal(runs);
        match joined.is_empty() {
            true => self.0.remove(&key),
            false => self.0.insert(key, joined),
        };
    }

    /// The pages of another set, too.
    pub fn add(&mut self, other: &Self) {
        for (key, runs) in other.layers() {
            let all = [self.runs(key), runs].concat();
            self.insert(key, all);
        }
    }

    /// The runs of one layer.
    pub fn runs(&self, key: LayerKey) -> &[Range<u64>] {
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }

    /// All layers that have pages here, with their runs.
    pub fn layers(&self) -> impl Iterator<Item = (LayerKey, &[Range<u64>])> {
        self.0.iter().map(|(key, runs)| (*key, runs.as_slice()))
    }

    /// How many pages there are.
    pub fn count(&self) -> u64 {
        self.0.values().flatten().map(length).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pages that are in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut both = Self::default();
        for (key, runs) in self.layers() {
            both.insert(key, common(runs, other.runs(key)));
        }
        both
    }

    /// The pages that the other has not.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        for (key, runs) in self.layers() {
            rest.insert(key, difference(runs, other.runs(key)));
        }
        rest
    }
}

impl FromIterator<(LayerKey, Range<u64>)> for PageSet {
    /// Of runs in any order that may touch or overlap.
    fn from_iter<I: IntoIterator<Item = (LayerKey, Range<u64>)>>(runs: I) -> Self {
        let mut lists = BTreeMap::<_, Vec<_>>::new();
        for (key, run) in runs {
            lists.entry(key).or_default().push(run);
        }
        let mut set = Self::default();
        lists.into_iter().for_each(|(key, runs)| set.insert(key, runs));
        set
    }
}

/// Runs in ascending order, joined where they touch.
pub fn normal(mut runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    runs.retain(|run| !run.is_empty());
    runs.sort_unstable_by_key(|run| run.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(runs.len());
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
            _ => joined.push(run),
        }
    }
    joined
}

/// The pages that two lists of ascending runs have in common.
pub fn common(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut both = Vec::new();
    for run in one {
        let first = other.partition_point(|against| against.end <= run.start);
        for against in other
            .iter()
            .skip(first)
            .take_while(|against| against.start < run.end)
        {
            both.push(run.start.max(against.start)..run.end.min(against.end));
        }
    }
    both
}

/// The pages that the first of two lists of ascending runs has and the second has not.
pub fn difference(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    for run in one {
        let mut at = run.start;
        let first = other.partition_point(|against| against.end <= run.start);
        for against in other
            .iter()
            .skip(first)
            .take_while(|against| against.start < run.end)
        {
            rest.push(at..against.start.max(at));
            at = at.max(against.end);
        }
        rest.push(at.min(run.end)..run.end);
    }
    rest
}

/// How many pages a run has.
fn length(run: &Range<u64>) -> u64 {
    run.end.saturating_sub(run.start)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use xebec_format::digest::Digest;

    use super::*;

    const KEY: LayerKey = LayerKey {
        layer: Digest::from_bytes([1; 32]),
        index: Digest::from_bytes([2; 32]),
    };

    fn set(pages: &BTreeSet<u64>) -> PageSet {
        let mut set = PageSet::default();
        set.insert(KEY, pages.iter().map(|page| *page..page + 1).collect());
        set
    }

    fn pages(set: &PageSet) -> BTreeSet<u64> {
        set.runs(KEY).iter().cloned().flatten().collect()
    }

    proptest! {
        /// As sets of single pages do.
        #[test]
        fn they_are_sets(
            one in prop::collection::btree_set(0u64..60, 0..40),
            other in prop::collection::btree_set(0u64..60, 0..40),
        ) {
            let (left, right) = (set(&one), set(&other));
            prop_assert_eq!(left.count(), one.len() as u64);
            prop_assert_eq!(left.is_empty(), one.is_empty());
            prop_assert_eq!(pages(&left.and(&right)), one.intersection(&other).copied().collect::<BTreeSet<_>>());
            let mut all = left.clone();
            all.add(&right);
            prop_assert_eq!(&all, &set(&one.union(&other).copied().collect()));
            let rest = left.without(&right);
            prop_assert_eq!(pages(&rest), one.difference(&other).copied().collect::<BTreeSet<_>>());
            // Runs stay apart, so that equal sets are equal values.
            prop_assert_eq!(&rest, &set(&pages(&rest)));
        }
    }
}
