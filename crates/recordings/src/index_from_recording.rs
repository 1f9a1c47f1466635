//! Layer indexes that travel in the zone of the recording by which a service is started. A host that does not know the
//! image gets them by the request that brings its pages, and asks for no index artifact.

use std::collections::HashSet;
use std::time::Duration;

use tracing::warn;
use xebec_cache::store::{LayerKey, Store};
use xebec_format::digest::Digest;
use xebec_format::runtime_image::{BundledIndex, PageRun, Recording, ZoneRange, ranges, wanted};
use xebec_images::choose::Choice;
use xebec_kernel::keyed_lock::KeyGuard;

use crate::bundled_indexes::MAX_CARRIED;
use crate::find::FoundRecording;
use crate::recordings::Starts;
use crate::zone::{ZoneSource, ZoneStream};

/// How long a start waits for another to bring what both need. One that succeeds takes seconds at most.
const TURN: Duration = Duration::from_secs(30);

/// How long what comes in advance is waited for by itself: other starts wait for this one. Then ranges are asked for.
const IN_ADVANCE: Duration = Duration::from_secs(20);

/// A start by a recording that carries indexes.
pub(crate) struct BundledIndexFetch<'a> {
    /// The blob cache.
    pub(crate) store: &'a Store,
    /// The image, by its name.
    pub(crate) reference: String,
    /// The recording.
    pub(crate) found: &'a FoundRecording,
    /// Where its zones come from.
    pub(crate) source: &'a ZoneSource,
}

impl BundledIndexFetch<'_> {
    /// If the zone carries indexes of layers of which this host has none that it may use, begins to fetch the zone
    /// and offers those indexes to `choice`; they may have come `in_advance`. Gives the rest of the answer, in which the pages follow; and
    /// the turn, if another start might do the same meanwhile.
    pub(crate) async fn begin(
        &self,
        choice: &mut Choice<'_>,
        turns: &Starts,
        in_advance: Option<ZoneStream>,
    ) -> (Option<KeyGuard>, Option<ZoneStream>) {
        let evidence = &self.found.evidence;
        choice.vouch(evidence.clone());
        if evidence.listed.is_none() && evidence.signed.is_none() {
            // That this host made the recording says nothing of the indexes by which it did.
            return (None, in_advance);
        }
        // In this order: the start that fetched the indexes keeps its turn until it is known which pages are in flight.
        let is_unknown = !self.unknown_indexes(choice).is_empty();
        let name = (self.found.name, self.reference.clone());
        if !is_unknown && !turns.is_taken(&name) {
            return (None, in_advance);
        }
        // A start that has waited that long fetches, too, rather than fail after all others did.
        let turn = tokio::time::timeout(TURN, turns.take(name)).await.ok();
        let unknown = self.unknown_indexes(choice);
        if unknown.is_empty() {
            return (None, in_advance);
        }
        let open = match in_advance {
            Some(stream) => self.take_and_fetch(choice, unknown, stream).await,
            None => {
                let pages = self.missing_pages(&unknown);
                self.begin_to_fetch(choice, unknown, pages).await
            }
        };
        (turn, open)
    }

    /// Takes indexes and the pages after them from what came in advance, and fetches what is not in it.
    async fn take_and_fetch(
        &self,
        choice: &mut Choice<'_>,
        mut unknown: Vec<LayerKey>,
        mut stream: ZoneStream,
    ) -> Option<ZoneStream> {
        let recording = &self.found.recording;
        let mut coming: Vec<(u64, LayerKey, BundledIndex)> = recording
            .indexes
            .iter()
            .filter_map(|index| {
                let key = LayerKey::from(recording.layers.get(usize::from(index.layer))?);
                let at = stream.position(index.zone, &(index.offset..index.end()))?;
                let is_wanted = unknown.contains(&key) && index.end() - index.offset <= MAX_CARRIED;
                is_wanted.then_some((at, key, *index))
            })
            .collect();
        coming.sort_by_key(|(at, ..)| *at);
        let indexes = coming
            .iter()
            .map(|(.., index)| (index.zone, index.offset..index.end()));
        let pages = self.missing_pages(&unknown);
        let pages = pages.iter().filter_map(|number| recording.segments.get(*number));
        let pages = pages.map(|segment| (segment.zone, segment.offset..segment.end()));
        let is_worth = stream.is_worth(indexes.chain(pages), self.source.bridge(), MAX_CARRIED);
        let taken = match is_worth {
            true => {
                let taking = self.take_all(choice, &mut unknown, &mut stream, &coming);
                tokio::time::timeout(IN_ADVANCE, taking).await.ok()
            }
            false => None,
        };
        if taken.is_none() {
            let pages = self.missing_pages(&unknown);
            return self.begin_to_fetch(choice, unknown, pages).await;
        }
        if unknown.is_empty() {
            return Some(stream);
        }
        let mut pages = self.missing_pages(&unknown);
        let is_coming = |number: &usize| {
            let segment = recording.segments.get(*number)?;
            stream.position(segment.zone, &(segment.offset..segment.end()))
        };
        let before = pages.len();
        pages.retain(|number| is_coming(number).is_none());
        if pages.len() < before {
            // The others are asked for when these are taken.
            self.begin_to_fetch(choice, unknown, Vec::new()).await;
            return Some(stream);
        }
        self.begin_to_fetch(choice, unknown, pages).await
    }

    /// Offers indexes that come; those that are right are no longer `unknown`.
    async fn take_all(
        &self,
        choice: &mut Choice<'_>,
        unknown: &mut Vec<LayerKey>,
        stream: &mut ZoneStream,
        coming: &[(u64, LayerKey, BundledIndex)],
    ) {
        for (_, key, carried) in coming {
            if !unknown.contains(key) {
                continue;
            }
            match self.take_one(choice, stream, *key, carried).await {
                Ok(true) => unknown.retain(|other| other != key),
                Ok(false) => {}
                Err(problem) => warn!("{problem}"),
            }
        }
    }

    /// Offers an index once it is here; whether it came, and is the right one.
    ///
    /// # Errors
    /// Why nothing more comes, for people.
    async fn take_one(
        &self,
        choice: &mut Choice<'_>,
        stream: &mut ZoneStream,
        key: LayerKey,
        carried: &BundledIndex,
    ) -> Result<bool, String> {
        let Some(bytes) = stream
            .piece(carried.zone, &(carried.offset..carried.end()))
            .await?
        else {
            return Ok(false);
        };
        let is_it = Digest::of(&bytes) == key.index;
        match is_it {
            true => choice.offer(key, Some(bytes)),
            false => warn!(
                "{}: the zone carries another index than its recording names",
                self.found.name
            ),
        }
        Ok(is_it)
    }

    /// Layers that the recording's zones carry indexes of, of which this host has none. Offers those that it has, and may not
    /// use yet.
    fn unknown_indexes(&self, choice: &mut Choice<'_>) -> Vec<LayerKey> {
        let recording = &self.found.recording;
        let mut unknown: Vec<LayerKey> = Vec::new();
        let carried: HashSet<u16> = recording.indexes.iter().map(|index| index.layer).collect();
        for (number, layer) in (0u16..).zip(&recording.layers) {
            let key = LayerKey::from(layer);
            // One that it names and does not carry it does not vouch for.
            if !carried.contains(&number) || choice.is_known(key.layer) {
                continue;
            }
            if self.store.index_bytes(key).is_ok() {
                choice.offer(key, None);
            } else {
                unknown.push(key);
            }
        }
        unknown
    }

    /// Fetches indexes, with the first of `pages`.
    async fn begin_to_fetch(
        &self,
        choice: &mut Choice<'_>,
        unknown: Vec<LayerKey>,
        pages: Vec<usize>,
    ) -> Option<ZoneStream> {
        let (source, recording) = (self.source, &self.found.recording);
        let missing = of_one_zone(recording, &unknown, &pages);
        let zone = missing.first()?.1.zone;
        let begin = missing.first()?.1.offset;
        let end = missing.iter().map(|(_, carried)| carried.end()).max()?;
        if end - begin > MAX_CARRIED {
            return None;
        }
        // The first pages come in the same answer if they are near, else in one of their own at the same time.
        let bridge = source.bridge();
        let first = ranges(&recording.segments, &pages, bridge).into_iter().next();
        let is_near = |range: &ZoneRange| {
            let gap = range.bytes.start.checked_sub(end);
            range.zone == zone && gap.is_some_and(|gap| gap <= bridge)
        };
        let (asked, apart) = match first {
            Some(range) if is_near(&range) => (begin..range.bytes.end, None),
            other => (begin..end, other),
        };
        let apart = async {
            let range = apart?;
            source.open(range.zone, range.bytes).await.ok()
        };
        let (opened, apart) = tokio::join!(source.open(zone, asked), apart);
        let mut stream = match opened {
            Ok(stream) => stream,
            Err(problem) => {
                warn!("{problem}");
                return apart;
            }
        };
        for (key, carried) in missing {
            let place = carried.offset..carried.end();
            if stream.position(carried.zone, &place).is_none() {
                break;
            }
            if let Err(problem) = self.take_one(choice, &mut stream, key, &carried).await {
                warn!("{problem}");
                return apart;
            }
        }
        apart.or(Some(stream))
    }

    /// The segments with pages of the service that are missing: all of those of layers whose index is `unknown`.
    fn missing_pages(&self, unknown: &[LayerKey]) -> Vec<usize> {
        let layers = self.found.recording.layers.iter().map(LayerKey::from);
        let known = layers.map(|key| match unknown.contains(&key) {
            true => None,
            false => self.store.look(key).ok(),
        });
        let known: Vec<_> = known.collect();
        wanted(&self.found.recording, &self.found.service, |run: &PageRun| {
            let layer = known.get(usize::from(run.layer)).and_then(Option::as_ref);
            layer.is_none_or(|layer| !layer.presence().missing(run.first..run.end()).is_empty())
        })
    }
}

/// The places of indexes of `unknown` layers in one zone, ascending: in the one that has most of them, of equals the one
/// that the first missing pages are in. The rest comes from the index artifact.
fn of_one_zone(
    recording: &Recording,
    unknown: &[LayerKey],
    pages: &[usize],
) -> Vec<(LayerKey, BundledIndex)> {
    let first = pages.first().and_then(|number| recording.segments.get(*number));
    let key = |index: &BundledIndex| {
        let layer = recording.layers.get(usize::from(index.layer))?;
        Some(LayerKey::from(layer)).filter(|key| unknown.contains(key))
    };
    let of = |zone: u16| -> Vec<(LayerKey, BundledIndex)> {
        let there = recording.indexes.iter().filter(|index| index.zone == zone);
        there.filter_map(|index| Some((key(index)?, *index))).collect()
    };
    let is_first = |zone: u16| first.is_some_and(|segment| segment.zone == zone);
    let zones = (0..recording.zones.len() as u16).map(|zone| (of(zone), is_first(zone)));
    let best = zones.max_by_key(|(indexes, is_first)| (indexes.len(), *is_first));
    let mut best = best.map(|(indexes, _)| indexes).unwrap_or_default();
    best.sort_by_key(|(_, index)| index.offset);
    best
}
