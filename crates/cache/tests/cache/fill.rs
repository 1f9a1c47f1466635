//! Fills against a source in memory: every byte that is claimed is right, whatever the order, the parallelism and the
//! faults; what several readers want is fetched once.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "one run of pages is what is asked for"
)]

mod compressed;
mod copied;
mod cross_check;
mod faults;
mod support;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use xebec_cache::boot::BootId;
use xebec_cache::disk::{Disk, RealDisk};
use xebec_cache::fill::{Ask, BoxFuture, Fetched, FillStats, Filler, Patience, Source, SourceError};
use xebec_cache::layer::{CachedLayer, LayerPlace};
use xebec_cache::progress::Ticket;
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Span, SpanTable};

use support::{Filled, MemorySource, PAGE, assert_claims_are_true, layer, read, runtime};

#[test]
fn many_readers_of_one_span_cause_one_fetch() {
    let Filled {
        layer,
        source,
        filler,
        ..
    } = &Filled::new(64, &[]);
    runtime().block_on(async {
        let readers = (0..64).map(|page| {
            let filler = filler.clone();
            tokio::spawn(async move { read(&filler, page * PAGE..(page + 1) * PAGE).await })
        });
        for reader in readers.collect::<Vec<_>>() {
            reader.await.unwrap().unwrap();
        }
    });
    assert_eq!(source.reads.load(Ordering::Relaxed), 1);
    assert_claims_are_true(layer, source);
    assert!(layer.is_complete());
}

#[test]
fn one_request_asks_for_4_mib_of_neighbours_at_most() {
    const MIB: u64 = 1 << 20;
    let ends: Vec<u64> = (1..11).map(|n| n * MIB).collect();
    let Filled { source, filler, .. } = &Filled::new(11 * MIB / PAGE, &ends);
    runtime()
        .block_on(filler.complete(1, || Patience::Brief))
        .unwrap();
    let asked = source.asked.lock().clone();
    assert_eq!(asked, [0..4 * MIB, 4 * MIB..8 * MIB, 8 * MIB..11 * MIB]);
}

#[test]
fn what_is_read_in_order_is_fetched_ahead_and_counted_once() {
    let ends: Vec<u64> = (1..16).map(|n| n * 2 * PAGE).collect();
    let directory = tempfile::tempdir().unwrap();
    let source = MemorySource::new(32 * PAGE);
    let layer = layer(directory.path(), &source, &ends);
    let stats = Arc::new(FillStats::default());
    let filler = Filler::new(layer.clone(), source.clone(), stats.clone());
    let asked = || -> u64 {
        source
            .asked
            .lock()
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    };
    runtime().block_on(async {
        for page in 0..32 {
            read(&filler, page * PAGE..(page + 1) * PAGE).await.unwrap();
            // The next read finds what was fetched ahead, however slow this machine is. Sources are counted last.
            while stats.sources.lock().get("memory") != Some(&asked()) {
                tokio::task::yield_now().await;
            }
        }
    });
    assert!(layer.is_complete());
    assert_claims_are_true(&layer, &source);
    let mut spans: Vec<Range<u64>> = source.asked.lock().clone();
    spans
        .iter_mut()
        .for_each(|range| *range = range.start / 2 / PAGE..range.end / 2 / PAGE);
    spans.sort_by_key(|range| range.start);
    assert_eq!(spans, [0..1, 1..2, 2..3, 3..4, 4..6, 6..7, 7..11, 11..12, 12..16]);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    // Readers waited for spans 0, 1, 3, 6 and 11.
    assert_eq!((count(&stats.ranges), count(&stats.hits)), (32, 32 - 5));
    assert_eq!((count(&stats.requests), count(&stats.spans)), (9, 16));
    assert_eq!((count(&stats.joins), count(&stats.failures)), (0, 0));
    let all = 32 * PAGE;
    assert_eq!((count(&stats.bytes), count(&stats.bytes_written)), (all, all));
}

#[test]
fn completing_fetches_every_byte_once() {
    let ends: Vec<u64> = (1..40).map(|n| n * 6000).collect();
    let Filled {
        layer,
        source,
        filler,
        ..
    } = &Filled::new(64, &ends);
    runtime()
        .block_on(filler.complete(3, || Patience::Brief))
        .unwrap();
    assert!(layer.is_complete());
    assert_claims_are_true(layer, source);
    let mut asked = source.asked.lock().clone();
    asked.sort_by_key(|range| range.start);
    assert!(
        asked.windows(2).all(|pair| pair[0].end <= pair[1].start),
        "{asked:?}"
    );
}

/// The list of what is missing is made at the start, and readers are at work meanwhile.
#[test]
fn completing_fetches_nothing_that_came_meanwhile() {
    let ends: Vec<u64> = (1..5).map(|n| n * 4 * PAGE).collect();
    let Filled {
        layer,
        source,
        filler,
        ..
    } = &Filled::new(20, &ends);
    runtime().block_on(async {
        // Three groups are left, one of each span.
        for span in [1, 3] {
            read(filler, span * 4 * PAGE..(span * 4 + 1) * PAGE)
                .await
                .unwrap();
        }
        let completed = filler.complete(1, || Patience::Brief);
        let (completed, was_read) = tokio::join!(completed, read(filler, 16 * PAGE..17 * PAGE));
        completed.unwrap();
        was_read.unwrap();
    });
    assert!(layer.is_complete());
    assert_claims_are_true(layer, source);
    let asked = source.asked.lock().clone();
    assert_eq!(asked.len(), 5, "{asked:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any spans, any reads, any faults: a read that succeeds has its pages, and no claim is ever wrong.
    #[test]
    fn claims_are_always_true(
        pages in 1u64..40,
        cuts in prop::collection::vec(0.0f64..1.0, 0..12),
        reads in prop::collection::vec((0.0f64..1.0, 1u64..20_000, 0u8..4), 1..20),
    ) {
        let size = pages * PAGE;
        let mut ends: Vec<u64> = cuts.iter().map(|cut| (cut * size as f64) as u64).collect();
        ends.sort_unstable();
        let Filled { layer, source, filler, .. } = &Filled::new(pages, &ends);
        // The pauses before wrong bytes are fetched again take no time here.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            for (at, length, fault) in reads {
                source.wrong.store(fault == 1, Ordering::Relaxed);
                source.down.store(fault == 2, Ordering::Relaxed);
                let start = ((at * size as f64) as u64).min(size - 1);
                let range = start..(start + length).min(size);
                if read(filler, range.clone()).await.is_ok() {
                    assert!(layer.presence().missing(range.start / PAGE..range.end.div_ceil(PAGE)).is_empty());
                }
                assert_claims_are_true(layer, source);
            }
        });
    }
}

/// A registry that sends nothing, and notes how much it was asked for.
#[derive(Default)]
struct Silent(AtomicU64);

impl Source for Silent {
    fn read(&self, ask: Ask) -> BoxFuture<Result<Fetched, SourceError>> {
        self.0
            .fetch_add(ask.range.end - ask.range.start, Ordering::Relaxed);
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn readers_of_large_spans_have_a_share_of_memory() {
    const LARGE: u64 = 64 << 20;
    let directory = tempfile::tempdir().unwrap();
    let span = |number: u64| Span {
        source: number * LARGE..(number + 1) * LARGE,
        bit_offset: 0,
        plain: 0..LARGE,
        data: number * LARGE..(number + 1) * LARGE,
        window: None,
        digest: Digest::of(b""),
    };
    let size = 8 * LARGE;
    let table = SpanTable {
        layer: Digest::of(b"large"),
        layer_size: size,
        codec: Codec::ZstdChunked,
        plain_size: 0,
        data_size: size,
        spans: (0..8).map(span).collect(),
        pieces: Vec::new(),
        windows: None,
    };
    std::fs::File::create(directory.path().join("data"))
        .unwrap()
        .set_len(size)
        .unwrap();
    let key = LayerKey {
        layer: table.layer,
        index: Digest::of(b"index"),
    };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let boot = BootId([0; 16]);
    let layer = CachedLayer::open(
        LayerPlace {
            disk: &disk,
            directory: directory.path(),
            key,
            table,
            boot,
        },
        Arc::default(),
    )
    .unwrap();
    let source = Arc::new(Silent::default());
    let filler = Filler::new(Arc::new(layer), source.clone(), Arc::default());
    let ticket = Ticket::default();
    let patience = Patience::lasting(Duration::from_millis(500));
    filler.ensure(0..size, patience, &ticket).await.unwrap_err();
    let asked = source.0.load(Ordering::Relaxed);
    assert!(
        (LARGE..=128 << 20).contains(&asked),
        "{} MiB are awaited",
        asked >> 20
    );
    filler.abandon();
}
