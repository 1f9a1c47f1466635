//! Pages that runtime images bring, right and wrong ones, among spans, syncs, evictions, restarts and power cuts,
//! against a model: a page that is present and not unverified always has the layer's bytes.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "one run of pages is what is asked for"
)]

mod truth;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use proptest::prelude::*;
use xebec_cache::boot::BootId;
use xebec_cache::disk::{Access, Disk, RealDisk};
use xebec_cache::layer::{CachedLayer, LayerPlace};
use xebec_cache::stage::{Stage, observe_stages};
use xebec_format::PAGE_SIZE as PAGE;
use xebec_testkit::disk::CrashingDisk;

use truth::Truth;

fn boot(number: u8) -> BootId {
    BootId([number; 16])
}

fn pages_of(range: &Range<u64>) -> Range<u64> {
    range.start / PAGE..range.end.div_ceil(PAGE)
}

#[derive(Clone, Debug)]
enum Step {
    /// Pages in several runs, and whether they are the layer's.
    Inject(Vec<(f64, u64)>, bool),
    InjectZeros(f64, u64),
    Write(f64),
    Sync,
    Punch(f64, u64),
    CrossCheck,
    Reopen,
    Reboot(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (prop::collection::vec((0.0..1.0f64, 1u64..9), 1..5), any::<bool>())
            .prop_map(|(runs, right)| Step::Inject(runs, right)),
        2 => (0.0..1.0f64, 1u64..9).prop_map(|(at, n)| Step::InjectZeros(at, n)),
        6 => (0.0..1.0f64).prop_map(Step::Write),
        3 => Just(Step::Sync),
        2 => (0.0..1.0f64, 1u64..6).prop_map(|(at, n)| Step::Punch(at, n)),
        1 => Just(Step::CrossCheck),
        1 => Just(Step::Reopen),
        1 => any::<u64>().prop_map(Step::Reboot),
    ]
}

/// The mismatches that writing a span must report: the pages in its place that are unverified and differ from it.
fn expected_mismatches(truth: &Truth, layer: &CachedLayer, span: &Range<u64>) -> BTreeSet<u64> {
    let pages = layer.unverified(pages_of(span)).into_iter().flatten();
    let differs = |page: &u64| {
        let part = (page * PAGE).max(span.start)..((page + 1) * PAGE).min(span.end);
        let mut bytes = vec![0; (part.end - part.start) as usize];
        layer.read_at(&mut bytes, part.start).unwrap();
        bytes != truth.bytes(part)
    };
    pages.filter(differs).collect()
}

/// The bytes of each page that is injected; `None` injects zeros, without bytes.
type Given<'a> = Option<&'a dyn Fn(u64) -> Vec<u8>>;

/// Injects these runs, which may overlap, in one go.
fn inject(truth: &Truth, layer: &CachedLayer, runs: &[Range<u64>], given: Given<'_>) {
    let wanted: BTreeSet<u64> = runs.iter().cloned().flatten().collect();
    let is_held = |page: &u64| layer.presence().missing(*page..page + 1).is_empty();
    let (held, new): (Vec<u64>, Vec<u64>) = wanted.iter().partition(|page| is_held(page));
    let read = |page: &u64| {
        let mut bytes = vec![0; PAGE as usize];
        layer.read_at(&mut bytes, page * PAGE).unwrap();
        bytes
    };
    let before: Vec<Vec<u8>> = held.iter().map(read).collect();
    let unverified_before: Vec<u64> = layer.unverified(0..truth.pages()).into_iter().flatten().collect();
    let count = match given {
        Some(given) => {
            let bytes = |run: &Range<u64>| run.clone().flat_map(given).collect();
            let pieces: Vec<(u64, Vec<u8>)> = runs.iter().map(|run| (run.start, bytes(run))).collect();
            let pieces = pieces.iter().map(|(first, bytes)| (*first, &bytes[..]));
            layer.inject(&pieces.collect::<Vec<_>>()).unwrap()
        }
        None => runs
            .iter()
            .map(|run| layer.inject_zeros(run.clone()).unwrap())
            .sum(),
    };
    assert_eq!(count, new.len() as u64);
    assert_eq!(
        held.iter().map(read).collect::<Vec<_>>(),
        before,
        "a present page was written over"
    );
    assert!(wanted.iter().all(is_held));
    let expected: BTreeSet<u64> = new.iter().copied().chain(unverified_before).collect();
    let unverified: BTreeSet<u64> = layer.unverified(0..truth.pages()).into_iter().flatten().collect();
    assert_eq!(unverified, expected);
    // The given bytes are there, where no span's bytes were written.
    for page in new {
        let given = given.map_or(vec![0; PAGE as usize], |given| given(page));
        let found = read(&page);
        for (number, span) in truth.table.spans.iter().enumerate() {
            let part = span.data.start.max(page * PAGE)..span.data.end.min((page + 1) * PAGE);
            if !part.is_empty() && !layer.is_written(number) {
                let place = (part.start - page * PAGE) as usize..(part.end - page * PAGE) as usize;
                assert_eq!(found[place.clone()], given[place]);
            }
        }
    }
}

fn run(pages: u64, seed: u64, steps: &[Step]) {
    let mut random = Rng::with_seed(seed);
    let truth = Truth::new(pages, &mut random);
    let directory = Path::new("/layer");
    let mut disk = CrashingDisk::new();
    truth.make_file(&disk, directory);
    let mut boots = 1;
    // Lies that were told since somebody said that they were heard.
    let mut told = BTreeSet::new();
    let mut layer = truth.open(&(Arc::new(disk.clone()) as Arc<dyn Disk>), directory, boot(boots));
    let range = |at: f64, length: u64| {
        let start = (at * pages as f64) as u64;
        start..(start + length).min(pages)
    };
    for step in steps {
        match step {
            Step::Inject(runs, right) => {
                let runs: Vec<_> = runs.iter().map(|(at, length)| range(*at, *length)).collect();
                let given = |page: u64| {
                    let mut bytes = truth.bytes(page * PAGE..(page + 1) * PAGE).to_vec();
                    if !right {
                        bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
                    }
                    bytes
                };
                inject(&truth, &layer, &runs, Some(&given));
            }
            Step::InjectZeros(at, length) => inject(&truth, &layer, &[range(*at, *length)], None),
            Step::Write(at) => {
                let number = (at * truth.table.spans.len() as f64) as usize;
                let span = truth.table.spans[number].data.clone();
                let expected = expected_mismatches(&truth, &layer, &span);
                let before = layer.unverified(0..pages).into_iter().flatten().count();
                let compared = truth.write(&layer, number);
                let mismatches: BTreeSet<u64> = layer.take_mismatches().into_iter().flatten().collect();
                assert_eq!(mismatches, expected);
                assert_eq!(compared.mismatches, mismatches.len() as u64);
                told.extend(mismatches);
                let after = layer.unverified(0..pages).into_iter().flatten().count();
                assert_eq!(compared.verified as usize, before - after);
                assert!(layer.missing_spans(span).iter().all(|missing| *missing != number));
            }
            Step::Sync => {
                layer.sync(|| Ok(())).unwrap();
                assert!(layer.presence().is_durable());
            }
            Step::Punch(at, length) => {
                let pages = range(*at, *length);
                layer.punch(pages.clone()).unwrap();
                assert_eq!(layer.presence().held(pages.clone()), []);
                assert_eq!(layer.unverified(pages), []);
            }
            Step::CrossCheck => {
                truth.cross_check(&layer);
                told.extend(layer.take_mismatches().into_iter().flatten());
            }
            Step::Reopen | Step::Reboot(_) => {
                drop(layer);
                if let Step::Reboot(seed) = step {
                    disk = disk.after_power_cut(&mut Rng::with_seed(*seed));
                    boots += 1;
                }
                layer = truth.open(&(Arc::new(disk.clone()) as Arc<dyn Disk>), directory, boot(boots));
                let again: BTreeSet<u64> = layer.take_mismatches().into_iter().flatten().collect();
                // A power cut may lose that they were told, or that they were heard.
                if matches!(step, Step::Reopen) {
                    assert_eq!(again, told, "mismatches are told until they are heard");
                }
                layer.mismatches_are_heard();
                told.clear();
            }
        }
        truth.assert_true(&layer);
        let (shared, key) = (Arc::new(disk.clone()) as Arc<dyn Disk>, truth.key());
        let look = CachedLayer::look(LayerPlace {
            disk: &shared,
            directory,
            key,
            table: truth.table.clone(),
            boot: boot(boots),
        })
        .unwrap();
        truth.assert_true(&look);
        assert_eq!(look.presence().present(), layer.presence().present());
    }
    // Whatever happened, it can be finished.
    for span in layer.missing_spans(0..truth.table.data_size) {
        truth.write(&layer, span);
    }
    truth.cross_check(&layer);
    assert!(layer.is_complete());
    truth.assert_true(&layer);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_believed_is_true(
        pages in 1u64..24,
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        run(pages, seed, &steps);
    }
}

thread_local! {
    /// Whether this thread's fills pause.
    static PAUSES: Cell<bool> = const { Cell::new(false) };
}

/// Injections of wrong pages and fills of the same pages, on two threads each. Fills pause where an injection must not
/// come between.
#[test]
fn injections_and_fills_at_once_leave_no_lie() {
    observe_stages(|stage| {
        if stage == Stage::Written && PAUSES.get() {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    });
    for seed in 0..12 {
        let directory = tempfile::tempdir().unwrap();
        let truth = Truth::new(160, &mut Rng::with_seed(seed));
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        truth.make_file(&*disk, directory.path());
        let layer = truth.open(&disk, directory.path(), boot(1));
        let done = AtomicBool::new(false);
        let fill = |seed: u64, half: usize| {
            PAUSES.set(true);
            let mut random = Rng::with_seed(seed);
            // Each span once: writing it again would mend pages that were written over.
            let mut spans: Vec<usize> = (half..truth.table.spans.len()).step_by(2).collect();
            random.shuffle(&mut spans);
            for span in spans {
                truth.write(&layer, span);
            }
        };
        let inject = |seed: u64| {
            let mut random = Rng::with_seed(seed);
            while !layer.is_complete() {
                let mut piece = || {
                    let start = random.u64(..truth.pages());
                    let end = (start + random.u64(1..8)).min(truth.pages());
                    let mut bytes = truth.bytes(start * PAGE..end * PAGE).to_vec();
                    bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
                    (start, bytes)
                };
                let (one, other) = (piece(), piece());
                layer.inject(&[(one.0, &one.1), (other.0, &other.1)]).unwrap();
            }
        };
        let (fill, inject) = (&fill, &inject);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    layer.sync(|| Ok(())).unwrap();
                }
            });
            let workers = [
                scope.spawn(move || fill(seed, 0)),
                scope.spawn(move || inject(seed + 100)),
                scope.spawn(move || fill(seed + 200, 1)),
                scope.spawn(move || inject(seed + 300)),
            ];
            for worker in workers {
                worker.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert!(layer.is_complete());
        assert!(!layer.has_unverified(), "every span was written");
        truth.assert_true(&layer);
    }
}

/// A layer of eight pages, right ones injected into the first four and a span of the others written.
fn half_injected(directory: &Path) -> (Truth, Arc<dyn Disk>, CachedLayer) {
    let mut truth = Truth::new(8, &mut Rng::with_seed(1));
    let mut spans = truth.table.spans[..2].to_vec();
    (spans[0].data, spans[1].data) = (0..4 * PAGE, 4 * PAGE..8 * PAGE);
    truth.table.spans = spans;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    truth.make_file(&*disk, directory);
    let layer = truth.open(&disk, directory, boot(1));
    assert_eq!(layer.inject(&[(0, truth.bytes(0..4 * PAGE))]).unwrap(), 4);
    truth.write(&layer, 1);
    (truth, disk, layer)
}

#[test]
fn the_bitmap_appears_with_the_first_injection_and_is_believed_after_a_reboot() {
    let directory = tempfile::tempdir().unwrap();
    let truth = Truth::new(8, &mut Rng::with_seed(1));
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    truth.make_file(&*disk, directory.path());
    let layer = truth.open(&disk, directory.path(), boot(1));
    truth.write(&layer, 0);
    layer.sync(|| Ok(())).unwrap();
    assert!(!directory.path().join("unverified").exists());
    drop(layer);
    let directory = tempfile::tempdir().unwrap();
    let (truth, disk, layer) = half_injected(directory.path());
    assert!(directory.path().join("unverified").exists());
    assert_eq!(layer.unverified(0..8), [0..4]);
    layer.sync(|| Ok(())).unwrap();
    drop(layer);
    let layer = truth.open(&disk, directory.path(), boot(2));
    assert_eq!(
        (layer.presence().present(), layer.unverified(0..8)),
        (8, vec![0..4])
    );
    assert_eq!(layer.unverified_spans(0..truth.table.data_size), [0]);
    assert_eq!(truth.write(&layer, 0).verified, 4);
    assert_eq!(layer.take_mismatches(), []);
    drop(layer);
    // Not synced: the file still says so.
    let layer = truth.open(&disk, directory.path(), boot(2));
    assert_eq!(layer.unverified(0..8), [0..4]);
    truth.cross_check(&layer);
    assert!(!layer.presence().is_durable());
    assert!(!layer.has_unverified() && layer.may_have_unverified());
    layer.sync(|| Ok(())).unwrap();
    assert!(!layer.may_have_unverified());
    drop(layer);
    let layer = truth.open(&disk, directory.path(), boot(2));
    assert!(!layer.has_unverified());
    layer.punch(0..8).unwrap();
    layer.inject_zeros(2..4).unwrap();
    layer.punch(3..4).unwrap();
    layer.sync(|| Ok(())).unwrap();
    let file = std::fs::read(directory.path().join("unverified")).unwrap();
    assert_eq!(file[4096..], [0b100]);
}

#[test]
fn a_crash_at_the_first_injection_makes_no_verified_page_unverified() {
    let (truth, directory) = (Truth::new(12, &mut Rng::with_seed(3)), Path::new("/layer"));
    let disk = CrashingDisk::new();
    truth.make_file(&disk, directory);
    let layer = truth.open(&(Arc::new(disk.clone()) as Arc<dyn Disk>), directory, boot(1));
    truth.write(&layer, 0);
    truth.write(&layer, 1);
    let verified: Vec<u64> = layer.presence().held(0..12).into_iter().flatten().collect();
    assert!(!verified.is_empty());
    disk.record();
    layer.inject(&[(0, &[7; 12 * PAGE as usize])]).unwrap();
    let steps = disk.steps();
    assert!(steps.len() > 5);
    for step in steps {
        let disk = Arc::new(step.after_kill()) as Arc<dyn Disk>;
        let layer = truth.open(&disk, directory, boot(1));
        let unverified: Vec<u64> = layer.unverified(0..12).into_iter().flatten().collect();
        assert!(
            verified.iter().all(|page| !unverified.contains(page)),
            "{unverified:?}"
        );
        truth.assert_true(&layer);
    }
}

#[test]
fn a_damaged_bitmap_makes_every_page_unverified() {
    for junk in [&b""[..], b"XBUNVRFD", &[0xff; 5000], &[0; 4097]] {
        let directory = tempfile::tempdir().unwrap();
        let (truth, disk, layer) = half_injected(directory.path());
        layer.sync(|| Ok(())).unwrap();
        drop(layer);
        std::fs::write(directory.path().join("unverified"), junk).unwrap();
        let layer = truth.open(&disk, directory.path(), boot(2));
        assert_eq!(layer.unverified(0..8), [0..8]);
        layer.punch(6..8).unwrap();
        assert_eq!(layer.inject_zeros(7..8).unwrap(), 1);
        assert_eq!(layer.unverified(0..8), [0..6, 7..8]);
        truth.write(&layer, 0);
        assert_eq!(layer.unverified(0..8), [4..6, 7..8]);
        layer.sync(|| Ok(())).unwrap();
        assert!(layer.presence().is_durable());
        drop(layer);
        // It is made anew with the pages that are known.
        let layer = truth.open(&disk, directory.path(), boot(3));
        assert_eq!(layer.unverified(0..8), [4..6, 7..8]);
    }
}

/// No power cut while a damaged bitmap is replaced makes the cache believe the damaged one.
#[test]
fn a_damaged_bitmap_is_replaced_whole_or_not_at_all() {
    let (truth, directory) = (Truth::new(12, &mut Rng::with_seed(3)), Path::new("/layer"));
    let disk = CrashingDisk::new();
    truth.make_file(&disk, directory);
    let shared = Arc::new(disk.clone()) as Arc<dyn Disk>;
    let layer = truth.open(&shared, directory, boot(1));
    layer.inject(&[(0, &[7; 12 * PAGE as usize])]).unwrap();
    layer.sync(|| Ok(())).unwrap();
    drop(layer);
    let damaged = disk.open(&directory.join("unverified"), Access::Write).unwrap();
    damaged.set_length(3).unwrap();
    damaged.sync_data().unwrap();
    let layer = truth.open(&shared, directory, boot(1));
    disk.record();
    layer.sync(|| Ok(())).unwrap();
    for (number, step) in disk.steps().into_iter().enumerate() {
        for cut in 0..100 {
            let after = step.after_power_cut(&mut Rng::with_seed(number as u64 * 1000 + cut));
            let layer = truth.open(&(Arc::new(after) as Arc<dyn Disk>), directory, boot(2));
            assert_eq!(layer.presence().present(), 12);
            truth.assert_true(&layer);
        }
    }
}

#[test]
fn pieces_may_come_in_any_order_and_overlap() {
    let directory = tempfile::tempdir().unwrap();
    let (_, _, layer) = half_injected(directory.path());
    layer.punch(0..8).unwrap();
    let (one, two) = ([1; PAGE as usize], [2; 2 * PAGE as usize]);
    assert!(
        layer.inject(&[(6, &one), (8, &one)]).is_err(),
        "one is of no page"
    );
    assert_eq!(layer.presence().present(), 0, "nor is any other claimed");
    let three = [3; 2 * PAGE as usize];
    assert_eq!(
        layer
            .inject(&[(2, &three), (5, &one), (1, &two), (0, &one), (3, &[])])
            .unwrap(),
        5
    );
    assert_eq!(layer.unverified(0..8), [0..4, 5..6]);
    let first_byte = |page: u64| {
        let mut byte = [0];
        layer.read_at(&mut byte, page * PAGE).unwrap();
        byte[0]
    };
    assert_eq!([0, 1, 3, 5].map(first_byte), [1, 2, 3, 1]);
    assert!([2, 3].contains(&first_byte(2)), "one of those that were given");
}

#[test]
fn only_whole_pages_of_the_layer_are_injected() {
    let directory = tempfile::tempdir().unwrap();
    let (truth, disk, layer) = half_injected(directory.path());
    for (first, length) in [(0, 4095), (8, 4096), (7, 8192), (u64::MAX, 4096)] {
        assert!(layer.inject(&[(first, &vec![1; length])]).is_err());
    }
    assert!(layer.inject_zeros(7..9).is_err());
    assert_eq!(layer.inject(&[]).unwrap(), 0);
    let (key, table) = (truth.key(), truth.table.clone());
    layer.punch(0..1).unwrap();
    let look = CachedLayer::look(LayerPlace {
        disk: &disk,
        directory: directory.path(),
        key,
        table,
        boot: boot(1),
    })
    .unwrap();
    assert!(
        look.inject(&[(0, &[1; 4096])]).is_err(),
        "who looks changes nothing"
    );
    let length = std::fs::metadata(directory.path().join("data")).unwrap().len();
    assert_eq!(length, truth.table.data_size);
}
