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

mod copied;
mod error;
mod fetch;
mod memory;
mod reserve;
mod run;
mod sequential;
mod source;
mod stats;
mod unverified_fill;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Shared, join_all};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tracing::error;
use xebec_format::layer::Window;

pub use copied::LocalContents;
pub use error::FillError;
pub use memory::Memory;
pub use source::{Ask, Blob, BoxFuture, FaultKind, Fetched, Patience, Source, SourceError};
pub use stats::FillStats;

use crate::layer::CachedLayer;
use crate::progress::{Progress, Ticket};
use memory::{GROUP_SOURCE_BYTES, Share};
use sequential::Sequential;

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
