//! A range of a zone on its way: from the registry, or from a zone that this host keeps.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
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
        Ok(ZoneStream {
            zone,
            range: range.clone(),
            arrival: Arrival::new(range.start),
            parts,
            asked,
            came: None,
            bytes: 0,
        })
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

/// A range of a zone, of which pieces are taken in ascending order.
pub struct ZoneStream {
    /// The zone's place in the recording.
    zone: u16,
    range: Range<u64>,
    arrival: Arrival,
    parts: Parts,
    asked: Instant,
    came: Option<Came>,
    bytes: u64,
}

impl ZoneStream {
    /// Whether the registry was asked for it.
    pub fn is_request(&self) -> bool {
        matches!(self.parts, Parts::Remote(_))
    }

    /// The zone's place in the recording.
    pub fn zone(&self) -> u16 {
        self.zone
    }

    /// Bytes that were taken in so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a piece can still be taken.
    pub fn covers(&self, zone: u16, piece: &Range<u64>) -> bool {
        self.zone == zone && self.arrival.at <= piece.start && piece.end <= self.range.end
    }

    /// A piece, once all of it is here; what stands before it is thrown away. `None` if it does not come.
    ///
    /// # Errors
    /// Why nothing more comes, for people.
    pub async fn piece(&mut self, piece: &Range<u64>) -> Result<Option<Bytes>, String> {
        loop {
            if let Some(bytes) = self.arrival.take(piece) {
                return Ok(Some(bytes));
            }
            let Some(part) = self.parts.next().await? else {
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
}

impl Parts {
    async fn next(&mut self) -> Result<Option<Part>, String> {
        match self {
            Self::Local(bytes) => Ok(bytes.take().map(|bytes| Part { bytes, came: None })),
            Self::Remote(receiving) => receiving.next().await,
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

/// Bytes of a zone that have come and were not used yet.
struct Arrival {
    /// Offset in the zone of the first of them.
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

    proptest! {
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
