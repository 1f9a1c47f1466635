//! Reads an object and says whether it has the bytes that it should have, at a rate.

use std::io;
use std::time::{Duration, Instant};

use futures_util::StreamExt;

use crate::records::intact::main_key;
use crate::store::Store;
use xebec_objects::{Digest, Hasher, Objects};

/// The outcome of reading an object.
pub(super) enum Verdict {
    Sound,
    Damaged,
    Missing,
    Unreadable(String),
}

impl Store {
    /// Reads an object that should have so many bytes with this digest. `bytes` counts what was read. One that is not on the main place is sound
    /// if there are enough of its replicas: these are read by themselves.
    pub(super) async fn verdict(
        &self,
        name: &str,
        (wanted, size): (&Digest, u64),
        pace: &mut Pace,
        bytes: &mut u64,
    ) -> Verdict {
        let Some(key) = main_key(name) else {
            return match self.is_somewhere(name, size).await {
                Ok(true) => Verdict::Sound,
                Ok(false) => Verdict::Missing,
                Err(error) => Verdict::Unreadable(error.to_string()),
            };
        };
        self.verdict_of(&self.inner.objects, key, (wanted, size), pace, bytes)
            .await
    }

    /// The same of an object on any place, by its key.
    pub(super) async fn verdict_of(
        &self,
        objects: &Objects,
        key: &str,
        (wanted, size): (&Digest, u64),
        pace: &mut Pace,
        bytes: &mut u64,
    ) -> Verdict {
        match hash(objects, key, (wanted, size), pace, bytes).await {
            Ok(found) if found == *wanted => Verdict::Sound,
            Ok(_) => Verdict::Damaged,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Verdict::Missing,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Verdict::Damaged,
            Err(error) => Verdict::Unreadable(error.to_string()),
        }
    }
}

async fn hash(
    objects: &Objects,
    key: &str,
    (wanted, size): (&Digest, u64),
    pace: &mut Pace,
    bytes: &mut u64,
) -> io::Result<Digest> {
    match objects.size(key).await? {
        None => return Err(io::ErrorKind::NotFound.into()),
        Some(found) if found != size => return Err(io::ErrorKind::UnexpectedEof.into()),
        Some(_) => {}
    }
    let mut hasher = Hasher::new(wanted.algorithm());
    let mut pieces = objects.read(key, 0..size).await?;
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        hasher.update(&piece);
        *bytes += piece.len() as u64;
        pace.keep(piece.len() as u64).await;
    }
    Ok(hasher.finish())
}

/// Keeps reading at a rate.
pub(super) struct Pace {
    rate: Option<u64>,
    begun: Instant,
    bytes: u64,
}

impl Pace {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self {
            rate: rate.filter(|rate| *rate > 0),
            begun: Instant::now(),
            bytes: 0,
        }
    }

    /// Waits as long as so many bytes should take.
    pub(super) async fn keep(&mut self, bytes: u64) {
        let Some(rate) = self.rate else {
            return;
        };
        self.bytes += bytes;
        let due = Duration::from_millis(self.bytes.saturating_mul(1000) / rate);
        let ahead = due.saturating_sub(self.begun.elapsed());
        if !ahead.is_zero() {
            tokio::time::sleep(ahead).await;
        }
    }
}
