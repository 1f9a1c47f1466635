//! Sources that send wrong bytes, are down, hang or panic: what is fetched again, how long readers wait, and what they are told.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use xebec_cache::fill::{
    Ask, BoxFuture, FaultKind, Fetched, FillError, FillStats, Filler, Patience, Source, SourceError,
};
use xebec_cache::progress::{Phase, Ticket};

use super::support::{Filled, MemorySource, PAGE, assert_claims_are_true, read, runtime, without_pauses};

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
