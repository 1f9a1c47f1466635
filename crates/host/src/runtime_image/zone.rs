//! A range of a zone on its way: from the registry, or from a zone that this host keeps.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use xebec_format::runtime_image::Zone;
use xebec_oci::{BlobStream, Client, Repository};

use crate::runtime_image::find::FoundRecording;
use crate::runtime_image::pace::Paces;

/// Where the zones of a recording are had from.
#[derive(Clone)]
pub struct ZoneSource {
    client: Client,
    repository: Repository,
    paces: Arc<Paces>,
    /// Its own zone, if this host has it.
    own: Option<PathBuf>,
    zones: Arc<[Zone]>,
}

impl ZoneSource {
    /// The zones of `found`.
    pub fn new(client: Client, repository: Repository, paces: Arc<Paces>, found: &FoundRecording) -> Self {
        Self {
            client,
            repository,
            paces,
            own: found.zone.clone(),
            zones: found.recording.zones.clone().into(),
        }
    }

    /// The longest gap, in bytes, that takes less time to read over than another request would.
    pub fn bridge(&self) -> u64 {
        self.paces.bridge(self.repository.registry())
    }

    /// Asks for bytes of a zone, given by its place in the recording.
    ///
    /// # Errors
    /// Why there is no answer, for people.
    pub async fn open(&self, zone: u16, range: Range<u64>) -> Result<ZoneStream, String> {
        let asked = Instant::now();
        let parts = match self.own.clone().filter(|_| zone == 0) {
            Some(path) => Parts::Local(Some(read_file(path, range.clone()).await?)),
            None => Parts::Remote(Mutex::new(self.ask(zone, range.clone()).await?)),
        };
        Ok(ZoneStream {
            zone,
            range: range.clone(),
            arrival: Arrival::new(range.start),
            parts,
            asked,
            first: None,
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
        if let Some(first) = stream.first.filter(|_| stream.is_request()) {
            let registry = self.repository.registry();
            let delay = first - stream.asked;
            self.paces.note(registry, delay, first.elapsed(), stream.bytes);
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
    first: Option<Instant>,
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

    /// Bytes that have come so far.
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
            self.first.get_or_insert_with(Instant::now);
            self.bytes += part.len() as u64;
            self.arrival.add(&part);
        }
    }
}

/// Where a zone's bytes come from.
enum Parts {
    Local(Option<Bytes>),
    /// In a lock that nobody waits for: a stream by itself may not be looked at from two threads.
    Remote(Mutex<BlobStream>),
}

impl Parts {
    async fn next(&mut self) -> Result<Option<Bytes>, String> {
        match self {
            Self::Local(bytes) => Ok(bytes.take()),
            Self::Remote(stream) => {
                let stream = stream.get_mut().unwrap_or_else(PoisonError::into_inner);
                stream.next_part().await.map_err(|error| error.to_string())
            }
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

/// Bytes of a zone that have come and were not used yet.
struct Arrival {
    /// Offset in the zone of the first of them.
    at: u64,
    bytes: BytesMut,
}

impl Arrival {
    fn new(at: u64) -> Self {
        Self {
            at,
            bytes: BytesMut::new(),
        }
    }

    fn add(&mut self, part: &[u8]) {
        self.bytes.extend_from_slice(part);
    }

    /// A piece, if all of it is here; what stands before it is thrown away.
    fn take(&mut self, piece: &Range<u64>) -> Option<Bytes> {
        let gap = piece.start.checked_sub(self.at)?;
        let gap = (gap as usize).min(self.bytes.len());
        let _ = self.bytes.split_to(gap);
        self.at += gap as u64;
        let length = piece.end.checked_sub(piece.start)?;
        if piece.start != self.at || (self.bytes.len() as u64) < length {
            return None;
        }
        self.at = piece.end;
        Some(self.bytes.split_to(length as usize).freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_as_they_arrive() {
        let mut arrival = Arrival::new(100);
        arrival.add(b"abc");
        assert_eq!(arrival.take(&(100..104)), None);
        arrival.add(b"def");
        assert_eq!(arrival.take(&(100..104)).as_deref(), Some(&b"abcd"[..]));
        assert_eq!(arrival.take(&(108..110)), None, "a gap of four");
        arrival.add(b"ghijkl");
        assert_eq!(arrival.take(&(108..110)).as_deref(), Some(&b"ij"[..]));
        assert_eq!(arrival.take(&(110..112)).as_deref(), Some(&b"kl"[..]));
        assert_eq!(arrival.take(&(112..113)), None);
    }
}
