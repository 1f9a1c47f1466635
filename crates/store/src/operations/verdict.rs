//! Reads an object and says whether it has the bytes that it should have, at a rate. A place that hangs is left alone.

use std::collections::BTreeSet;
use std::io;

use futures_util::StreamExt;

use crate::records::intact::main_key;
use crate::store::Store;
use xebec_objects::{Digest, Hasher, Pace};
use xebec_placement::PlaceName;

/// The outcome of reading an object.
pub(super) enum Verdict {
    Sound,
    Damaged,
    Missing,
    Unreadable(String),
    /// It was not read: its place hangs, which was said of an earlier object.
    Unread,
}

/// What one scrub, or one look for a cause, remembers while it reads.
pub(super) struct Pass {
    pub(super) pace: Pace,
    /// Places that do not answer. They are not asked again: each time may take long.
    pub(super) silent: BTreeSet<PlaceName>,
}

impl Pass {
    pub(super) fn new(bytes_per_second: Option<u64>) -> Self {
        Self {
            pace: Pace::new(bytes_per_second),
            silent: BTreeSet::new(),
        }
    }
}

impl Store {
    /// Reads an object that should have so many bytes with this digest. `bytes` counts what was read. One that is not on the main place is sound
    /// if there are enough of its replicas: these are read by themselves.
    pub(super) async fn verdict(
        &self,
        name: &str,
        (wanted, size): (&Digest, u64),
        pass: &mut Pass,
        bytes: &mut u64,
    ) -> Verdict {
        let Some(key) = main_key(name) else {
            return match self.is_somewhere(name, size).await {
                Ok(true) => Verdict::Sound,
                Ok(false) => Verdict::Missing,
                Err(error) => Verdict::Unreadable(error.to_string()),
            };
        };
        let main = PlaceName::main();
        match self.verdict_at(&main, key, (wanted, size), pass, bytes).await {
            Verdict::Unreadable(why) => Verdict::Unreadable(format!("on {main}: {why}")),
            verdict => verdict,
        }
    }

    /// The same of an object on any place, by its key.
    pub(super) async fn verdict_at(
        &self,
        place: &PlaceName,
        key: &str,
        wanted: (&Digest, u64),
        pass: &mut Pass,
        bytes: &mut u64,
    ) -> Verdict {
        if pass.silent.contains(place) {
            return Verdict::Unread;
        }
        match self.hash(place, key, wanted, &mut pass.pace, bytes).await {
            Ok(found) if found == *wanted.0 => Verdict::Sound,
            Ok(_) => Verdict::Damaged,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Verdict::Missing,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Verdict::Damaged,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                pass.silent.insert(place.clone());
                Verdict::Unreadable(format!(
                    "{error}, and nothing else is read there; see why, then scrub again"
                ))
            }
            Err(error) => Verdict::Unreadable(error.to_string()),
        }
    }

    async fn hash(
        &self,
        place: &PlaceName,
        key: &str,
        (wanted, size): (&Digest, u64),
        pace: &mut Pace,
        bytes: &mut u64,
    ) -> io::Result<Digest> {
        match self.size_at(place, key).await? {
            None => return Err(io::ErrorKind::NotFound.into()),
            Some(found) if found != size => return Err(io::ErrorKind::UnexpectedEof.into()),
            Some(_) => {}
        }
        let mut hasher = Hasher::new(wanted.algorithm());
        let mut pieces = self.read_at(place, key, 0..size).await?;
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            hasher.update(&piece);
            *bytes += piece.len() as u64;
            pace.keep(piece.len() as u64).await;
        }
        Ok(hasher.finish())
    }
}
