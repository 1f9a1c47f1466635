//! A range of a zone on its way: from the registry, or from a zone that this host keeps. Or pieces of zones that the registry sends in
//! advance, in an order of its own.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use xebec_format::digest::Digest;
use xebec_format::runtime_image::Zone;
use xebec_oci::{BlobStream, Client, Repository};

use crate::bandwidth::Bandwidths;
use crate::buffered_body::{Part, Receiving};
use crate::find::FoundRecording;

/// Where the zones of a recording come from.
#[derive(Clone)]
pub struct ZoneSource {
    client: Client,
    repository: Repository,
    bandwidths: Arc<Bandwidths>,
    /// Its own zone, if this host has it.
    own: Option<PathBuf>,
    zones: Arc<[Zone]>,
}

impl ZoneSource {
    /// The zones of `found`.
    pub fn new(
        client: Client,
        repository: Repository,
        bandwidths: Arc<Bandwidths>,
        found: &FoundRecording,
    ) -> Self {
        Self {
            client,
            repository,
            bandwidths,
            own: found.zone.clone(),
            zones: found.recording.zones.clone().into(),
        }
    }

    /// The longest gap, in bytes, that takes less time to read over than another request would.
    pub fn bridge(&self) -> u64 {
        self.bandwidths.bridge(self.repository.registry())
    }

    /// Asks for bytes of a zone, given by its place in the recording.
    ///
    /// # Errors
    /// Why there is no answer, for people.
    pub async fn open(&self, zone: u16, range: Range<u64>) -> Result<ZoneStream, String> {
        let asked = Instant::now();
        let parts = match self.own.clone().filter(|_| zone == 0) {
            Some(path) => Parts::Local(Some(read_file(path, range.clone()).await?)),
            None => Parts::Remote(Receiving::begin(self.ask(zone, range.clone()).await?)),
        };
        let mut places = Places::default();
        places.add(zone, range, u64::MAX);
        Ok(ZoneStream::new(places, parts, asked))
    }

    /// What `client` has of these zones in advance, but for one that this host has.
    pub(crate) fn in_advance(&self, client: &Client) -> Option<ZoneStream> {
        let asked = Instant::now();
        let here = usize::from(self.own.is_some());
        let zones = || (0u16..).zip(self.zones.iter()).skip(here);
        let digests: Vec<Digest> = zones().map(|(_, zone)| zone.digest).collect();
        let pieces = client.pieces_in_advance(&self.repository, &digests)?;
        let mut places = Places::default();
        for (digest, range) in pieces.places() {
            let (number, zone) = zones().find(|(_, zone)| zone.digest == *digest)?;
            places.add(number, range.clone(), zone.size);
        }
        let parts = Parts::InAdvance(Receiving::begin(pieces.into_stream()));
        Some(ZoneStream::new(places, parts, asked))
    }

    async fn ask(&self, zone: u16, range: Range<u64>) -> Result<BlobStream, String> {
        let zone = self.zones.get(usize::from(zone));
        let zone = zone.ok_or("a zone that the recording does not list")?;
        self.client
            .blob_range_stream(&self.repository, &zone.digest, zone.size, range)
            .await
            .map_err(|error| error.to_string())
    }

    /// Learns from an answer that was read to its end how fast the registry is.
    pub fn note(&self, stream: &ZoneStream) {
        if let Some(came) = stream.came.as_ref().filter(|_| stream.is_request()) {
            let registry = self.repository.registry();
            let (delay, rest) = (came.first - stream.asked, came.last - came.first);
            self.bandwidths.note(registry, delay, rest, came.after_first);
        }
    }
}

/// Ranges of zones that come one after the other.
#[derive(Default)]
struct Places {
    /// By zone and offset: how long each is, and where its first byte comes, counted from the first of all.
    all: BTreeMap<(u16, u64), (u64, u64)>,
    /// The last one.
    last: Option<(u16, u64)>,
    /// How many bytes they have together.
    end: u64,
    /// More than a number can count: what comes after that has no place.
    is_full: bool,
}

impl Places {
    /// Adds the range that comes next, of a zone of that size. One that ends beyond it comes, too, but is none of the zone.
    fn add(&mut self, zone: u16, range: Range<u64>, size: u64) {
        let length = range.end.saturating_sub(range.start);
        let Some(end) = self.end.checked_add(length).filter(|_| !self.is_full) else {
            self.is_full = true;
            return;
        };
        let at = std::mem::replace(&mut self.end, end);
        let before = self.last.take();
        if range.end > size || range.start > range.end {
            return;
        }
        let last = before.and_then(|last| Some((last, self.all.get_mut(&last)?)));
        match last {
            // Pieces without a gap are one.
            Some((last, (before, _)))
                if last.0 == zone && last.1.checked_add(*before) == Some(range.start) =>
            {
                // They end within the zone.
                *before = range.end - last.1;
                self.last = Some(last);
            }
            _ => {
                let key = (zone, range.start);
                // One that comes twice counts where it comes first.
                self.last = (!self.all.contains_key(&key)).then_some(key);
                self.all.entry(key).or_insert((length, at));
            }
        }
    }

    /// Where a piece comes.
    fn of(&self, zone: u16, piece: &Range<u64>) -> Option<u64> {
        let before = self.all.range(..=(zone, piece.start)).next_back();
        let ((of, offset), (length, at)) = before?;
        let (start, end) = (piece.start.checked_sub(*offset)?, piece.end.checked_sub(*offset)?);
        let is_in = *of == zone && start <= end && end <= *length;
        at.checked_add(start).filter(|_| is_in)
    }
}

/// Ranges of zones, of which pieces are taken in the order in which they come.
pub struct ZoneStream {
    places: Places,
    arrival: Arrival,
    parts: Parts,
    asked: Instant,
    came: Option<Came>,
    bytes: u64,
    /// Nothing more comes.
    is_over: bool,
}

impl ZoneStream {
    fn new(places: Places, parts: Parts, asked: Instant) -> Self {
        Self {
            places,
            arrival: Arrival::new(0),
            parts,
            asked,
            came: None,
            bytes: 0,
            is_over: false,
        }
    }

    /// Whether the registry was asked for it.
    pub fn is_request(&self) -> bool {
        matches!(self.parts, Parts::Remote(_))
    }

    /// Whether the registry sent it in advance. What does not come, or is wrong, is asked for by itself then.
    pub fn is_in_advance(&self) -> bool {
        matches!(self.parts, Parts::InAdvance(_))
    }

    /// Bytes that were taken in so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When a piece comes, as a number that ascends; `None` if it cannot be taken, or no longer.
    pub fn position(&self, zone: u16, piece: &Range<u64>) -> Option<u64> {
        let at = self.places.of(zone, piece)?;
        (!self.is_over && self.arrival.at <= at).then_some(at)
    }

    /// Whether it is better to read what comes before and between these pieces than to ask for them: it is not more than they are with
    /// a gap that is bridged, nor than `most`. What is sent in advance may have anything there.
    pub(crate) fn is_worth(
        &self,
        pieces: impl IntoIterator<Item = (u16, Range<u64>)>,
        bridge: u64,
        most: u64,
    ) -> bool {
        let places = pieces.into_iter().filter_map(|(zone, piece)| {
            let at = self.position(zone, &piece)?;
            Some(at..at.saturating_add(piece.end - piece.start))
        });
        let mut places: Vec<Range<u64>> = places.collect();
        places.sort_unstable_by_key(|place| (place.start, place.end));
        let (mut end, mut wanted, mut unwanted) = (self.arrival.at, 0_u64, 0_u64);
        for place in places {
            unwanted = unwanted.saturating_add(place.start.saturating_sub(end));
            wanted = wanted.saturating_add(place.end.saturating_sub(place.start.max(end)));
            end = end.max(place.end);
        }
        unwanted <= wanted.saturating_add(bridge).min(most)
    }

    /// A piece, once all of it is here; what stands before it is thrown away. `None` if it does not come.
    ///
    /// # Errors
    /// Why nothing more comes, for people.
    pub async fn piece(&mut self, zone: u16, piece: &Range<u64>) -> Result<Option<Bytes>, String> {
        let Some(at) = self.position(zone, piece) else {
            return Ok(None);
        };
        // It ends within its place.
        let piece = at..at.saturating_add(piece.end - piece.start);
        loop {
            if let Some(bytes) = self.arrival.take(&piece) {
                return Ok(Some(bytes));
            }
            let next = self.parts.next().await;
            self.is_over = !matches!(next, Ok(Some(_)));
            let Some(part) = next? else {
                return Ok(None);
            };
            match (&mut self.came, part.came) {
                (Some(came), Some(now)) => {
                    came.last = now;
                    came.after_first += part.bytes.len() as u64;
                }
                (came @ None, Some(first)) => {
                    *came = Some(Came {
                        first,
                        last: first,
                        after_first: 0,
                    });
                }
                (_, None) => {}
            }
            self.bytes += part.bytes.len() as u64;
            self.arrival.add(part.bytes);
        }
    }
}

/// When bytes came, if their times say something about the sender.
struct Came {
    first: Instant,
    /// The last so far.
    last: Instant,
    /// How many came after the first.
    after_first: u64,
}

/// Where a zone's bytes come from.
enum Parts {
    Local(Option<Bytes>),
    Remote(Receiving),
    InAdvance(Receiving),
}

impl Parts {
    async fn next(&mut self) -> Result<Option<Part>, String> {
        match self {
            Self::Local(bytes) => Ok(bytes.take().map(|bytes| Part { bytes, came: None })),
            Self::Remote(receiving) | Self::InAdvance(receiving) => receiving.next().await,
        }
    }
}

async fn read_file(path: PathBuf, range: Range<u64>) -> Result<Bytes, String> {
    use std::os::unix::fs::FileExt;
    let read = move || -> std::io::Result<Bytes> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        std::fs::File::open(path)?.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes.into())
    };
    let read = tokio::task::spawn_blocking(read).await;
    read.map_err(|error| error.to_string())?
        .map_err(|error| format!("read the zone that is kept here: {error}"))
}

/// A part of fewer bytes is copied behind the one before: by itself it would keep the whole buffer that it came in.
const SMALL: usize = 16 << 10;

/// Bytes of zones that have come and were not used yet.
struct Arrival {
    /// Where the first of them came, counted from the first of all.
    at: u64,
    parts: VecDeque<Bytes>,
    /// Small parts that came after these.
    last: BytesMut,
    /// How many bytes there are.
    length: u64,
}

impl Arrival {
    fn new(at: u64) -> Self {
        Self {
            at,
            parts: VecDeque::new(),
            last: BytesMut::new(),
            length: 0,
        }
    }

    fn add(&mut self, part: Bytes) {
        self.length += part.len() as u64;
        if part.len() < SMALL {
            self.last.extend_from_slice(&part);
        } else {
            self.close_last();
            self.parts.push_back(part);
        }
    }

    fn close_last(&mut self) {
        if !self.last.is_empty() {
            self.parts.push_back(self.last.split().freeze());
        }
    }

    /// A piece, if all of it is here; what stands before it is thrown away.
    fn take(&mut self, piece: &Range<u64>) -> Option<Bytes> {
        let mut gap = piece.start.checked_sub(self.at)?;
        let length = piece.end.checked_sub(piece.start)?;
        let is_here = gap.checked_add(length)? <= self.length;
        if is_here || gap > 0 {
            self.close_last();
        }
        while gap > 0 {
            gap -= self.split(gap)?.len() as u64;
        }
        if !is_here {
            return None;
        }
        // Most are in one part, and need not be copied.
        let first = self.split(length).unwrap_or_default();
        if first.len() as u64 == length {
            return Some(first);
        }
        let mut whole = Vec::with_capacity(length as usize);
        whole.extend_from_slice(&first);
        while (whole.len() as u64) < length {
            whole.extend_from_slice(&self.split(length - whole.len() as u64)?);
        }
        Some(whole.into())
    }

    /// At most so many of the first bytes: what the first part has of them.
    fn split(&mut self, most: u64) -> Option<Bytes> {
        let part = self.parts.front_mut()?;
        let taken = match part.len() as u64 <= most {
            true => self.parts.pop_front()?,
            false => part.split_to(most as usize),
        };
        self.at += taken.len() as u64;
        self.length -= taken.len() as u64;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pieces_are_taken_as_they_arrive() {
        let mut arrival = Arrival::new(100);
        arrival.add(Bytes::from_static(b"abc"));
        assert_eq!(arrival.take(&(100..104)), None);
        arrival.add(Bytes::from_static(b"def"));
        assert_eq!(arrival.take(&(100..104)).as_deref(), Some(&b"abcd"[..]));
        assert_eq!(arrival.take(&(108..110)), None, "a gap of four");
        arrival.add(Bytes::from_static(b"ghijkl"));
        assert_eq!(arrival.take(&(108..110)).as_deref(), Some(&b"ij"[..]));
        assert_eq!(arrival.take(&(110..112)).as_deref(), Some(&b"kl"[..]));
        assert_eq!(arrival.take(&(112..113)), None);
    }

    /// Numbers of which sums are beyond the last.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..40_u64,
            (0..40_u64).prop_map(|less| u64::MAX - less),
            any::<u64>()
        ]
    }

    #[test]
    fn unwanted_bytes_are_read_over_within_bounds() {
        let mut places = Places::default();
        for (zone, range) in [(0, 0..5000), (1, 0..1000), (0, 5000..9000), (1, 2000..2100)] {
            places.add(zone, range, 10_000);
        }
        let stream = ZoneStream::new(places, Parts::Local(None), Instant::now());
        assert!(stream.is_worth([(0, 0..5000), (0, 5000..9000)], 0, 1000));
        assert!(!stream.is_worth([(0, 0..5000), (0, 5000..9000)], 0, 999));
        assert!(!stream.is_worth([(1, 0..1000)], 3999, 1 << 20));
        assert!(stream.is_worth([(1, 0..1000)], 4000, 1 << 20));
        assert!(
            stream.is_worth([(1, 5000..6000)], 0, 0),
            "what does not come costs nothing"
        );
    }

    proptest! {
        /// Against a list of all pieces with their ends, in wider numbers.
        #[test]
        fn places_are_those_of_the_pieces_whatever_their_numbers(
            added in vec((0..2_u16, number(), number()), 0..8),
            size in number(),
            asked in vec((0..2_u16, number(), number()), 1..8),
        ) {
            let mut places = Places::default();
            let (mut model, mut at): (Vec<(u16, Range<u64>, u128)>, _) = (Vec::new(), 0_u128);
            for (zone, start, length) in added {
                let range = start..start.saturating_add(length);
                places.add(zone, range.clone(), size);
                let after = at + u128::from(range.end - range.start);
                if range.end <= size && after <= u128::from(u64::MAX) {
                    model.push((zone, range, at));
                }
                at = after;
            }
            let stream = ZoneStream::new(places, Parts::Local(None), Instant::now());
            for (zone, start, length) in asked {
                let piece = start..start.saturating_add(length);
                if let Some(found) = stream.position(zone, &piece) {
                    // Every byte of it was added there: it begins in one piece, and those after that follow without a gap.
                    let (mut next, mut found) = (piece.start, u128::from(found));
                    while next < piece.end {
                        let part = model.iter().find(|(of, range, at)| {
                            *of == zone && range.contains(&next) && at + u128::from(next - range.start) == found
                        });
                        prop_assert!(part.is_some(), "{piece:?}");
                        let end = part.map_or(0, |(_, range, _)| range.end);
                        found += u128::from(end - next);
                        next = end;
                    }
                }
                stream.is_worth([(zone, piece.clone())], start, length);
                let mut arrival = Arrival::new(start);
                arrival.add(Bytes::from_static(b"some bytes"));
                prop_assert_eq!(arrival.take(&piece).is_some(), length.min(u64::MAX - start) <= 10);
            }
        }

        /// As a slice of all the bytes, however they are divided on the way.
        #[test]
        fn pieces_are_slices(
            // Of sizes around that of small ones, told apart by what is in them.
            parts in vec((any::<u8>(), prop_oneof![0..9usize, SMALL - 2..SMALL + 9]), 0..12),
            wanted in vec((0u64..9, prop_oneof![0..9u64, 0..3 * SMALL as u64]), 0..12),
        ) {
            let part = |(first, length): (u8, usize)| {
                let bytes = (0..length).map(|n| first.wrapping_add((n % 251) as u8));
                bytes.collect::<Vec<u8>>()
            };
            let parts: Vec<Vec<u8>> = parts.into_iter().map(part).collect();
            let all = parts.concat();
            let (mut arrival, mut end) = (Arrival::new(1000), 1000);
            let mut parts = parts.into_iter();
            for (gap, length) in wanted {
                let piece = end + gap..end + gap + length;
                let slice = all.get((piece.start - 1000) as usize..(piece.end - 1000) as usize);
                let taken = loop {
                    match (arrival.take(&piece), parts.next()) {
                        (Some(taken), next) => {
                            next.into_iter().for_each(|part| arrival.add(part.into()));
                            break Some(taken);
                        }
                        (None, Some(part)) => arrival.add(part.into()),
                        (None, None) => break None,
                    }
                };
                prop_assert_eq!(taken.as_deref(), slice);
                if taken.is_none() {
                    break;
                }
                end = piece.end;
            }
        }
    }
}
