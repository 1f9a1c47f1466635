//! A source in memory whose faults tests turn on and off, and layers that are filled from it.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use xebec_cache::boot::BootId;
use xebec_cache::disk::{Disk, RealDisk};
use xebec_cache::fill::{
    Ask, BoxFuture, FaultKind, Fetched, FillError, FillStats, Filler, Patience, Source, SourceError,
};
use xebec_cache::layer::{CachedLayer, LayerPlace};
use xebec_cache::progress::{Phase, Ticket};
use xebec_cache::store::LayerKey;
use xebec_format::digest::Digest;
use xebec_format::layer::{Codec, Piece, Span, SpanTable};

pub(super) const PAGE: u64 = 4096;

/// An uncompressed layer: the blob is the data space.
pub(super) struct MemorySource {
    pub(super) blob: Bytes,
    pub(super) reads: AtomicU64,
    pub(super) wrong: AtomicBool,
    /// Wrong for a request that avoids no origin yet.
    pub(super) wrong_at_first: AtomicBool,
    pub(super) down: AtomicBool,
    /// Never answers.
    pub(super) hangs: AtomicBool,
    /// Panics, as a defect in a client would.
    pub(super) panics: AtomicBool,
    pub(super) asked: Mutex<Vec<Range<u64>>>,
}

impl MemorySource {
    pub(super) fn new(length: u64) -> Arc<Self> {
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
pub(super) fn layer(directory: &Path, source: &MemorySource, ends: &[u64]) -> Arc<CachedLayer> {
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
pub(super) fn assert_claims_are_true(layer: &CachedLayer, source: &MemorySource) {
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
pub(super) struct Filled {
    pub(super) source: Arc<MemorySource>,
    pub(super) layer: Arc<CachedLayer>,
    pub(super) filler: Arc<Filler>,
    pub(super) _directory: tempfile::TempDir,
}

impl Filled {
    /// A layer of `pages` pages that are all missing, whose spans end at `ends`.
    pub(super) fn new(pages: u64, ends: &[u64]) -> Self {
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
pub(super) async fn read(filler: &Arc<Filler>, range: Range<u64>) -> Result<(), FillError> {
    filler.ensure(range, Patience::Brief, &Ticket::default()).await
}

pub(super) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// A runtime in which pauses take no time.
pub(super) fn without_pauses() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
}
