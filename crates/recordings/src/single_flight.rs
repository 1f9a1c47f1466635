//! First starts of one image at the same moment: what all of them lack is fetched by one of them.
//!
//! The start that finds that the zone of a recording must be asked for takes the recording's turn, and keeps it until the indexes are
//! kept and the pages are known to be in flight. A later start finds both.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use xebec_format::digest::Digest;

/// A recording, and the image's name: starts by other names may not admit what this one does.
pub(crate) type Name = (Digest, String);

/// The turns that are taken or waited for.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight(Mutex<HashMap<Name, Weak<tokio::sync::Mutex<()>>>>);

/// The turn of a start, until it goes.
pub(crate) type Flight = OwnedMutexGuard<()>;

impl SingleFlight {
    /// Whether a start has the turn, or waits for it.
    pub(crate) fn is_taken(&self, name: &Name) -> bool {
        let turns = self.0.lock();
        turns.get(name).is_some_and(|turn| turn.strong_count() > 0)
    }

    /// Waits for the turn of a start by a recording.
    pub(crate) async fn take(&self, name: Name) -> Flight {
        let turn = {
            let mut turns = self.0.lock();
            turns.retain(|_, turn| turn.strong_count() > 0);
            match turns.get(&name).and_then(Weak::upgrade) {
                Some(turn) => turn,
                None => {
                    let turn = Arc::new(tokio::sync::Mutex::new(()));
                    turns.insert(name, Arc::downgrade(&turn));
                    turn
                }
            }
        };
        turn.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_at_a_time_of_each() {
        let turns = SingleFlight::default();
        let name = |name: &[u8], image: &str| (Digest::of(name), image.to_owned());
        let take = |recording: &[u8], image: &str| turns.take(name(recording, image));
        let first = take(b"a", "x").await;
        assert!(turns.is_taken(&name(b"a", "x")));
        let _other = take(b"b", "x").await;
        let _elsewhere = take(b"a", "y").await;
        assert!(take(b"a", "x").now_or_never().is_none());
        drop(first);
        assert!(!turns.is_taken(&name(b"a", "x")));
        drop(take(b"a", "x").await);
        drop(take(b"c", "x").await);
        assert_eq!(turns.0.lock().len(), 3, "the table drops starts that ended");
    }
}
