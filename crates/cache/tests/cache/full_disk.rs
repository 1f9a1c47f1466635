//! Fills on a disk without room: pages that cannot be kept are not fetched, however often readers ask, and readers go on as
//! soon as there is room.

mod small_disk;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use xebec_cache::boot::BootId;
use xebec_cache::disk::Disk;
use xebec_cache::fill::{Ask, BoxFuture, Fetched, FillError, Filler, Patience, Source, SourceError};
use xebec_cache::layer::{CachedLayer, LayerPlace};
use xebec_cache::presence::SyncError;
use xebec_cache::progress::Ticket;
use xebec_cache::room::{MakeRoom, Room};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Piece, Span, SpanTable};

use small_disk::{Refusal, SmallDisk, TRUTH};

const PAGE: u64 = 4096;
const SPANS: u64 = 16;
/// Pages of a span.
const PAGES: u64 = 8;

/// So much is left for others than data files.
const KEPT_BACK: u64 = 1 << 20;

/// An uncompressed layer: the blob is the data space. Counts the bytes that it gives.
struct CountingSource {
    blob: Bytes,
    given: AtomicU64,
}

impl Source for CountingSource {
    fn read(&self, ask: Ask) -> BoxFuture<Result<Fetched, SourceError>> {
        let bytes = self.blob.slice(ask.range.start as usize..ask.range.end as usize);
        self.given.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Box::pin(async move {
            let sources = Vec::new();
            Ok(Fetched { bytes, sources })
        })
    }
}

/// The one that is asked for room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Maker {
    /// Has none to give, and says so.
    Poor,
    /// Says that it made room, and made none.
    Liar,
    /// Makes just as much as it is asked for.
    Obliging,
}

/// Counts how often room was asked for, and how much.
struct CountingMaker {
    kind: Maker,
    left: Arc<AtomicU64>,
    times: AtomicU64,
    bytes: AtomicU64,
}

impl MakeRoom for CountingMaker {
    fn make_room(&self, bytes: u64) -> bool {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.kind == Maker::Obliging {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
        self.kind != Maker::Poor
    }
}

struct Full {
    disk: SmallDisk,
    source: Arc<CountingSource>,
    table: SpanTable,
    asked: Arc<CountingMaker>,
    room: Arc<Room>,
    filler: Arc<Filler>,
    directory: tempfile::TempDir,
}

impl Full {
    /// A layer of `SPANS` spans that are all missing, on a disk that takes `left` bytes and says that it takes `told`.
    fn new(left: u64, told: u64) -> Self {
        Self::with(Maker::Poor, left, told)
    }

    /// The same, where such a one makes room.
    fn with(maker: Maker, left: u64, told: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let length = SPANS * PAGES * PAGE;
        let blob: Vec<u8> = (0..length).map(|at| (at / 7) as u8).collect();
        let blob = Bytes::from(blob);
        let span = |number: u64| {
            let range = number * PAGES * PAGE..(number + 1) * PAGES * PAGE;
            Span {
                source: range.clone(),
                bit_offset: 0,
                plain: range.clone(),
                data: range.clone(),
                window: None,
                digest: Digest::of(&blob[range.start as usize..range.end as usize]),
            }
        };
        let table = SpanTable {
            layer: Digest::of(&blob),
            layer_size: length,
            codec: Codec::Tar,
            plain_size: length,
            data_size: length,
            spans: (0..SPANS).map(span).collect(),
            pieces: vec![Piece {
                plain_offset: 0,
                data_offset: 0,
                length,
            }],
            windows: None,
        };
        let data = std::fs::File::create(directory.path().join("data")).unwrap();
        data.set_len(length).unwrap();
        let disk = SmallDisk::new(left, told);
        let asked = Arc::new(CountingMaker {
            kind: maker,
            left: disk.left.clone(),
            times: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        let room = Arc::new(Room::default());
        room.set(asked.clone());
        let layer = open(&disk, directory.path(), &table, &room).unwrap();
        let source = Arc::new(CountingSource {
            blob,
            given: AtomicU64::new(0),
        });
        let filler = Filler::new(Arc::new(layer), source.clone(), Arc::default());
        Self {
            disk,
            source,
            table,
            asked,
            room,
            filler,
            directory,
        }
    }

    /// The layer as the next process finds it.
    fn reopened(&self) -> io::Result<CachedLayer> {
        open(&self.disk, self.directory.path(), &self.table, &self.room)
    }

    /// The bytes of a span.
    fn bytes(&self, span: u64) -> &[u8] {
        let length = (PAGES * PAGE) as usize;
        &self.source.blob[span as usize * length..][..length]
    }

    /// Reads every span once, but none after the one before it, so that nothing is read ahead.
    async fn read_all_out_of_order(&self) {
        for span in (0..SPANS).map(|span| (span * 7) % SPANS) {
            let range = span * PAGES * PAGE..(span + 1) * PAGES * PAGE;
            let ticket = Ticket::default();
            self.filler.ensure(range, Patience::Brief, &ticket).await.unwrap();
        }
    }

    /// Reads every span once, one after the other; gives how many reads succeeded and asserts why the others did not.
    async fn read_all(&self) -> u64 {
        let mut good = 0;
        for span in 0..SPANS {
            let range = span * PAGES * PAGE..(span + 1) * PAGES * PAGE;
            match self
                .filler
                .ensure(range, Patience::Brief, &Ticket::default())
                .await
            {
                Ok(()) => good += 1,
                Err(FillError::Disk { full: true, .. }) => (),
                Err(error) => panic!("{error}"),
            }
        }
        good
    }

    fn given(&self) -> u64 {
        self.source.given.load(Ordering::Relaxed)
    }
}

fn open(disk: &SmallDisk, directory: &Path, table: &SpanTable, room: &Arc<Room>) -> io::Result<CachedLayer> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let key = LayerKey {
        layer: table.layer,
        index: Digest::of(b"index"),
    };
    let place = LayerPlace {
        disk: &disk,
        directory,
        key,
        table: table.clone(),
        boot: BootId([0; 16]),
    };
    CachedLayer::open(place, room.clone())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// The storm of a file system that tells how full it is: `find | xargs cat` on it asked for the same bytes again and again.
#[test]
fn what_has_no_room_is_not_fetched() {
    let full = Full::new(KEPT_BACK + PAGE, TRUTH);
    runtime().block_on(async {
        for _ in 0..50 {
            assert_eq!(full.read_all().await, 0);
        }
        assert_eq!(full.given(), 0, "bytes were fetched that there was no room for");
        let asked = full.asked.times.load(Ordering::Relaxed);
        assert!(
            asked <= 2,
            "room was asked for {asked} times: that looks through the whole cache"
        );
        // Somebody removes something; nobody tells the daemon.
        full.disk.left.store(1 << 30, Ordering::Relaxed);
        assert_eq!(full.read_all().await, SPANS);
        assert_eq!(full.given(), SPANS * PAGES * PAGE);
    });
}

/// A quota, or a reserve, of which the file system's own figures say nothing: the first write tells.
#[test]
fn a_disk_that_does_not_tell_that_it_is_full_costs_one_fetch() {
    let told = 1 << 30;
    let full = Full::new(0, told);
    runtime().block_on(async {
        for _ in 0..50 {
            assert_eq!(full.read_all().await, 0);
        }
        let given = full.given();
        assert!(
            given <= 8 * PAGES * PAGE,
            "{given} bytes were fetched for nothing"
        );
        // More is free than when the write failed, so it is worth a try.
        full.disk.left.store(1 << 30, Ordering::Relaxed);
        full.disk.told.store(told + (1 << 20), Ordering::Relaxed);
        assert_eq!(full.read_all().await, SPANS);
    });
}

/// Readers at the same time must not all count on the same room.
#[test]
fn room_is_counted_once_for_readers_at_the_same_time() {
    let room = 4 * PAGES * PAGE;
    let full = Full::new(KEPT_BACK + room, TRUTH);
    runtime().block_on(async {
        let reads = (0..SPANS).map(|span| {
            let filler = full.filler.clone();
            // Not in order, so that nothing is read ahead.
            let span = (span * 7) % SPANS;
            async move {
                let range = span * PAGES * PAGE..span * PAGES * PAGE + 1;
                filler.ensure(range, Patience::Brief, &Ticket::default()).await
            }
        });
        let results = futures_util::future::join_all(reads).await;
        assert!(results.iter().any(Result::is_ok), "there was room for some");
        assert!(
            full.given() <= room,
            "{} bytes were fetched for {room} of room",
            full.given()
        );
    });
}

#[test]
fn a_layer_that_just_fits_is_filled_and_nothing_goes_for_it() {
    let full = Full::new(KEPT_BACK + SPANS * PAGES * PAGE, TRUTH);
    runtime().block_on(full.read_all_out_of_order());
    assert_eq!(full.disk.left.load(Ordering::Relaxed), KEPT_BACK);
    assert_eq!(full.asked.times.load(Ordering::Relaxed), 0);
}

/// Whether the disk tells that it is full or the write does.
#[test]
fn readers_go_on_in_room_that_is_made_for_them() {
    for (left, told) in [(KEPT_BACK, TRUTH), (0, 1 << 30)] {
        let full = Full::with(Maker::Obliging, left, told);
        runtime().block_on(full.read_all_out_of_order());
        assert_eq!(full.given(), SPANS * PAGES * PAGE, "each byte is fetched once");
        assert_eq!(full.asked.times.load(Ordering::Relaxed), SPANS);
        assert_eq!(full.asked.bytes.load(Ordering::Relaxed), SPANS * PAGES * PAGE);
    }
}

#[test]
fn room_that_was_made_and_is_not_there_is_not_asked_for_by_every_reader() {
    let full = Full::with(Maker::Liar, KEPT_BACK + PAGE, TRUTH);
    runtime().block_on(async {
        for _ in 0..10 {
            assert_eq!(full.read_all().await, 0);
        }
    });
    assert_eq!(full.given(), 0);
    let asked = full.asked.times.load(Ordering::Relaxed);
    assert!(asked <= 2, "room was asked for {asked} times");
}

#[test]
fn a_layer_without_room_for_its_bitmap_claims_pages_for_one_process() {
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
        let full = Full::new(1 << 30, TRUTH);
        std::fs::remove_file(full.directory.path().join("present")).unwrap();
        full.disk.refuse(Refusal::Write(kind));
        let layer = full.reopened().unwrap();
        layer.write_span(1, full.bytes(1)).unwrap();
        assert_eq!(layer.presence().present(), PAGES);
        full.disk.refuse(Refusal::Nothing);
        assert_eq!(full.reopened().unwrap().presence().present(), 0, "{kind}");
    }
}

/// Nobody evicts layers because a disk is broken.
#[test]
fn other_faults_than_a_full_disk_are_told_and_ask_for_no_room() {
    let full = Full::with(Maker::Obliging, 1 << 30, TRUTH);
    let layer = full.filler.layer();
    full.disk
        .refuse(Refusal::Write(io::ErrorKind::ReadOnlyFilesystem));
    let error = layer.write_span(1, full.bytes(1)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    let error = layer.inject(&[(0, full.bytes(0))]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    assert_eq!(full.asked.times.load(Ordering::Relaxed), 0);
    std::fs::remove_file(full.directory.path().join("present")).unwrap();
    let error = full.reopened().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn a_bitmap_that_did_not_reach_the_disk_counts_as_pending_until_it_does() {
    let full = Full::new(1 << 30, TRUTH);
    let layer = full.filler.layer();
    layer.inject(&[(0, full.bytes(0))]).unwrap();
    assert!(layer.sync(|| Ok(())).unwrap());
    assert!(layer.presence().is_durable());
    layer.write_span(0, full.bytes(0)).unwrap();
    assert!(!layer.presence().is_durable(), "its pages are verified now");
    full.disk.refuse(Refusal::Sync);
    for _ in 0..2 {
        let unnoted = layer.sync(|| Ok(()));
        assert!(matches!(unnoted, Err(SyncError::Unnoted(_))), "{unnoted:?}");
        assert!(!layer.presence().is_durable());
        assert!(layer.may_have_unverified(), "after a power cut");
    }
    full.disk.refuse(Refusal::Nothing);
    assert!(layer.sync(|| Ok(())).unwrap());
    assert!(layer.presence().is_durable() && !layer.may_have_unverified());
    assert!(!layer.sync(|| Ok(())).unwrap());
}
