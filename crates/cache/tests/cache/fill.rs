//! Fills against a source in memory: every byte that is claimed is right, whatever the order, the parallelism and the
//! faults; what several readers want is fetched once.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "one run of pages is what is asked for"
)]

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use proptest::prelude::*;
use xebec_cache::boot::BootId;
use xebec_cache::disk::{Disk, RealDisk};
use xebec_cache::fill::{
    Ask, Blob, BoxFuture, FaultKind, Fetched, FillError, FillStats, Filler, Patience, Source, SourceError,
};
use xebec_cache::layer::{CachedLayer, LayerPlace};
use xebec_cache::progress::{Phase, Ticket};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Piece, Span, SpanTable};
use xebec_index::indexer::{DataSink, IndexOptions, MIN_SPACING, index_layer};
use xebec_testkit::compression::Compression;
use xebec_testkit::tar::TarBuilder;

const PAGE: u64 = 4096;

/// An uncompressed layer: the blob is the data space.
struct MemorySource {
    blob: Bytes,
    reads: AtomicU64,
    wrong: AtomicBool,
    /// Wrong for a request that avoids no origin yet.
    wrong_at_first: AtomicBool,
    down: AtomicBool,
    /// Never answers.
    hangs: AtomicBool,
    /// Panics, as a defect in a client would.
    panics: AtomicBool,
    asked: Mutex<Vec<Range<u64>>>,
}

impl MemorySource {
    fn new(length: u64) -> Arc<Self> {
        let blob: Vec<u8> = (0..length)
            .map(|at| (at.wrapping_mul(0x9E37_79B9) >> 13) as u8)
            .collect();
        Arc::new(Self {
            blob: blob.into(),
            reads: AtomicU64::new(0),
            wrong: AtomicBool::new(false),
            wrong_at_first: AtomicBool::new(false),
            down: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            asked: Mutex::default(),
        })
    }
}

impl Source for MemorySource {
    fn read(
        &self,
        Ask {
            range,
            avoid,
            progress,
            ..
        }: Ask,
    ) -> BoxFuture<Result<Fetched, SourceError>> {
        progress.enter(Phase::Registry);
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.asked.lock().push(range.clone());
        let hangs = self.hangs.load(Ordering::Relaxed);
        let panics = self.panics.load(Ordering::Relaxed);
        let (wrong, down) = (
            self.wrong.load(Ordering::Relaxed)
                || (self.wrong_at_first.load(Ordering::Relaxed) && avoid.is_empty()),
            self.down.load(Ordering::Relaxed),
        );
        let mut bytes = self.blob.slice(range.start as usize..range.end as usize).to_vec();
        Box::pin(async move {
            if hangs {
                return std::future::pending().await;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert!(!panics, "the client has a defect");
            if down {
                return Err(SourceError {
                    kind: FaultKind::Passing,
                    reason: "the registry is down".to_owned(),
                });
            }
            if wrong {
                bytes[0] ^= 1;
            }
            let sources = vec![("memory".to_owned(), bytes.len() as u64)];
            let bytes = bytes.into();
            Ok(Fetched { bytes, sources })
        })
    }
}

/// A layer over the source's bytes whose spans end at `ends`.
fn layer(directory: &Path, source: &MemorySource, ends: &[u64]) -> Arc<CachedLayer> {
    let size = source.blob.len() as u64;
    let mut spans = Vec::new();
    let mut start = 0;
    for end in ends.iter().copied().chain([size]) {
        if end > start {
            spans.push(Span {
                source: start..end,
                bit_offset: 0,
                plain: start..end,
                data: start..end,
                window: None,
                digest: Digest::of(&source.blob[start as usize..end as usize]),
            });
            start = end;
        }
    }
    let table = SpanTable {
        layer: Digest::of(&source.blob),
        layer_size: size,
        codec: Codec::Tar,
        plain_size: size,
        data_size: size,
        spans,
        pieces: vec![Piece {
            plain_offset: 0,
            data_offset: 0,
            length: size,
        }],
        windows: None,
    };
    std::fs::File::create(directory.join("data"))
        .unwrap()
        .set_len(size)
        .unwrap();
    let key = LayerKey {
        layer: table.layer,
        index: Digest::of(b"index"),
    };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    Arc::new(
        CachedLayer::open(
            LayerPlace {
                disk: &disk,
                directory,
                key,
                table,
                boot: BootId([0; 16]),
            },
            Arc::default(),
        )
        .unwrap(),
    )
}

/// Every claimed page holds the blob's bytes.
fn assert_claims_are_true(layer: &CachedLayer, source: &MemorySource) {
    for page in 0..layer.presence().pages() {
        if layer.presence().missing(page..page + 1).is_empty() {
            let mut bytes = vec![0; PAGE as usize];
            layer.read_at(&mut bytes, page * PAGE).unwrap();
            let at = (page * PAGE) as usize;
            assert!(
                bytes == source.blob[at..at + PAGE as usize],
                "page {page} is claimed and wrong"
            );
        }
    }
}

/// A layer in a directory of its own, and what fills it.
struct Filled {
    source: Arc<MemorySource>,
    layer: Arc<CachedLayer>,
    filler: Arc<Filler>,
    _directory: tempfile::TempDir,
}

impl Filled {
    /// A layer of `pages` pages that are all missing, whose spans end at `ends`.
    fn new(pages: u64, ends: &[u64]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = MemorySource::new(pages * PAGE);
        let layer = layer(directory.path(), &source, ends);
        let stats = Arc::new(FillStats::default());
        Self {
            filler: Filler::new(layer.clone(), source.clone(), stats),
            source,
            layer,
            _directory: directory,
        }
    }
}

/// A reader that does not wait for bytes that are gone.
async fn read(filler: &Arc<Filler>, range: Range<u64>) -> Result<(), FillError> {
    filler.ensure(range, Patience::Brief, &Ticket::default()).await
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

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
fn wrong_bytes_are_named_and_not_kept_and_the_next_read_tries_again() {
    let Filled {
        layer,
        source,
        filler,
        ..
    } = &Filled::new(8, &[4 * PAGE]);
    runtime().block_on(async {
        source.wrong.store(true, Ordering::Relaxed);
        let error = read(filler, 0..1).await.unwrap_err();
        assert!(matches!(error, FillError::Wrong { span: 0, .. }), "{error}");
        assert_eq!(layer.presence().present(), 0);
        let mut bytes = [1; 16];
        layer.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [0; 16], "nothing was written");
        source.wrong.store(false, Ordering::Relaxed);
        read(filler, 0..1).await.unwrap();
    });
    assert_claims_are_true(layer, source);
}

/// A source that fails for this reason, always.
struct Failing(FaultKind, AtomicU64);

impl Source for Failing {
    fn read(&self, _: Ask) -> BoxFuture<Result<Fetched, SourceError>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let (kind, reason) = (self.0, "no such blob".to_owned());
        Box::pin(async move { Err(SourceError { kind, reason }) })
    }
}

/// A runtime in which pauses take no time.
fn without_pauses() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}

#[test]
fn wrong_bytes_are_fetched_four_times_with_longer_pauses() {
    let Filled { source, filler, .. } = &Filled::new(8, &[]);
    source.wrong.store(true, Ordering::Relaxed);
    without_pauses().block_on(async {
        let begin = tokio::time::Instant::now();
        let error = read(filler, 0..1).await.unwrap_err();
        assert!(matches!(error, FillError::Wrong { .. }), "{error}");
        // 0 + 300 + 600 ms, and what four answers take.
        let waited = begin.elapsed().as_millis();
        assert!((900..1000).contains(&waited), "{waited} ms");
    });
    assert_eq!(source.reads.load(Ordering::Relaxed), 4);
}

#[test]
fn only_what_can_be_another_time_is_asked_for_again() {
    for (kind, patience, reads) in [
        (FaultKind::Wrong, Patience::Brief, 4..5),
        (FaultKind::Lasting, Patience::Brief, 1..2),
        (
            FaultKind::Lasting,
            Patience::lasting(Duration::from_secs(3600)),
            1..2,
        ),
        (FaultKind::Passing, Patience::Brief, 1..2),
        (
            FaultKind::Passing,
            Patience::lasting(Duration::from_secs(60)),
            100..300,
        ),
    ] {
        let Filled { layer, .. } = &Filled::new(8, &[]);
        let source = Arc::new(Failing(kind, AtomicU64::new(0)));
        let stats = Arc::new(FillStats::default());
        let filler = Filler::new(layer.clone(), source.clone(), stats.clone());
        let error = without_pauses()
            .block_on(filler.ensure(0..1, patience, &Ticket::default()))
            .unwrap_err();
        assert!(error.to_string().ends_with(": no such blob"), "{error}");
        let asked = source.1.load(Ordering::Relaxed);
        assert!(reads.contains(&asked), "{kind:?} {patience:?}: {asked}");
        let refetches = stats.refetches.load(Ordering::Relaxed);
        assert_eq!(refetches, if kind == FaultKind::Wrong { 3 } else { 0 });
        assert_eq!(stats.requests.load(Ordering::Relaxed), 0);
    }
}

/// Sends a byte less than it is asked for at first.
struct Short(Arc<MemorySource>, AtomicBool);

impl Source for Short {
    fn read(&self, mut ask: Ask) -> BoxFuture<Result<Fetched, SourceError>> {
        let missing = u64::from(!self.1.swap(true, Ordering::Relaxed));
        ask.range.end -= missing;
        self.0.read(ask)
    }
}

#[test]
fn an_answer_of_another_length_is_a_wrong_one() {
    let Filled { layer, source, .. } = &Filled::new(8, &[]);
    let short = Arc::new(Short(source.clone(), AtomicBool::new(false)));
    let stats = Arc::new(FillStats::default());
    let filler = Filler::new(layer.clone(), short, stats.clone());
    let ticket = Ticket::default();
    without_pauses()
        .block_on(filler.ensure(0..1, Patience::Brief, &ticket))
        .unwrap();
    let account = ticket.account();
    let problem = account.problem.unwrap();
    assert!(
        problem.ends_with(": 32767 bytes came instead of 32768"),
        "{problem}"
    );
    assert_eq!(account.retries, 1);
    assert_claims_are_true(layer, source);
    assert!(layer.is_complete());
}

#[test]
fn a_reader_whose_patience_ends_is_told_a_moment_later() {
    let Filled { source, filler, .. } = &Filled::new(8, &[4 * PAGE]);
    source.hangs.store(true, Ordering::Relaxed);
    without_pauses().block_on(async {
        let begin = tokio::time::Instant::now();
        let patience = Patience::lasting(Duration::from_secs(10));
        let late = filler.ensure(0..8 * PAGE, patience, &Ticket::default()).await;
        assert!(matches!(late, Err(FillError::Late { spans: 2, .. })), "{late:?}");
        let waited = begin.elapsed().as_millis();
        assert!((10_001..11_000).contains(&waited), "{waited} ms");
    });
}

#[test]
fn the_patient_outlast_fetches_that_are_given_up() {
    let Filled {
        layer,
        source,
        filler,
        ..
    } = &Filled::new(8, &[]);
    without_pauses().block_on(async {
        source.hangs.store(true, Ordering::Relaxed);
        let ticket = Ticket::default();
        let patient = filler.ensure(0..1, Patience::lasting(Duration::from_secs(60)), &ticket);
        let gives_up = async {
            while source.reads.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            source.hangs.store(false, Ordering::Relaxed);
            filler.abandon();
        };
        let (patient, ()) = tokio::join!(patient, gives_up);
        patient.unwrap();
    });
    assert!(layer.is_complete());
    assert_eq!(source.reads.load(Ordering::Relaxed), 2);
}

#[test]
fn an_outage_is_over_when_it_is_over() {
    let Filled {
        layer,
        source,
        filler,
        ..
    } = &Filled::new(8, &[]);
    runtime().block_on(async {
        source.down.store(true, Ordering::Relaxed);
        assert!(matches!(read(filler, 0..1).await, Err(FillError::Fetch { .. })));
        source.down.store(false, Ordering::Relaxed);
        read(filler, 0..1).await.unwrap();
    });
    assert!(layer.is_complete());
}

#[test]
fn the_patient_outlast_an_outage_and_the_fetches_of_the_hasty() {
    let Filled {
        layer,
        source,
        filler,
        ..
    } = &Filled::new(8, &[]);
    runtime().block_on(async {
        source.down.store(true, Ordering::Relaxed);
        let hasty = read(filler, 0..1);
        let ticket = Ticket::default();
        let patient = filler.ensure(0..1, Patience::lasting(Duration::from_secs(60)), &ticket);
        let mends = async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            source.down.store(false, Ordering::Relaxed);
        };
        let (hasty, patient, ()) = tokio::join!(hasty, patient, mends);
        assert!(matches!(hasty, Err(FillError::Fetch { .. })));
        patient.unwrap();
        let account = ticket.account();
        assert_eq!((account.spans, account.joined), (1, 1));
        assert_eq!(account.phase, Phase::Verify);
        assert_eq!(&*account.sources[0], "memory");
    });
    assert!(layer.is_complete());
}

#[test]
fn patience_ends() {
    let Filled { source, filler, .. } = &Filled::new(8, &[]);
    source.down.store(true, Ordering::Relaxed);
    runtime().block_on(async {
        let begin = std::time::Instant::now();
        let patience = Patience::lasting(Duration::from_millis(600));
        let error = filler
            .ensure(0..1, patience, &Ticket::default())
            .await
            .unwrap_err();
        assert!(error.to_string().contains("the registry is down"), "{error}");
        let waited = begin.elapsed();
        assert!((300..5000).contains(&waited.as_millis()), "{waited:?}");
    });
}

#[test]
fn wrong_bytes_of_one_are_fetched_from_another() {
    let Filled {
        layer,
        source,
        filler,
        ..
    } = &Filled::new(8, &[]);
    source.wrong_at_first.store(true, Ordering::Relaxed);
    runtime().block_on(read(filler, 0..1)).unwrap();
    assert_eq!(source.reads.load(Ordering::Relaxed), 2);
    assert_claims_are_true(layer, source);
    assert!(layer.is_complete());
}

#[test]
fn fetches_that_are_given_up_keep_nothing_open() {
    let Filled {
        layer,
        source,
        filler,
        ..
    } = &Filled::new(8, &[]);
    runtime().block_on(async {
        source.hangs.store(true, Ordering::Relaxed);
        let reader = tokio::spawn({
            let filler = filler.clone();
            async move { read(&filler, 0..1).await }
        });
        while source.reads.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        filler.abandon();
        let error = reader.await.unwrap().unwrap_err();
        assert!(matches!(error, FillError::Abandoned { .. }), "{error}");
        // The test's own and no task's.
        let gone = async {
            while Arc::strong_count(filler) > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.unwrap();
        source.hangs.store(false, Ordering::Relaxed);
        read(filler, 0..1).await.unwrap();
    });
    assert!(layer.is_complete());
}

#[test]
fn a_fetch_that_panics_fails_its_readers_and_is_forgotten() {
    let Filled {
        layer,
        source,
        filler,
        ..
    } = &Filled::new(8, &[]);
    runtime().block_on(async {
        source.panics.store(true, Ordering::Relaxed);
        let error = read(filler, 0..1).await.unwrap_err();
        assert!(matches!(error, FillError::Abandoned { .. }), "{error}");
        source.panics.store(false, Ordering::Relaxed);
        read(filler, 0..1).await.unwrap();
    });
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

/// A registry that never answers. A fetch of bytes before these has failed once, and waits for the next try.
struct FailingBefore(u64);

impl Source for FailingBefore {
    fn read(&self, Ask { range, progress, .. }: Ask) -> BoxFuture<Result<Fetched, SourceError>> {
        progress.enter(Phase::Registry);
        if range.start < self.0 {
            progress.retry("the registry is down".to_owned());
            progress.enter(Phase::Pause);
        }
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_layer_waits_for_its_registry_when_every_fetch_does() {
    let Filled { source, layer, .. } = &Filled::new(64, &[20 * PAGE, 40 * PAGE]);
    assert_eq!(source.blob.len() as u64, 64 * PAGE);
    let filler = Filler::new(layer.clone(), Arc::new(FailingBefore(40 * PAGE)), Arc::default());
    assert_eq!(filler.pausing(), None);
    let fetch = |pages: Range<u64>| {
        let filler = filler.clone();
        let bytes = pages.start * PAGE..pages.end * PAGE;
        async move {
            let ticket = Ticket::default();
            filler
                .ensure(bytes, Patience::lasting(Duration::from_millis(20)), &ticket)
                .await
                .unwrap_err();
        }
    };
    // Not in order: the last span, whose fetch does not fail, would be fetched ahead.
    fetch(20..21).await;
    let pause = Some(("the registry is down".to_owned(), 1));
    assert_eq!(filler.pausing(), pause);
    fetch(0..1).await;
    assert_eq!(filler.pausing(), pause);
    fetch(40..41).await;
    assert_eq!(filler.pausing(), None, "one fetch is under way");
    filler.abandon();
    assert_eq!(filler.pausing(), None);
}

/// A layer that is compressed, and the windows that its spans are decoded with.
struct Compressed {
    blob: Bytes,
    windows: Bytes,
    asked: Mutex<Vec<(Blob, Range<u64>)>>,
}

impl Source for Compressed {
    fn read(&self, ask: Ask) -> BoxFuture<Result<Fetched, SourceError>> {
        let of = match ask.blob {
            Blob::Layer => &self.blob,
            Blob::Windows => &self.windows,
        };
        let bytes = of.slice(ask.range.start as usize..ask.range.end as usize);
        self.asked.lock().push((ask.blob, ask.range));
        Box::pin(async move {
            let sources = vec![("memory".to_owned(), bytes.len() as u64)];
            Ok(Fetched { bytes, sources })
        })
    }
}

struct Plain(Vec<u8>);

impl DataSink for Plain {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.resize(offset as usize, 0);
        self.0.extend_from_slice(bytes);
        Ok(())
    }
}

/// A layer of some spans that are decoded with windows, its source and its data. So many bytes that nobody needs lie between two
/// windows.
fn compressed(directory: &Path, between: u64) -> (Arc<CachedLayer>, Arc<Compressed>, Vec<u8>) {
    let mut random = fastrand::Rng::with_seed(5);
    let mut tar = TarBuilder::new();
    let contents: Vec<u8> = (0..600_000).map(|_| random.u8(..16)).collect();
    tar.file("a", &contents);
    let blob = Compression::Gzip(6).encode(&tar.into_bytes()).unwrap();
    let options = IndexOptions {
        spacing: MIN_SPACING,
        ..IndexOptions::default()
    };
    let mut data = Plain(Vec::new());
    let indexed = index_layer(blob.as_slice(), &options, Some(&mut data)).unwrap();
    let mut table = SpanTable::decode(&indexed.index.encode()).unwrap();
    data.0.resize(table.data_size as usize, 0);
    let mut windows = Vec::new();
    for window in table.spans.iter_mut().filter_map(|span| span.window.as_mut()) {
        let bytes = &indexed.windows[window.offset as usize..][..window.length as usize];
        window.offset = windows.len() as u64;
        windows.extend_from_slice(bytes);
        windows.resize(windows.len() + between as usize, 0xff);
    }
    let key = LayerKey {
        layer: table.layer,
        index: Digest::of(b"index"),
    };
    let file = std::fs::File::create(directory.join("data")).unwrap();
    file.set_len(table.data_size).unwrap();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let place = LayerPlace {
        disk: &disk,
        directory,
        key,
        table,
        boot: BootId([0; 16]),
    };
    let layer = Arc::new(CachedLayer::open(place, Arc::default()).unwrap());
    let source = Compressed {
        blob: blob.into(),
        windows: windows.into(),
        asked: Mutex::default(),
    };
    (layer, Arc::new(source), data.0)
}

#[test]
fn a_compressed_layer_is_fetched_with_the_windows_of_its_spans() {
    for between in [0, 100] {
        let directory = tempfile::tempdir().unwrap();
        let (layer, source, data) = compressed(directory.path(), between);
        let spans = layer.table().spans.clone();
        let windows = spans.iter().filter(|span| span.window.is_some()).count();
        assert!(windows >= 4, "{windows} of {}", spans.len());
        let filler = Filler::new(layer.clone(), source.clone(), Arc::default());
        runtime().block_on(async {
            // One from the midst, and then the others.
            let third = spans[2].data.clone();
            read(&filler, third.start + PAGE..third.start + PAGE + 1)
                .await
                .unwrap();
            let window = spans[2].window.clone().unwrap();
            let history = window.offset..window.offset + u64::from(window.length);
            let asked = std::mem::take(&mut *source.asked.lock());
            assert_eq!(
                asked,
                [(Blob::Layer, spans[2].source.clone()), (Blob::Windows, history)]
            );
            filler.complete(2, || Patience::Brief).await.unwrap();
        });
        assert!(layer.is_complete());
        let mut found = vec![0; data.len()];
        layer.read_at(&mut found, 0).unwrap();
        assert!(found == data);
        let asked = source.asked.lock().clone();
        let histories = asked.iter().filter(|(blob, _)| *blob == Blob::Windows);
        // Windows that lie apart are not asked for together, for what lies between them is not needed.
        let requests = if between == 0 { 2 } else { windows - 1 };
        assert_eq!(histories.count(), requests, "{asked:?}");
    }
}
