//! Brings the missing pages of a recording: by one request where they stand together in the recording's zone, decoded while the rest is
//! still coming, and put into the layers' data files.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tracing::warn;
use xebec_fill::page_set::PageSet;
use xebec_format::PAGE_SIZE;
use xebec_format::runtime_image::{Segment, open_segment, ranges, wanted};
use xebec_protocol::wire::Loaded;

use super::{Loader, PATIENCE};
use crate::bundled_indexes::MAX_CARRIED;
use crate::zone::ZoneStream;

/// Ranges that are asked for at the same time.
const REQUESTS: usize = 4;
/// How long those may take that come in an answer in advance.
const IN_ADVANCE: Duration = Duration::from_secs(20);

impl Loader {
    /// Brings in what is missing, and waits for what other starts are bringing in.
    pub(super) async fn bring(
        self: &Arc<Self>,
        loaded: &mut Loaded,
        mut open: Option<ZoneStream>,
    ) -> Result<(), String> {
        let this = self.clone();
        let zeros = tokio::task::spawn_blocking(move || this.bring_zeros()).await;
        loaded.injected += zeros.map_err(|error| error.to_string())??;
        loop {
            let others = self.others();
            let open = open.take();
            let is_in_advance = open.as_ref().is_some_and(ZoneStream::is_in_advance);
            let mut brought = self.bring_own(loaded, open, &others).await;
            if is_in_advance {
                // What broke off or was wrong is still missing, and is asked for by itself.
                brought = self.bring_own(loaded, None, &others).await;
            }
            brought?;
            let Some(more) = self.subscribe().filter(|_| !others.is_empty()) else {
                return Ok(());
            };
            for (_, target) in self.targets() {
                let layer = target.served.layer();
                let arrivals = target.served.arrivals();
                arrivals
                    .others_are_over(layer, others.runs(layer.key()), &more)
                    .await;
            }
            // Pages that did not come, since that start has ended or failed, are brought now.
            if !self.expect(&more) {
                return Ok(());
            }
        }
    }

    async fn bring_own(
        self: &Arc<Self>,
        loaded: &mut Loaded,
        open: Option<ZoneStream>,
        others: &PageSet,
    ) -> Result<(), String> {
        let recording = &self.found.recording;
        let wanted = wanted(recording, &self.found.service, |run| {
            self.own(*run, others).iter().any(|run| !run.is_empty())
        });
        let segment = |number: &usize| recording.segments.get(*number);
        let open = open.filter(|open| {
            let places = wanted.iter().filter_map(segment);
            let places = places.map(|segment| (segment.zone, segment.offset..segment.end()));
            !open.is_in_advance() || open.is_worth(places, self.source.bridge(), MAX_CARRIED)
        });
        let position = |number: &usize| {
            let segment = segment(number)?;
            let open = open.as_ref()?;
            open.position(segment.zone, &(segment.offset..segment.end()))
        };
        let (mut coming, wanted): (Vec<usize>, Vec<usize>) =
            wanted.iter().partition(|number| position(number).is_some());
        coming.sort_by_key(position);
        let mut results = JoinSet::new();
        let mut problem = None;
        if let Some(open) = open {
            let (this, coming) = (self.clone(), self.segments(&coming));
            results.spawn(async move { this.bring_from(open, coming).await });
        }
        for range in ranges(&recording.segments, &wanted, self.source.bridge()) {
            while results.len() >= REQUESTS {
                take_in(results.join_next().await, loaded, &mut problem);
            }
            let segments = self.segments(wanted.get(range.wanted.clone()).unwrap_or_default());
            let this = self.clone();
            results.spawn(async move {
                match this.source.open(range.zone, range.bytes).await {
                    Ok(open) => this.bring_from(open, segments).await,
                    Err(problem) => Brought {
                        problem: Some(problem),
                        ..Brought::default()
                    },
                }
            });
        }
        while !results.is_empty() {
            take_in(results.join_next().await, loaded, &mut problem);
        }
        problem.map_or(Ok(()), Err)
    }

    /// Pages of the service that are all zero; they are in no segment. Blocks.
    fn bring_zeros(&self) -> Result<u64, String> {
        let mut zeros = self.found.recording.zeros.clone();
        zeros.sort_unstable_by_key(|run| (run.layer, run.first));
        let is_zero = |layer: u16, page: u64| {
            let after = zeros.partition_point(|run| (run.layer, run.first) <= (layer, page));
            let run = after.checked_sub(1).and_then(|place| zeros.get(place));
            run.is_some_and(|run| run.layer == layer && page < run.end())
        };
        let mut written = 0;
        for run in self.found.service.touched.iter().map(|seen| seen.run) {
            for page in self.missing(run).into_iter().flatten() {
                if is_zero(run.layer, page)
                    && let Some((target, _writing)) = self.begin_to_write(run.layer)
                {
                    let zeroed = target.served.filler().inject_zeros(page..page + 1);
                    written += zeroed.map_err(|error| format!("write zeros: {error}"))?;
                }
            }
        }
        self.tell_more();
        Ok(written)
    }

    /// Segments of one range of a zone, in their order: they are decoded as they arrive.
    async fn bring_from(self: Arc<Self>, mut open: ZoneStream, segments: Vec<Segment>) -> Brought {
        let mut brought = Brought {
            requests: u64::from(open.is_request()),
            ..Brought::default()
        };
        let mut decoding = JoinSet::new();
        // Later, ranges bring the rest faster than a slow answer in advance does.
        let patience = match open.is_in_advance() {
            true => IN_ADVANCE,
            false => PATIENCE,
        };
        let deadline = tokio::time::Instant::now() + patience;
        for segment in segments {
            let place = segment.offset..segment.end();
            let piece = tokio::time::timeout_at(deadline, open.piece(segment.zone, &place)).await;
            let stored = match piece.unwrap_or_else(|_| Err("it comes too slowly".to_owned())) {
                Ok(Some(stored)) => stored,
                Ok(None) => break,
                Err(problem) => {
                    brought.problem = Some(problem);
                    break;
                }
            };
            let permit = self.decoders.clone().acquire_owned().await;
            let this = self.clone();
            decoding.spawn_blocking(move || {
                let _permit = permit;
                let injected = this.inject(&segment, &stored);
                injected.map_err(|problem| format!("zone {}: {problem}", this.zone_name(segment.zone)))
            });
        }
        if brought.problem.is_some() && !open.is_in_advance() {
            self.tell_no_more();
        }
        brought.bytes = open.bytes();
        self.source.note(&open);
        while let Some(injected) = decoding.join_next().await {
            match injected {
                Ok(Ok(pages)) => brought.injected += pages,
                Ok(Err(problem)) => brought.problem = Some(problem),
                Err(error) => brought.problem = Some(error.to_string()),
            }
        }
        if open.is_in_advance()
            && let Some(problem) = brought.problem.take()
        {
            warn!("what came in advance: {problem}; the rest is asked for by itself");
        }
        brought
    }

    fn zone_name(&self, zone: u16) -> String {
        let zone = self.found.recording.zones.get(usize::from(zone));
        zone.map_or_else(String::new, |zone| zone.digest.to_string())
    }

    fn segments(&self, numbers: &[usize]) -> Vec<Segment> {
        let all = &self.found.recording.segments;
        let numbers = numbers.iter();
        numbers.filter_map(|number| all.get(*number).cloned()).collect()
    }

    /// Decodes a segment and puts those of its pages into the layers that are missing. Blocks.
    fn inject(&self, segment: &Segment, stored: &[u8]) -> Result<u64, String> {
        let plain = open_segment(segment, stored).map_err(|error| error.to_string())?;
        let mut rest = plain.as_slice();
        let mut pieces: BTreeMap<u16, Vec<(u64, &[u8])>> = BTreeMap::new();
        for run in &segment.runs {
            let length = (u64::from(run.pages) * PAGE_SIZE) as usize;
            let (pages, after) = rest.split_at_checked(length).ok_or("a segment is too short")?;
            rest = after;
            pieces.entry(run.layer).or_default().push((run.first, pages));
        }
        let mut written = 0;
        for (layer, pieces) in pieces {
            if let Some((target, _writing)) = self.begin_to_write(layer) {
                let injected = target.served.filler().inject(&pieces);
                written += injected.map_err(|error| format!("write pages: {error}"))?;
            } else {
                self.withdraw(layer);
            }
        }
        self.tell_more();
        Ok(written)
    }
}

/// The outcome for one range.
#[derive(Default)]
struct Brought {
    bytes: u64,
    requests: u64,
    injected: u64,
    problem: Option<String>,
}

fn take_in(
    result: Option<Result<Brought, tokio::task::JoinError>>,
    loaded: &mut Loaded,
    problem: &mut Option<String>,
) {
    match result {
        Some(Ok(brought)) => {
            loaded.bytes += brought.bytes;
            loaded.requests += brought.requests;
            loaded.injected += brought.injected;
            *problem = problem.take().or(brought.problem);
        }
        Some(Err(error)) => *problem = Some(error.to_string()),
        None => {}
    }
}
