//! Brings missing spans of a layer in: fetched once however many readers want them, verified, written, claimed.
//!
//! A reader's range becomes the spans that it lacks. Spans that another reader is already waiting for are
//! joined; the rest go out in groups of neighbours, one request for a group. Every span is decoded and its digest
//! compared before a byte of it reaches the data file. Readers who walk a file in order are served ahead: the
//! group after theirs is fetched while they work.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Shared, join_all};
use tracing::{debug, error};
use xebec_format::digest::Digest;
use xebec_format::layer::{Span, Window};
use xebec_index::decode::{DecodeError, decode_span};

use crate::layer::CachedLayer;

/// Source bytes that one request asks for at most. Larger requests save round trips but hold readers of their
/// first bytes up for as long as the last ones take: 4 MiB is 0.3 s at 100 Mbit/s.
const GROUP_SOURCE_BYTES: u64 = 4 << 20;
/// Spans fetched ahead of a sequential reader at most.
const MAX_AHEAD: usize = 8;

/// A future that can be sent to another thread.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Which of a layer's blobs a range is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blob {
    /// The layer blob itself.
    Layer,
    /// The windows section of the index.
    Windows,
}

/// Where a layer's bytes come from: a registry, a local file, a peer.
pub trait Source: Send + Sync {
    /// Exactly the bytes of `range`, unverified. The error is a text for people that names the place.
    fn read(&self, blob: Blob, range: Range<u64>) -> BoxFuture<Result<Bytes, String>>;
}

/// Why a range could not be brought in. Readers get an error number; the log tells the reasons apart.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FillError {
    /// The bytes could not be had.
    #[error("cannot fetch {what} of layer {layer}: {reason}")]
    Fetch {
        /// The layer blob's digest.
        layer: Digest,
        /// Which part of it.
        what: String,
        /// The source's own words.
        reason: String,
    },
    /// The bytes are not what the index says.
    #[error(
        "wrong bytes for span {span} of layer {layer} (blob bytes {source_range:?}): {reason}; nothing was cached"
    )]
    Wrong {
        /// The layer blob's digest.
        layer: Digest,
        /// Number of the span in the index.
        span: usize,
        /// Its bytes in the blob.
        source_range: Range<u64>,
        /// What the decoder said; for a digest that differs, both digests.
        reason: String,
    },
    /// The bytes could not be kept.
    #[error("cannot write span {span} of layer {layer} to the cache: {reason}{}", hint(*full))]
    Disk {
        /// The layer blob's digest.
        layer: Digest,
        /// Number of the span in the index.
        span: usize,
        /// The system's words.
        reason: String,
        /// Whether the file system is full.
        full: bool,
    },
    /// The task that was to fetch it went away.
    #[error("the fetch of layer {layer} was given up")]
    Abandoned {
        /// The layer blob's digest.
        layer: Digest,
    },
}

fn hint(full: bool) -> &'static str {
    if full {
        ". Make room on the file system; the next read tries again"
    } else {
        ""
    }
}

/// What fills did, for statistics. All counts only grow.
#[derive(Debug, Default)]
pub struct FillStats {
    /// Ranges asked for by readers.
    pub ranges: AtomicU64,
    /// Ranges that were there already.
    pub hits: AtomicU64,
    /// Spans that were fetched by another reader's request.
    pub joins: AtomicU64,
    /// Requests for groups of spans.
    pub requests: AtomicU64,
    /// Spans written.
    pub spans: AtomicU64,
    /// Compressed bytes fetched, windows included.
    pub bytes: AtomicU64,
    /// Plain bytes written.
    pub bytes_written: AtomicU64,
    /// Fills that failed.
    pub failures: AtomicU64,
}

impl FillStats {
    fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

type Flight = Shared<BoxFuture<Result<(), FillError>>>;

/// Fills one layer.
pub struct Filler {
    layer: Arc<CachedLayer>,
    source: Arc<dyn Source>,
    stats: Arc<FillStats>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    flights: HashMap<usize, Flight>,
    sequential: Sequential,
}

/// Recognises a reader that goes through the layer in order.
#[derive(Default)]
struct Sequential {
    next: usize,
    ahead: usize,
}

impl Sequential {
    /// Notes that spans up to `last` were asked for, from `first`; gives the spans to fetch ahead.
    fn after(&mut self, first: usize, last: usize) -> Range<usize> {
        let follows = first == self.next && self.next != 0;
        self.ahead = if follows {
            (self.ahead * 2).clamp(1, MAX_AHEAD)
        } else {
            0
        };
        self.next = last + 1 + self.ahead;
        last + 1..self.next
    }
}

impl Filler {
    /// A filler of `layer` from `source`.
    pub fn new(layer: Arc<CachedLayer>, source: Arc<dyn Source>, stats: Arc<FillStats>) -> Arc<Self> {
        Arc::new(Self {
            layer,
            source,
            stats,
            state: Mutex::default(),
        })
    }

    /// The layer that is filled.
    pub fn layer(&self) -> &Arc<CachedLayer> {
        &self.layer
    }

    /// Returns once every page that `range` (bytes of the data space) touches is present.
    ///
    /// Must run inside a tokio runtime.
    ///
    /// # Errors
    /// When a span could not be fetched, verified or written. Others of the range may be present; asking again
    /// tries again.
    pub async fn ensure(self: &Arc<Self>, range: Range<u64>) -> Result<(), FillError> {
        FillStats::add(&self.stats.ranges, 1);
        let wanted = self.layer.missing_spans(range);
        let (Some(&first), Some(&last)) = (wanted.first(), wanted.last()) else {
            FillStats::add(&self.stats.hits, 1);
            return Ok(());
        };
        let flights = {
            let mut state = self.lock();
            let flights = self.board(&mut state, &wanted);
            let ahead = state.sequential.after(first, last);
            let ahead: Vec<usize> = ahead.filter(|&span| self.is_missing(span)).collect();
            self.board(&mut state, &ahead);
            flights
        };
        for result in join_all(flights).await {
            result?;
        }
        Ok(())
    }

    /// Brings every span in, `parallel` groups at a time.
    ///
    /// # Errors
    /// As [`Filler::ensure`], at the first failure.
    pub async fn complete(self: &Arc<Self>, parallel: usize) -> Result<(), FillError> {
        use futures_util::stream::{self, TryStreamExt};
        let missing = self.layer.missing_spans(0..self.layer.table().data_size);
        let groups = self.groups(&missing);
        stream::iter(groups.into_iter().map(Ok))
            .try_for_each_concurrent(parallel, |group| {
                let flights = self.board(&mut self.lock(), &group);
                async move { join_all(flights).await.into_iter().collect::<Result<(), _>>() }
            })
            .boxed()
            .await
    }

    fn is_missing(&self, span: usize) -> bool {
        let range = self.layer.table().spans.get(span).map(|span| span.data.clone());
        range.is_some_and(|range| !self.layer.missing_spans(range).is_empty())
    }

    /// The flights on which `wanted` come in: those under way, and new ones for the rest.
    fn board(self: &Arc<Self>, state: &mut State, wanted: &[usize]) -> Vec<Flight> {
        let mut flights = Vec::new();
        let mut grounded = Vec::new();
        for &span in wanted {
            match state.flights.get(&span) {
                Some(flight) => {
                    FillStats::add(&self.stats.joins, 1);
                    flights.push(flight.clone());
                }
                None => grounded.push(span),
            }
        }
        for group in self.groups(&grounded) {
            let flight = self.clone().depart(group.clone());
            for span in group {
                state.flights.insert(span, flight.clone());
            }
            flights.push(flight);
        }
        flights
    }

    /// Cuts ascending spans into runs of neighbours that one request can fetch.
    fn groups(&self, spans: &[usize]) -> Vec<Vec<usize>> {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        let table = &self.layer.table().spans;
        for &index in spans {
            let Some(span) = table.get(index) else { continue };
            let fits = |group: &Vec<usize>| {
                let first = group.first().and_then(|&first| table.get(first));
                group.last().is_some_and(|&last| last + 1 == index)
                    && first.is_some_and(|first| {
                        first.source.start <= span.source.start
                            && span.source.end - first.source.start <= GROUP_SOURCE_BYTES
                    })
            };
            match groups.last_mut() {
                Some(group) if fits(group) => group.push(index),
                _ => groups.push(vec![index]),
            }
        }
        groups
    }

    /// Starts the fetch of a group, in a task of its own: it goes on when the reader who asked has gone.
    fn depart(self: Arc<Self>, group: Vec<usize>) -> Flight {
        let layer = self.layer.key().layer;
        let task = tokio::spawn(async move {
            let result = self.fetch(&group).await;
            if let Err(error) = &result {
                FillStats::add(&self.stats.failures, 1);
                error!("{error}");
            }
            let mut state = self.lock();
            for span in &group {
                state.flights.remove(span);
            }
            result
        });
        let landed = async move { task.await.unwrap_or(Err(FillError::Abandoned { layer })) };
        let landed: BoxFuture<_> = Box::pin(landed);
        landed.shared()
    }

    async fn fetch(self: &Arc<Self>, group: &[usize]) -> Result<(), FillError> {
        let spans: Vec<(usize, Span)> = group
            .iter()
            .filter_map(|&index| {
                self.layer
                    .table()
                    .spans
                    .get(index)
                    .map(|span| (index, span.clone()))
            })
            .collect();
        let (Some((_, first)), Some((_, last))) = (spans.first(), spans.last()) else {
            return Ok(());
        };
        let source = first.source.start
            ..spans
                .iter()
                .map(|(_, s)| s.source.end)
                .max()
                .unwrap_or(last.source.end);
        let windows: Vec<&Window> = spans
            .iter()
            .filter_map(|(_, span)| span.window.as_ref())
            .collect();
        let history = match (windows.first(), windows.last()) {
            (Some(first), Some(last)) => Some(first.offset..last.offset + u64::from(last.length)),
            _ => None,
        };
        let fetched = async { self.read(Blob::Layer, source.clone()).await };
        let fetched_history = async {
            match history.clone() {
                Some(range) => self.read(Blob::Windows, range).await,
                None => Ok(Bytes::new()),
            }
        };
        let (bytes, window_bytes) = tokio::try_join!(fetched, fetched_history)?;
        FillStats::add(&self.stats.requests, 1);
        debug!(layer = %self.layer.key().layer, spans = spans.len(), bytes = bytes.len(), "fetched");
        let decodes = spans.into_iter().map(|(index, span)| {
            let bytes = slice(&bytes, source.start, &span.source);
            let window = span
                .window
                .as_ref()
                .zip(history.as_ref())
                .map(|(window, history)| {
                    let range = window.offset..window.offset + u64::from(window.length);
                    slice(&window_bytes, history.start, &range)
                });
            let filler = self.clone();
            tokio::task::spawn_blocking(move || filler.keep(index, &span, &bytes, window.as_deref()))
        });
        for landed in join_all(decodes).await {
            landed.unwrap_or(Err(FillError::Abandoned {
                layer: self.layer.key().layer,
            }))?;
        }
        Ok(())
    }

    async fn read(&self, blob: Blob, range: Range<u64>) -> Result<Bytes, FillError> {
        let failed = |reason: String| FillError::Fetch {
            layer: self.layer.key().layer,
            what: format!("{blob:?} bytes {}-{}", range.start, range.end),
            reason,
        };
        let bytes = self.source.read(blob, range.clone()).await.map_err(failed)?;
        if bytes.len() as u64 != range.end - range.start {
            return Err(failed(format!(
                "{} bytes came instead of {}",
                bytes.len(),
                range.end - range.start
            )));
        }
        FillStats::add(&self.stats.bytes, bytes.len() as u64);
        Ok(bytes)
    }

    /// Decodes, verifies and writes one span.
    fn keep(&self, index: usize, span: &Span, bytes: &[u8], window: Option<&[u8]>) -> Result<(), FillError> {
        let table = self.layer.table();
        let layer = self.layer.key().layer;
        let plain =
            decode_span(table.codec, span, &table.pieces, bytes, window).map_err(|error: DecodeError| {
                FillError::Wrong {
                    layer,
                    span: index,
                    source_range: span.source.clone(),
                    reason: error.to_string(),
                }
            })?;
        self.layer
            .write_span(index, &plain)
            .map_err(|error| FillError::Disk {
                layer,
                span: index,
                full: matches!(
                    error.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ),
                reason: error.to_string(),
            })?;
        FillStats::add(&self.stats.spans, 1);
        FillStats::add(&self.stats.bytes_written, plain.len() as u64);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The part `range` of `bytes`, which start at `start`; empty when it is not inside (the decoder then refuses).
fn slice(bytes: &Bytes, start: u64, range: &Range<u64>) -> Bytes {
    let begin = range
        .start
        .checked_sub(start)
        .and_then(|begin| usize::try_from(begin).ok());
    let end = range
        .end
        .checked_sub(start)
        .and_then(|end| usize::try_from(end).ok());
    match (begin, end) {
        (Some(begin), Some(end)) if begin <= end && end <= bytes.len() => bytes.slice(begin..end),
        _ => Bytes::new(),
    }
}
