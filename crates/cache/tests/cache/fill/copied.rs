//! Spans that are put together from other layers: right whatever those have, and not fetched.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use xebec_cache::fill::{LocalContents, Patience};
use xebec_cache::layer::CachedLayer;

use super::support::{Filled, PAGE, assert_claims_are_true, runtime};

/// Stretches of the taker, each with the place of the giver where it is said to be.
fn local(giver: &Arc<CachedLayer>, stretches: &[(Range<u64>, u64)]) -> Arc<LocalContents> {
    let mut local = LocalContents::new(vec![giver.data_path()]);
    for (place, offset) in stretches {
        local.add(place.clone(), 0, *offset);
    }
    Arc::new(local)
}

/// A layer that is complete. Its first bytes are those of every other layer that is made here.
fn giver(pages: u64) -> Filled {
    let giver = Filled::new(pages, &[]);
    let complete = giver.filler.complete(1, || Patience::Brief);
    runtime().block_on(complete).unwrap();
    giver
}

#[test]
fn what_others_have_is_not_fetched() {
    let giver = giver(64);
    let taker = Filled::new(32, &[5000, 3 * PAGE, 20 * PAGE]);
    let all = local(&giver.layer, &[(0..7 * PAGE, 0), (7 * PAGE..32 * PAGE, 7 * PAGE)]);
    let spared = runtime().block_on(taker.filler.copy(&all)).unwrap();
    assert_eq!(spared, 32 * PAGE);
    assert!(taker.layer.is_complete());
    assert_claims_are_true(&taker.layer, &taker.source);
    assert_eq!(taker.source.reads.load(Ordering::Relaxed), 0);
    assert_eq!(
        runtime().block_on(taker.filler.copy(&all)).unwrap(),
        0,
        "it is there"
    );
}

#[test]
fn a_span_with_a_gap_is_fetched() {
    let giver = giver(64);
    let taker = Filled::new(32, &[8 * PAGE, 16 * PAGE]);
    let but_a_byte = [(0..10 * PAGE, 0), (10 * PAGE + 1..32 * PAGE, 10 * PAGE + 1)];
    let local = local(&giver.layer, &but_a_byte);
    let copied = taker.filler.copy(&local);
    assert_eq!(runtime().block_on(copied).unwrap(), 24 * PAGE);
    assert!(!taker.layer.is_complete());
    let completed = taker.filler.complete(1, || Patience::Brief);
    runtime().block_on(completed).unwrap();
    assert_eq!(*taker.source.asked.lock(), [8 * PAGE..16 * PAGE]);
    assert_claims_are_true(&taker.layer, &taker.source);
}

#[test]
fn a_giver_that_lacks_its_pages_gives_nothing_wrong() {
    // As after an eviction: its pages read as zeros.
    let empty = Filled::new(64, &[]);
    let taker = Filled::new(32, &[8 * PAGE]);
    let all = local(&empty.layer, &[(0..32 * PAGE, 0)]);
    let copied = taker.filler.copy(&all);
    assert_eq!(runtime().block_on(copied).unwrap(), 0);
    assert_eq!(taker.layer.presence().present(), 0);
    let beyond = local(&empty.layer, &[(0..32 * PAGE, 60 * PAGE)]);
    assert_eq!(runtime().block_on(taker.filler.copy(&beyond)).unwrap(), 0);
    let overflows = local(&empty.layer, &[(0..8 * PAGE, u64::MAX - 5)]);
    assert_eq!(runtime().block_on(taker.filler.copy(&overflows)).unwrap(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any stretches, right or wrong: what is claimed is right, and the rest can be fetched.
    #[test]
    fn any_stretches(
        ends in prop::collection::btree_set(1_u64..20 * PAGE, 0..8),
        cuts in prop::collection::btree_set(0_u64..20 * PAGE, 0..8),
        wrong in prop::collection::vec(prop::bool::weighted(0.2), 8),
    ) {
        let giver = giver(24);
        let ends: Vec<u64> = ends.into_iter().collect();
        let taker = Filled::new(20, &ends);
        let cuts: Vec<u64> = cuts.into_iter().collect();
        let stretches: Vec<(Range<u64>, u64)> = cuts
            .windows(2)
            .zip(&wrong)
            .map(|(cut, wrong)| (cut[0]..cut[1], cut[0] + u64::from(*wrong) * 3))
            .collect();
        let runtime = runtime();
        runtime.block_on(taker.filler.copy(&local(&giver.layer, &stretches))).unwrap();
        assert_claims_are_true(&taker.layer, &taker.source);
        runtime.block_on(taker.filler.complete(1, || Patience::Brief)).unwrap();
        prop_assert!(taker.layer.is_complete());
        assert_claims_are_true(&taker.layer, &taker.source);
    }
}
