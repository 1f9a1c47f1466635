//! Brings missing spans of a layer in: fetched once however many readers want them, verified, written, claimed.
//!
//! A reader's range becomes the spans that it lacks. Spans that another reader is already waiting for are
//! joined; the rest go out in groups of neighbours, one request for a group. Every span is decoded and its digest
//! compared before a byte of it reaches the data file. A reader that reads a file in order gets read-ahead: the
//! next group of spans is fetched while the reader works.
//!
//! Bytes that fail the digest check are fetched again, from another source if there is one, before a reader is refused.
//! A fetch waits for faults that can pass as long as the reader's [`Patience`] allows: the source itself tries again for
//! that long. A reader that joined the fetch of a less patient one starts another when that fetch gives up.

mod error;
mod memory;
mod reserve;
mod run;
mod sequential;
mod source;
mod stats;
mod unverified_fill;

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Shared, join_all};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tracing::{debug, error, warn};
use xebec_format::layer::{Span, Window};
use xebec_index::decode::{DecodeError, decode_span};

pub use error::FillError;
pub use memory::Memory;
pub use source::{Ask, Blob, BoxFuture, FaultKind, Fetched, Patience, Source, SourceError};
pub use stats::FillStats;

use crate::layer::CachedLayer;
use crate::progress::{Phase, Progress, Ticket};
use crate::stage::{Stage, reached};
use memory::{GROUP_SOURCE_BYTES, Share};
use run::Run;
use sequential::Sequential;

/// How often wrong bytes are fetched again. Damage on the way is gone at the second try, a damaged mirror is passed
/// over at the second; a source that still sends wrong bytes at the fourth has no others.
const REFETCHES: usize = 3;
/// Pause before the second refetch; the first goes out at once, the third waits twice as long.
const REFETCH_PAUSE: Duration = Duration::from_millis(300);
/// Pause before a reader boards again when a fetch failed that was less patient. (Sources pause by themselves.)
const BOARDING_PAUSE: Duration = Duration::from_millis(250);
/// A fetch that is given up because of a reader's deadline says why; so much longer the reader listens.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// A fetch under way.
#[derive(Clone)]
struct Flight {
    progress: Arc<Progress>,
    task: AbortHandle,
    landing: Shared<BoxFuture<Result<(), FillError>>>,
}

/// Fills one layer.
pub struct Filler {
    layer: Arc<CachedLayer>,
    source: Arc<dyn Source>,
    stats: Arc<FillStats>,
    memory: Share,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    flights: HashMap<usize, Flight>,
    sequential: Sequential,
}

impl Filler {
    /// A filler of `layer` from `source`.
    pub fn new(layer: Arc<CachedLayer>, source: Arc<dyn Source>, stats: Arc<FillStats>) -> Arc<Self> {
        Self::within(layer, source, stats, Arc::default())
    }

    /// The same, with memory that others fill by, too.
    pub fn within(
        layer: Arc<CachedLayer>,
        source: Arc<dyn Source>,
        stats: Arc<FillStats>,
        memory: Arc<Memory>,
    ) -> Arc<Self> {
        Arc::new(Self {
            layer,
            source,
            stats,
            memory: Share::of(memory),
            state: Mutex::default(),
        })
    }

    /// The layer that is filled.
    pub fn layer(&self) -> &Arc<CachedLayer> {
        &self.layer
    }

    /// Returns once every page that `range` (bytes of the data space) touches is present. `ticket` tells meanwhile and
    /// afterwards the phases of the wait.
    ///
    /// Must run inside a tokio runtime.
    ///
    /// # Errors
    /// When a span could not be fetched, verified or written as long as `patience` lasted. Others of the range may be
    /// present; asking again tries again.
    pub async fn ensure(
        self: &Arc<Self>,
        range: Range<u64>,
        patience: Patience,
        ticket: &Ticket,
    ) -> Result<(), FillError> {
        FillStats::add(&self.stats.ranges, 1);
        let wanted = self.layer.missing_spans(range.clone());
        let (Some(&first), Some(&last)) = (wanted.first(), wanted.last()) else {
            FillStats::add(&self.stats.hits, 1);
            return Ok(());
        };
        let ahead = |state: &mut State| {
            let ahead = state.sequential.after(first, last);
            let ahead: Vec<usize> = ahead.filter(|&span| self.is_missing(span)).collect();
            self.board(state, &ahead, patience);
        };
        self.bring(wanted, patience, ticket, Self::is_missing, ahead)
            .await
    }

    /// Brings every span in, `parallel` groups at a time, each with a patience of its own.
    ///
    /// # Errors
    /// As [`Filler::ensure`], at the first failure.
    pub async fn complete(
        self: &Arc<Self>,
        parallel: usize,
        patience: impl Fn() -> Patience + Send + Sync,
    ) -> Result<(), FillError> {
        use futures_util::stream::{self, TryStreamExt};
        let missing = self.layer.missing_spans(0..self.layer.table().data_size);
        let groups = self.groups(&missing);
        let patience = &patience;
        stream::iter(groups.into_iter().map(Ok))
            .try_for_each_concurrent(parallel, |group| async move {
                let ticket = Ticket::default();
                self.bring(group, patience(), &ticket, Self::is_missing, |_| ())
                    .await
            })
            .boxed()
            .await
    }

    /// Why a fetch waits for its next try, and after how many, if all that are under way do.
    pub fn pausing(&self) -> Option<(String, u32)> {
        let state = self.state.lock();
        let mut pauses = state.flights.values().map(|flight| flight.progress.pausing());
        let first = pauses.next()??;
        pauses.all(|pause| pause.is_some()).then_some(first)
    }

    /// Gives up every fetch under way; a reader that waits for one gets [`FillError::Abandoned`], or another fetch if its patience
    /// lasts. A span that is being decoded is still written.
    pub fn abandon(&self) {
        let flights: Vec<Flight> = self
            .state
            .lock()
            .flights
            .drain()
            .map(|(_, flight)| flight)
            .collect();
        for flight in flights {
            flight.task.abort();
            flight.progress.end();
        }
    }

    /// Boards fetches of `wanted` until all are in or patience is at its end, each time only of those that `is_wanted` by then:
    /// others may have landed since the list was made. `first` runs once, after the first boarding.
    async fn bring(
        self: &Arc<Self>,
        mut wanted: Vec<usize>,
        patience: Patience,
        ticket: &Ticket,
        is_wanted: fn(&Self, usize) -> bool,
        first: impl FnOnce(&mut State),
    ) -> Result<(), FillError> {
        let mut first = Some(first);
        let spans = wanted.len();
        loop {
            let flights = {
                let mut state = self.state.lock();
                // Under the lock: a fetch writes what it brought before it leaves the state.
                wanted.retain(|&span| is_wanted(self, span));
                let joined = wanted.iter().filter(|span| state.flights.contains_key(span));
                let joined = joined.count();
                let flights = self.board(&mut state, &wanted, patience);
                let fetches = flights.iter().map(|flight| flight.progress.clone());
                ticket.board(fetches, wanted.len(), joined);
                if let Some(first) = first.take() {
                    first(&mut state);
                }
                flights
            };
            let landings = join_all(flights.into_iter().map(|flight| flight.landing));
            let results = match patience {
                Patience::Brief => landings.await,
                Patience::Until(deadline) => tokio::time::timeout_at(deadline + LAST_WORDS, landings)
                    .await
                    .map_err(|_| FillError::Late {
                    layer: self.layer.key().layer,
                    spans,
                    problem: ticket.account().problem,
                })?,
            };
            match results.into_iter().find_map(Result::err) {
                None => return Ok(()),
                Some(error) if !error.may_pass() || !patience.lasts(BOARDING_PAUSE) => return Err(error),
                // The reader that left was less patient.
                Some(_) => tokio::time::sleep(BOARDING_PAUSE).await,
            }
        }
    }

    fn is_missing(&self, span: usize) -> bool {
        let range = self.layer.table().spans.get(span).map(|span| span.data.clone());
        // A page may belong to two spans: it is missing until both are written.
        range.is_some_and(|range| self.layer.missing_spans(range).contains(&span))
    }

    /// The flights on which `wanted` come in: those under way, and new ones for the rest.
    fn board(self: &Arc<Self>, state: &mut State, wanted: &[usize], patience: Patience) -> Vec<Flight> {
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
            let flight = self.clone().depart(group.clone(), patience);
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
        // Where the windows of the last group end, which are one behind the other in an index that is well made.
        let mut windows = None;
        for &index in spans {
            let Some(span) = table.get(index) else { continue };
            let follows = match (&span.window, windows) {
                (Some(window), Some(end)) => window.offset == end,
                _ => true,
            };
            let fits = |group: &Vec<usize>| {
                let first = group.first().and_then(|&first| table.get(first));
                follows
                    && group.last().is_some_and(|&last| last + 1 == index)
                    && first.is_some_and(|first| {
                        first.source.start <= span.source.start
                            && span.source.end - first.source.start <= GROUP_SOURCE_BYTES
                    })
            };
            match groups.last_mut() {
                Some(group) if fits(group) => group.push(index),
                _ => {
                    windows = None;
                    groups.push(vec![index]);
                }
            }
            let end = |window: &Window| window.offset.saturating_add(u64::from(window.length));
            windows = span.window.as_ref().map(end).or(windows);
        }
        groups
    }

    /// Starts the fetch of a group, in a task of its own: it goes on when the reader that asked has gone.
    fn depart(self: Arc<Self>, group: Vec<usize>, patience: Patience) -> Flight {
        let layer = self.layer.key().layer;
        let progress = Arc::new(Progress::default());
        let told = progress.clone();
        let task = tokio::spawn(async move {
            // Made by the task itself: a runtime that is shut down drops tasks under the lock that boards them.
            let departed = Departed {
                filler: &self,
                group: &group,
                progress: &told,
            };
            let result = self.fetch(&group, patience, &told).await;
            if result.is_err() {
                FillStats::add(&self.stats.failures, 1);
            }
            // A full disk would be logged for each read; the refused reader's message says it.
            if let Err(error) = &result
                && !error.is_full_disk()
            {
                error!(%layer, span = group.first(), spans = group.len(), "{error}");
            }
            drop(departed);
            result
        });
        let abort = task.abort_handle();
        let landed = async move { task.await.unwrap_or(Err(FillError::Abandoned { layer })) };
        let landed: BoxFuture<_> = Box::pin(landed);
        Flight {
            progress,
            task: abort,
            landing: landed.shared(),
        }
    }

    /// Fetches a group, and once more those of its spans that were wrong.
    async fn fetch(
        self: &Arc<Self>,
        group: &[usize],
        patience: Patience,
        progress: &Arc<Progress>,
    ) -> Result<(), FillError> {
        let mut group = group.to_vec();
        let mut avoid: Vec<String> = Vec::new();
        for refetch in 0.. {
            let mut suspects = Vec::new();
            let result = self
                .fetch_once(&group, patience, &avoid, progress, &mut suspects)
                .await;
            let is_wrong = match &result {
                Err(FillError::Wrong { .. }) => true,
                Err(FillError::Fetch { kind, .. }) => *kind == FaultKind::Wrong,
                _ => false,
            };
            let Err(error) = result else { break };
            if !is_wrong || refetch >= REFETCHES {
                return Err(error);
            }
            warn!(layer = %self.layer.key().layer, span = group.first(), "fetched again: {error}");
            FillStats::add(&self.stats.refetches, 1);
            progress.retry(error.to_string());
            // The blob's own source first: windows are rarely damaged, most are verified as a whole.
            suspects.retain(|source| !avoid.contains(source));
            avoid.extend(suspects.into_iter().next());
            progress.enter(Phase::Pause);
            tokio::time::sleep(REFETCH_PAUSE * u32::try_from(refetch).unwrap_or(0)).await;
            // Waiting readers may want the pages, or want them compared.
            group.retain(|&span| !self.layer.is_written(span));
        }
        Ok(())
    }

    async fn fetch_once(
        self: &Arc<Self>,
        group: &[usize],
        patience: Patience,
        avoid: &[String],
        progress: &Arc<Progress>,
        suspects: &mut Vec<String>,
    ) -> Result<(), FillError> {
        let Some(run) = Run::of(self.layer.table(), group) else {
            return Ok(());
        };
        // Held until all of it is decoded.
        let _fetched = self.memory.fetch(run.bytes()).await;
        // After that, so that no more is promised than may be fetched.
        let promise = self.reserve(group, progress).await?;
        let ask = |blob, range| Ask {
            blob,
            range,
            patience,
            avoid: avoid.to_vec(),
            progress: progress.clone(),
        };
        let fetched = self.read(ask(Blob::Layer, run.source.clone()));
        let fetched_history = async {
            match run.history.clone() {
                Some(range) => self.read(ask(Blob::Windows, range)).await,
                None => Ok(Fetched {
                    bytes: Bytes::new(),
                    sources: Vec::new(),
                }),
            }
        };
        let (fetched, fetched_history) = tokio::try_join!(fetched, fetched_history)?;
        reached(Stage::Fetched);
        let sources = fetched.sources.into_iter().chain(fetched_history.sources);
        suspects.extend(sources.map(|(source, _)| source));
        FillStats::add(&self.stats.requests, 1);
        debug!(
            layer = %self.layer.key().layer,
            spans = run.spans.len(),
            bytes = fetched.bytes.len(),
            "fetched"
        );
        progress.enter(Phase::Verify);
        self.decode(run, &fetched.bytes, &fetched_history.bytes, progress)
            .await?;
        promise.kept();
        Ok(())
    }

    /// Decodes, verifies and writes the spans of a run, side by side.
    async fn decode(
        self: &Arc<Self>,
        run: Run,
        bytes: &Bytes,
        window_bytes: &Bytes,
        progress: &Arc<Progress>,
    ) -> Result<(), FillError> {
        let Run {
            spans,
            source,
            history,
        } = run;
        let decodes = spans.into_iter().map(|(index, span)| {
            let bytes = slice(bytes, source.start, &span.source);
            let window = span
                .window
                .as_ref()
                .zip(history.as_ref())
                .map(|(window, history)| {
                    let range = window.offset..window.offset + u64::from(window.length);
                    slice(window_bytes, history.start, &range)
                });
            let (filler, progress) = (self.clone(), progress.clone());
            async move {
                // It decodes from the start of a chunk, even if only a later part is wanted.
                let plain = match filler.layer.table().codec.has_plain_stream() {
                    true => span.plain.end - span.plain.start,
                    false => span.plain.end,
                };
                let taken = filler
                    .memory
                    .decode(plain + span.data.end - span.data.start)
                    .await;
                let keep = move || {
                    // Decoding goes on when nobody waits for it any more, and needs its memory until it ends.
                    let _taken = taken;
                    filler.keep(index, &span, &bytes, window.as_deref(), &progress)
                };
                tokio::task::spawn_blocking(keep).await
            }
        });
        for landed in join_all(decodes).await {
            landed.unwrap_or(Err(FillError::Abandoned {
                layer: self.layer.key().layer,
            }))?;
        }
        Ok(())
    }

    async fn read(&self, ask: Ask) -> Result<Fetched, FillError> {
        let progress = ask.progress.clone();
        let whose = match ask.blob {
            Blob::Layer => "",
            Blob::Windows => " of the windows",
        };
        let what = format!("bytes {}..{}{whose}", ask.range.start, ask.range.end);
        let length = ask.range.end - ask.range.start;
        let failed = |error: SourceError| FillError::Fetch {
            layer: self.layer.key().layer,
            what,
            kind: error.kind,
            reason: error.reason,
        };
        let fetched = match self.source.read(ask).await {
            Ok(fetched) => fetched,
            Err(error) => return Err(failed(error)),
        };
        let got = fetched.bytes.len() as u64;
        for (source, bytes) in &fetched.sources {
            progress.received(source, *bytes);
        }
        if got != length {
            return Err(failed(SourceError {
                kind: FaultKind::Wrong,
                reason: format!("{got} bytes came instead of {length}"),
            }));
        }
        FillStats::add(&self.stats.bytes, got);
        Ok(fetched)
    }

    /// Decodes, verifies and writes one span.
    fn keep(
        &self,
        index: usize,
        span: &Span,
        bytes: &[u8],
        window: Option<&[u8]>,
        progress: &Progress,
    ) -> Result<(), FillError> {
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
        reached(Stage::Verified);
        progress.enter(Phase::Disk);
        let written = self.layer.write_span(index, &plain);
        progress.enter(Phase::Verify);
        let compared = written.map_err(|error| FillError::Disk {
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
        self.account(index, compared);
        Ok(())
    }
}

/// Ends a flight however its task ends, by a panic too: a flight that stayed would answer every later reader.
struct Departed<'a> {
    filler: &'a Filler,
    group: &'a [usize],
    progress: &'a Arc<Progress>,
}

impl Drop for Departed<'_> {
    fn drop(&mut self) {
        self.progress.end();
        self.filler.stats.add_sources(self.progress);
        let mut state = self.filler.state.lock();
        for span in self.group {
            // After an abandonment another flight may be under way for the same span.
            let is_own = |flight: &Flight| Arc::ptr_eq(&flight.progress, self.progress);
            if state.flights.get(span).is_some_and(is_own) {
                state.flights.remove(span);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_not_inside_of_the_bytes_is_empty() {
        let bytes = Bytes::from_static(b"0123456789");
        for (range, part) in [
            (100..110, &b"0123456789"[..]),
            (103..105, b"34"),
            (110..110, b""),
            (99..105, b""),
            (105..111, b""),
            (111..112, b""),
        ] {
            assert_eq!(slice(&bytes, 100, &range), part, "{range:?}");
        }
        let backwards = Range { start: 105, end: 103 };
        assert_eq!(slice(&bytes, 100, &backwards), b""[..]);
    }
}
