//! Fills on a disk without room: pages that cannot be kept are not fetched, however often readers ask, and readers go on as
//! soon as there is room.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use xebec_cache::boot::BootId;
use xebec_cache::disk::{Access, Disk, DiskFile, RealDisk};
use xebec_cache::fill::{Ask, BoxFuture, Fetched, FillError, Filler, Patience, Source, SourceError};
use xebec_cache::layer::{CachedLayer, LayerPlace};
use xebec_cache::progress::Ticket;
use xebec_cache::room::{MakeRoom, Room};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Piece, Span, SpanTable};
use xebec_kernel::file::FileIdentity;

const PAGE: u64 = 4096;
const SPANS: u64 = 16;
/// Pages of a span.
const PAGES: u64 = 8;

/// So much is left for others than data files.
const KEPT_BACK: u64 = 1 << 20;
/// The value of `told` for a disk that reports what is really left.
const TRUTH: u64 = u64::MAX;

/// The real disk, whose data files may take `left` bytes more, and which says that `told` are free.
#[derive(Clone, Debug)]
struct SmallDisk {
    left: Arc<AtomicU64>,
    told: Arc<AtomicU64>,
}

impl Disk for SmallDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let file = RealDisk.open(path, access)?;
        match path.ends_with("data") {
            true => Ok(Arc::new(SmallFile(file, self.left.clone()))),
            false => Ok(file),
        }
    }

    fn free(&self, _path: &Path) -> io::Result<Option<u64>> {
        let told = match self.told.load(Ordering::Relaxed) {
            TRUTH => &self.left,
            _ => &self.told,
        };
        Ok(Some(told.load(Ordering::Relaxed)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        RealDisk.read(path)
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_directories(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_directory(path)
    }

    fn remove_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove_all(path)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_directory(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(path)
    }

    fn exists(&self, path: &Path) -> bool {
        RealDisk.exists(path)
    }

    fn modified(&self, path: &Path) -> io::Result<SystemTime> {
        RealDisk.modified(path)
    }

    fn set_modified(&self, path: &Path, time: SystemTime) -> io::Result<()> {
        RealDisk.set_modified(path, time)
    }
}

#[derive(Debug)]
struct SmallFile(Arc<dyn DiskFile>, Arc<AtomicU64>);

impl DiskFile for SmallFile {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let length = bytes.len() as u64;
        let take = |left: u64| left.checked_sub(length);
        if self
            .1
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .is_err()
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write_all_at(bytes, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        self.0.punch(range)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        self.0.identity()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }
}

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

/// Counts how often room was asked for; there is none to make.
#[derive(Default)]
struct NoRoom(AtomicU64);

impl MakeRoom for NoRoom {
    fn make_room(&self, _bytes: u64) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        false
    }
}

struct Full {
    disk: SmallDisk,
    source: Arc<CountingSource>,
    asked: Arc<NoRoom>,
    filler: Arc<Filler>,
    _directory: tempfile::TempDir,
}

impl Full {
    /// A layer of `SPANS` spans that are all missing, on a disk that takes `left` bytes and says that it takes `told`.
    fn new(left: u64, told: u64) -> Self {
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
        let key = LayerKey {
            layer: table.layer,
            index: Digest::of(b"index"),
        };
        let disk = SmallDisk {
            left: Arc::new(AtomicU64::new(left)),
            told: Arc::new(AtomicU64::new(told)),
        };
        let asked = Arc::new(NoRoom::default());
        let room = Arc::new(Room::default());
        room.set(asked.clone());
        let opened: Arc<dyn Disk> = Arc::new(disk.clone());
        let layer = CachedLayer::open(
            LayerPlace {
                disk: &opened,
                directory: directory.path(),
                key,
                table,
                boot: BootId([0; 16]),
            },
            room,
        )
        .unwrap();
        let source = Arc::new(CountingSource {
            blob,
            given: AtomicU64::new(0),
        });
        let filler = Filler::new(Arc::new(layer), source.clone(), Arc::default());
        Self {
            disk,
            source,
            asked,
            filler,
            _directory: directory,
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
        let asked = full.asked.0.load(Ordering::Relaxed);
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
