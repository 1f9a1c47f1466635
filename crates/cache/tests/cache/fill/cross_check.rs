//! Pages of runtime images are compared with the layer: what is unverified is fetched once, and wrong pages are mended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use xebec_cache::fill::{FillStats, Filler, Patience};
use xebec_cache::progress::Ticket;

use super::support::{Filled, MemorySource, PAGE, assert_claims_are_true, layer, read, runtime};

/// Wrong pages in the first spans, right ones further on.
fn inject(filler: &Filler, source: &MemorySource) {
    filler.inject(&[(1, &[1; 2 * PAGE as usize])]).unwrap();
    let right = &source.blob[20 * PAGE as usize..30 * PAGE as usize];
    assert_eq!(filler.inject(&[(20, right)]).unwrap(), 10);
    assert_eq!(filler.inject_zeros(40..41).unwrap(), 1);
}

#[test]
fn cross_checking_fetches_what_is_unverified_once_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let source = MemorySource::new(64 * PAGE);
    let ends: Vec<u64> = (1..40).map(|n| n * 6000).collect();
    let layer = layer(directory.path(), &source, &ends);
    let stats = Arc::new(FillStats::default());
    let filler = Filler::new(layer.clone(), source.clone(), stats.clone());
    runtime().block_on(async {
        inject(&filler, &source);
        read(&filler, PAGE..3 * PAGE).await.unwrap();
        assert_eq!(source.reads.load(Ordering::Relaxed), 0, "they are there");
        let check = |range| {
            let filler = filler.clone();
            async move {
                filler
                    .cross_check(range, Patience::Brief, &Ticket::default())
                    .await
            }
        };
        check(10 * PAGE..20 * PAGE).await.unwrap();
        assert_eq!(
            source.reads.load(Ordering::Relaxed),
            0,
            "none is unverified there"
        );
        let (once, again) = tokio::join!(check(0..3 * PAGE), check(0..3 * PAGE));
        once.and(again).unwrap();
        assert_eq!(source.reads.load(Ordering::Relaxed), 1);
        assert_eq!(layer.take_mismatches(), [1..3]);
        assert_eq!(layer.unverified(0..64), [20..30, 40..41]);
        check(0..64 * PAGE).await.unwrap();
        assert!(!layer.has_unverified());
        assert_eq!(layer.take_mismatches(), [40..41]);
        check(0..64 * PAGE).await.unwrap();
    });
    assert_claims_are_true(&layer, &source);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!(
        (
            count(&stats.injected_pages),
            count(&stats.checked_pages),
            count(&stats.mismatches)
        ),
        (13, 13, 3)
    );
    assert!(
        layer.missing_spans(0..64 * PAGE).len() > 15,
        "the others stay missing"
    );
}

#[test]
fn a_cross_check_outlasts_wrong_bytes_and_outages() {
    let Filled {
        source,
        layer,
        filler,
        _directory,
    } = Filled::new(64, &[10 * PAGE, 35 * PAGE]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        inject(&filler, &source);
        source.wrong_at_first.store(true, Ordering::Relaxed);
        source.down.store(true, Ordering::Relaxed);
        let hasty = filler
            .cross_check(0..64 * PAGE, Patience::Brief, &Ticket::default())
            .await;
        assert!(hasty.is_err());
        assert_eq!(layer.unverified(0..64), [1..3, 20..30, 40..41]);
        let patience = Patience::lasting(Duration::from_secs(60));
        let ticket = Ticket::default();
        let patient = filler.cross_check(0..64 * PAGE, patience, &ticket);
        let mends = async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            source.down.store(false, Ordering::Relaxed);
        };
        let (patient, ()) = tokio::join!(patient, mends);
        patient.unwrap();
    });
    assert!(layer.is_complete() && !layer.has_unverified());
    assert_eq!(layer.take_mismatches(), [1..3, 40..41]);
    assert_claims_are_true(&layer, &source);
}
